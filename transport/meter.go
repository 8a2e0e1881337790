package transport

// Mover is what a link asks of whoever owns the memory at its ends. A mover does not order
// anything: calls come when the plan's dependencies are over. Calls for different source ranks may
// come at the same time.
type Mover interface {
	// Post readies the slot of a receive: its memory is free for the block to come.
	Post(rank, round, op int32) error
	// Hop moves the block of src's send into the slot of dst's receive, in the same round, and
	// says how many bytes the block has.
	Hop(src, dst, round, sendOp, recvOp int32) (bytes int64, err error)
}

// NoBlocks is a mover that moves nothing, for simulations of timing alone.
type NoBlocks struct{}

// Post does nothing.
func (NoBlocks) Post(_, _, _ int32) error { return nil }

// Hop does nothing.
func (NoBlocks) Hop(_, _, _, _, _ int32) (int64, error) { return 0, nil }

// Meter is a decorator of whatever moves blocks: it counts blocks and bytes where they move. Calls
// of Hop for one source rank must not be concurrent, as a link end's are not; totals are read
// when the links are still.
type Meter struct {
	Mover
	classOf func(rank, round, sendOp int32) int
	ranks   int
	classes int
	count   []Traffic // by source rank and class
	used    []bool    // by source and destination rank
}

// Traffic is what was handed to links: blocks, and the bytes in them.
type Traffic struct{ Blocks, Bytes int64 }

// NewMeter wraps a mover for ranks ranks. classOf groups transfers: an index below classes.
func NewMeter(x Mover, ranks, classes int, classOf func(rank, round, sendOp int32) int) *Meter {
	return &Meter{
		Mover: x, classOf: classOf, ranks: ranks, classes: classes,
		count: make([]Traffic, ranks*classes), used: make([]bool, ranks*ranks),
	}
}

// Hop moves a block and counts it.
func (m *Meter) Hop(src, dst, round, sendOp, recvOp int32) (int64, error) {
	n, err := m.Mover.Hop(src, dst, round, sendOp, recvOp)
	if err == nil {
		t := &m.count[int(src)*m.classes+m.classOf(src, round, sendOp)]
		t.Blocks++
		t.Bytes += n
		m.used[int(src)*m.ranks+int(dst)] = true
	}
	return n, err
}

// Sent is what a rank handed to its links in a class.
func (m *Meter) Sent(rank, class int) Traffic { return m.count[rank*m.classes+class] }

// Links is the number of directed pairs of ranks between which a block has moved.
func (m *Meter) Links() int {
	n := 0
	for _, u := range m.used {
		if u {
			n++
		}
	}
	return n
}
