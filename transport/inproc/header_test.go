package inproc

import (
	"strings"
	"testing"
	"time"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/transport"
)

// sample is the header that both ends have of one transfer.
func sample() transport.Header {
	return transport.Header{
		Run: 0x77, Epoch: 3, Round: 7, Pass: 1, State: 5, Lane: 2, Tick: 4, Tensor: 1, HeadLo: 2,
		HeadHi: 6, SetHash: 0xabc, Plan: 0xdef,
	}
}

func stamped(k actors.Kind, peer, op int32, h transport.Header) actors.Envelope {
	e := actors.Envelope{Kind: k, Peer: peer, Op: op}
	h.Stamp(&e)
	return e
}

// note is the one that came; it fails without one.
func (r *rig) note() string {
	r.t.Helper()
	select {
	case n := <-r.notes:
		return n
	default:
		r.t.Fatal("there is no note")
	}
	panic("unreachable")
}

// TestHeadersAreCompared: each field of which both ends have an idea of their own is compared
// before the block moves. Both ends hear of a corrupt block, and the note prints both sides.
func TestHeadersAreCompared(t *testing.T) {
	for field, change := range map[string]func(*transport.Header){
		"run 00000078":            func(h *transport.Header) { h.Run++ },
		"run 80000077":            func(h *transport.Header) { h.Run += 1 << 31 },
		"pass 0":                  func(h *transport.Header) { h.Pass-- },
		"state 6":                 func(h *transport.Header) { h.State++ },
		"tensor 2":                func(h *transport.Header) { h.Tensor++ },
		"heads 3:6":               func(h *transport.Header) { h.HeadLo++ },
		"heads 2:7":               func(h *transport.Header) { h.HeadHi++ },
		"tokens 0000000000000abd": func(h *transport.Header) { h.SetHash++ },
		"plan 0000000000000df0":   func(h *transport.Header) { h.Plan++ },
	} {
		for _, pace := range []bool{false, true} {
			m := &mover{}
			o := Options{Ranks: 2, Mover: m}
			if pace {
				o.Pace = func(_, _, _, _, _ int32) time.Duration { return 0 }
			}
			r := newRig(t, o)
			want, came := sample(), sample()
			change(&came)
			r.from(1, stamped(actors.Post, 0, 30, want))
			r.await(0, actors.Credit)
			r.from(0, stamped(actors.Put, 1, 20, came))
			for rank, op := range []int32{20, 30} {
				e := r.await(int32(rank), actors.Broken)
				if e.Fault != actors.Corrupt || e.Op != op || e.Round != 7 || e.Epoch != 3 ||
					e.Peer != int32(1-rank) || e.Lane != 2 || e.Tick != 4 {
					t.Errorf("%s: rank %d heard %+v, want a corrupt block at op %d", field, rank, e,
						op)
				}
			}
			n := r.note()
			for _, part := range []string{"link 0->1, lane 2 tick 4 of round 7",
				"wanted " + want.String(), "came   " + came.String(), field} {
				if !strings.Contains(n, part) {
					t.Errorf("%s: the note does not tell %q:\n%s", field, part, n)
				}
			}
			r.Close()
			r.none(0, 1)
			if len(m.hops) != 0 {
				t.Errorf("%s: the block has moved", field)
			}
		}
	}
}

// TestPutNeedsItsOwnPost: a put that no open receive is for moves nothing. In the epoch at hand the
// sender hears of a corrupt block, with its header; after an abort at the receiver it is only a
// straggler.
func TestPutNeedsItsOwnPost(t *testing.T) {
	for name, change := range map[string]func(e *actors.Envelope) int32{
		"tick":  func(e *actors.Envelope) int32 { e.Tick++; return 0 },
		"lane":  func(e *actors.Envelope) int32 { e.Lane++; return 0 },
		"round": func(e *actors.Envelope) int32 { e.Round++; return 0 },
		"epoch": func(e *actors.Envelope) int32 { e.Epoch++; return 0 },
		"peer":  func(e *actors.Envelope) int32 { e.Peer = 2; return 0 },
		"from":  func(*actors.Envelope) int32 { return 2 },
	} {
		m := &mover{}
		r := newRig(t, Options{Ranks: 3, Mover: m})
		r.from(1, stamped(actors.Post, 0, 30, sample()))
		r.await(0, actors.Credit)
		right := stamped(actors.Put, 1, 20, sample())
		wrong := right
		src := change(&wrong)
		r.from(src, wrong)
		e := r.await(src, actors.Broken)
		if e.Fault != actors.Corrupt || e.Op != 20 || e.Epoch != wrong.Epoch ||
			e.Round != wrong.Round || e.Peer != wrong.Peer {
			t.Errorf("put with another %s: its sender heard %+v", name, e)
		}
		n, h := r.note(), transport.HeaderOf(&wrong)
		if !strings.Contains(n, h.String()) || !strings.Contains(n, "no receive is open") {
			t.Errorf("put with another %s: the note does not tell its header %v:\n%s", name, h, n)
		}
		r.none(0, 1, 2)
		if r.Dropped() != 1 || len(m.hops) != 0 {
			t.Errorf("put with another %s: %d dropped, %d hops", name, r.Dropped(), len(m.hops))
		}
		if name != "epoch" { // a newer epoch at rank 0 has ended the right one
			r.from(0, right)
			r.await(0, actors.Sent)
			r.await(1, actors.Arrived)
		}
	}
}

// TestStragglersAreNoFault: what an abort leaves is dropped without a word: the receiver has
// flushed the epoch, or is in a newer one, or the sender is.
func TestStragglersAreNoFault(t *testing.T) {
	newer := sample()
	newer.Epoch++
	for name, before := range map[string]func(r *rig){
		"the receiver has flushed": func(r *rig) {
			r.from(1, flush(3))
			r.await(1, actors.Flushed)
		},
		"the receiver is in a newer epoch": func(r *rig) {
			r.from(1, stamped(actors.Post, 2, 31, newer))
			r.await(2, actors.Credit)
		},
		"the sender is in a newer epoch": func(r *rig) {
			r.from(0, stamped(actors.Post, 2, 31, newer))
			r.await(2, actors.Credit)
		},
	} {
		m := &mover{}
		r := newRig(t, Options{Ranks: 3, Mover: m})
		r.from(1, stamped(actors.Post, 0, 30, sample()))
		r.await(0, actors.Credit)
		before(r)
		r.from(0, stamped(actors.Put, 1, 20, sample()))
		r.none(0, 1, 2)
		if r.Dropped() != 1 || len(m.hops) != 0 || len(r.notes) != 0 {
			t.Errorf("%s: %d dropped, %d hops, %d notes; want 1, 0, 0", name, r.Dropped(),
				len(m.hops), len(r.notes))
		}
	}
}
