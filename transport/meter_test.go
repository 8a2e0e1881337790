package transport_test

import (
	"errors"
	"testing"

	"github.com/kvloom/kvloom/transport"
)

var errBroken = errors.New("broken")

// mover is one whose blocks have as many bytes as their send's number, and that fails to
// move op 13.
type mover struct{ posted []int32 }

func (m *mover) Post(_, _, op int32) error { m.posted = append(m.posted, op); return nil }

func (m *mover) Hop(_, _, _, sendOp, _ int32) (int64, error) {
	if sendOp == 13 {
		return 99, errBroken
	}
	return int64(sendOp), nil
}

// TestMeterCounts: blocks and bytes by source rank and class, only of those that moved; all calls
// reach the executor below.
func TestMeterCounts(t *testing.T) {
	below := &mover{}
	m := transport.NewMeter(below, 3, 2, func(rank, round, op int32) int {
		return int(round+op) % 2
	})
	for _, hop := range []struct{ src, dst, round, op int32 }{
		{0, 1, 0, 10}, {0, 1, 0, 12}, {0, 2, 1, 10}, {2, 0, 0, 7}, {1, 0, 0, 13}, {2, 0, 1, 0},
	} {
		n, err := m.Hop(hop.src, hop.dst, hop.round, hop.op, 5)
		if want := hop.op == 13; errors.Is(err, errBroken) != want {
			t.Errorf("hop %+v: error %v", hop, err)
		}
		if err == nil && n != int64(hop.op) {
			t.Errorf("hop %+v: %d bytes", hop, n)
		}
	}
	for rank, want := range [][2]transport.Traffic{
		{{Blocks: 2, Bytes: 22}, {Blocks: 1, Bytes: 10}},
		{},
		{{}, {Blocks: 2, Bytes: 7}},
	} {
		if got := [2]transport.Traffic{m.Sent(rank, 0), m.Sent(rank, 1)}; got != want {
			t.Errorf("rank %d sent %+v, want %+v", rank, got, want)
		}
	}
	if m.Post(0, 0, 6) != nil || len(below.posted) != 1 {
		t.Errorf("below the meter: posted %v", below.posted)
	}
	if m.Links() != 3 {
		t.Errorf("%d links in use, want 0->1, 0->2 and 2->0", m.Links())
	}
}
