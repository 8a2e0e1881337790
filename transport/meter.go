package transport

import "github.com/kvloom/kvloom/cudakern"

// Meter is a decorator of whatever moves blocks: it counts blocks and bytes where they move. Calls
// of Hop for one source rank must not be concurrent, as a link end's are not; totals are read
// when the links are still.
type Meter struct {
	cudakern.Executor
	classOf func(rank, round, sendOp int32) int
	classes int
	count   []Traffic // by source rank and class
}

// Traffic is what was handed to links: blocks, and the bytes in them.
type Traffic struct{ Blocks, Bytes int64 }

// NewMeter wraps an executor for ranks ranks. classOf groups transfers: an index below classes.
func NewMeter(x cudakern.Executor, ranks, classes int,
	classOf func(rank, round, sendOp int32) int) *Meter {
	return &Meter{
		Executor: x, classOf: classOf, classes: classes, count: make([]Traffic, ranks*classes),
	}
}

// Hop moves a block and counts it.
func (m *Meter) Hop(src, dst, round, sendOp, recvOp int32) (int64, error) {
	n, err := m.Executor.Hop(src, dst, round, sendOp, recvOp)
	if err == nil {
		t := &m.count[int(src)*m.classes+m.classOf(src, round, sendOp)]
		t.Blocks++
		t.Bytes += n
	}
	return n, err
}

// Sent is what a rank handed to its links in a class.
func (m *Meter) Sent(rank, class int) Traffic { return m.count[rank*m.classes+class] }
