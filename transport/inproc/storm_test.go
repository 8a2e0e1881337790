package inproc

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/transport"
)

// slots is memory that the net must guard: plain words, one slot for each lane of each rank, so
// that the race detector sees a hop that overlaps with its rank's own use of the slot.
type slots struct {
	transport.NoBlocks
	recv, send [][]int
	moved      []int // by source: hops of one source are never concurrent
}

func newSlots(ranks, lanes int) *slots {
	s := &slots{moved: make([]int, ranks)}
	for range ranks {
		s.recv, s.send = append(s.recv, make([]int, lanes)), append(s.send, make([]int, lanes))
	}
	return s
}

// Hop takes the lane from the op number.
func (s *slots) Hop(src, dst, _, sendOp, recvOp int32) (int64, error) {
	if sendOp != recvOp {
		return 0, fmt.Errorf("send op %d moves into receive op %d", sendOp, recvOp)
	}
	s.recv[dst][recvOp] = s.send[src][sendOp]
	s.moved[src]++
	return 8, nil
}

// storm is ranks that pass blocks round a ring on several lanes while a controller ends one epoch
// after the other.
type storm struct {
	net          *Net
	mem          *slots
	ranks, lanes int32
	in           []chan actors.Envelope
	barrier      *barrier
	stop         []atomic.Bool // by epoch: abort now
	blocks       atomic.Int64
	errs         chan error
}

// barrier lets all go when the last has come.
type barrier struct {
	mu       sync.Mutex
	n, count int
	open     chan struct{}
}

func (b *barrier) wait() {
	b.mu.Lock()
	open := b.open
	if b.count++; b.count == b.n {
		b.count, b.open = 0, make(chan struct{})
		close(open)
	}
	b.mu.Unlock()
	<-open
}

func (s *storm) tell(rank int32, e actors.Envelope) {
	e.From = actors.Addr{Role: actors.Rank, Rank: rank}
	e.To = actors.Addr{Role: actors.Link, Rank: rank}
	s.net.Handle(e)
}

// rank lives through all epochs.
func (s *storm) rank(r int32) {
	for epoch := actors.Epoch(1); int(epoch) < len(s.stop); epoch++ {
		ticks := make([]int32, s.lanes)
		for l := range s.lanes {
			s.post(r, l, 0, epoch)
		}
		for !s.stop[epoch].Load() {
			select {
			case e := <-s.in[r]:
				s.work(r, e, epoch, ticks)
			case <-time.After(patience):
				s.errs <- fmt.Errorf("rank %d got nothing in epoch %d", r, epoch)
				return
			}
		}
		s.tell(r, actors.Envelope{Kind: actors.Flush, Epoch: epoch})
		for e := range s.in[r] {
			if e.Kind == actors.Flushed && e.Epoch == epoch {
				break
			}
		}
		// Nothing may touch the slots now.
		for l := range s.lanes {
			s.mem.recv[r][l], s.mem.send[r][l] = -1, -1
		}
		s.barrier.wait()
	}
}

func (s *storm) post(r, lane, tick int32, epoch actors.Epoch) {
	s.tell(r, actors.Envelope{
		Kind: actors.Post, Peer: (r + s.ranks - 1) % s.ranks, Lane: lane, Tick: tick, Op: lane,
		Epoch: epoch})
}

// work answers a credit with a block and an arrival with the next receive. A rank stops the epoch
// after a while.
func (s *storm) work(r int32, e actors.Envelope, epoch actors.Epoch, ticks []int32) {
	if e.Epoch < epoch {
		return
	}
	switch e.Kind {
	case actors.Credit:
		s.mem.send[r][e.Lane] = int(r)<<32 | int(e.Tick)
		s.tell(r, actors.Envelope{
			Kind: actors.Put, Peer: (r + 1) % s.ranks, Lane: e.Lane, Tick: e.Tick, Op: e.Lane,
			Epoch: epoch})
	case actors.Arrived:
		prev := (r + s.ranks - 1) % s.ranks
		if got, want := s.mem.recv[r][e.Lane], int(prev)<<32|int(e.Tick); got != want ||
			e.Tick != ticks[e.Lane] {
			s.errs <- fmt.Errorf("rank %d epoch %d lane %d: slot holds %x, tick %d came, "+
				"want %x, %d", r, epoch, e.Lane, got, e.Tick, want, ticks[e.Lane])
		}
		s.blocks.Add(1)
		ticks[e.Lane]++
		if rand.IntN(40) == 0 {
			s.stop[epoch].Store(true)
			for _, in := range s.in { // a rank may be waiting for one that has stopped
				in <- actors.Envelope{Kind: actors.Abort, Epoch: epoch}
			}
		}
		s.post(r, e.Lane, ticks[e.Lane], epoch)
	case actors.Broken:
		s.errs <- fmt.Errorf("rank %d: broken %+v", r, e)
	}
}

func TestStorm(t *testing.T) {
	const ranks, lanes, epochs = 4, 3, 120
	brief := func(_, _, _, _, op int32) time.Duration { return time.Duration(op) * 10000 }
	for name, o := range map[string]Options{
		"at once":       {},
		"paced":         {Pace: brief},
		"paced by port": {Pace: brief, LinkOf: func(src, _, _ int32) int { return int(src) }},
		"paced by lane": {Pace: brief, LinkOf: func(src, _, l int32) int { return int(src*8 + l) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := &storm{
				mem: newSlots(ranks, lanes), ranks: ranks, lanes: lanes,
				barrier: &barrier{n: ranks, open: make(chan struct{})},
				stop:    make([]atomic.Bool, epochs+1), errs: make(chan error, 1<<12),
			}
			for range ranks {
				s.in = append(s.in, make(chan actors.Envelope, 1<<16))
			}
			classOf := func(_, _, op int32) int { return int(op) }
			meter := transport.NewMeter(s.mem, ranks, lanes, classOf)
			o.Ranks, o.Mover = ranks, meter
			o.Send = func(e actors.Envelope) { s.in[e.To.Rank] <- e }
			s.net = New(o)
			var wg sync.WaitGroup
			for r := range int32(ranks) {
				wg.Go(func() { s.rank(r) })
			}
			wg.Wait()
			s.net.Close()
			close(s.errs)
			for err := range s.errs {
				t.Error(err)
			}
			hops, counted := 0, int64(0)
			for r := range ranks {
				hops += s.mem.moved[r]
				for l := range lanes {
					counted += meter.Sent(r, l).Blocks
				}
			}
			if int64(hops) != counted || s.blocks.Load() > counted || s.blocks.Load() == 0 {
				t.Errorf("%d hops, %d counted, %d blocks seen", hops, counted, s.blocks.Load())
			}
		})
	}
}
