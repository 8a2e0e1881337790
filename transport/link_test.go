package transport_test

import (
	"strings"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/transport"
	"pgregory.net/rapid"
)

func header() transport.Header {
	return transport.Header{
		Run: 0x10, Epoch: 2, Round: 7, Pass: 1, State: 3, Lane: 1, Tick: 9, Tensor: 3, HeadLo: 4,
		HeadHi: 6, SetHash: 0xabc, Plan: 0xdef,
	}
}

// TestHeaderCrossesAnEnvelope: what Stamp writes, HeaderOf reads, and nothing else changes.
func TestHeaderCrossesAnEnvelope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.Int32()
		h := transport.Header{
			Epoch: actors.Epoch(rapid.Uint32().Draw(t, "epoch")), Round: small.Draw(t, "round"),
			Lane: small.Draw(t, "lane"), Tick: small.Draw(t, "tick"),
			Tensor: rapid.Uint8().Draw(t, "tensor"), HeadLo: small.Draw(t, "lo"),
			HeadHi: small.Draw(t, "hi"), SetHash: rapid.Uint64().Draw(t, "set"),
			Plan: rapid.Uint64().Draw(t, "plan"), Run: rapid.Uint32().Draw(t, "run"),
			Pass: rapid.Uint8().Draw(t, "pass"), State: small.Draw(t, "state"),
		}
		before := actors.Envelope{
			To:   actors.Addr{Role: actors.Link, Rank: 3},
			From: actors.Addr{Role: actors.Rank, Rank: 3},
			Kind: actors.Put, Op: 12, Peer: 5, Stream: 1, After: [3]int32{0, 0, 3},
		}
		e := before
		h.Stamp(&e)
		if got := transport.HeaderOf(&e); got != h {
			t.Fatalf("stamped %v, read %v", h, got)
		}
		(transport.Header{}).Stamp(&e)
		if e != before {
			t.Fatalf("Stamp changed more than the header: %+v, was %+v", e, before)
		}
	})
}

// TestHeaderCheck: equal headers agree; each field alone makes a difference, and the error prints
// both sides.
func TestHeaderCheck(t *testing.T) {
	want := header()
	if err := want.Check(header()); err != nil {
		t.Errorf("equal headers: %v", err)
	}
	for name, change := range map[string]func(*transport.Header){
		"run 00000011":            func(h *transport.Header) { h.Run++ },
		"run 80000010":            func(h *transport.Header) { h.Run += 1 << 31 },
		"epoch 3":                 func(h *transport.Header) { h.Epoch++ },
		"round 8":                 func(h *transport.Header) { h.Round++ },
		"pass 0":                  func(h *transport.Header) { h.Pass-- },
		"state 4":                 func(h *transport.Header) { h.State++ },
		"lane 0":                  func(h *transport.Header) { h.Lane-- },
		"tick 10":                 func(h *transport.Header) { h.Tick++ },
		"tensor 4":                func(h *transport.Header) { h.Tensor++ },
		"heads 5:6":               func(h *transport.Header) { h.HeadLo++ },
		"heads 4:7":               func(h *transport.Header) { h.HeadHi++ },
		"tokens 0000000000000abd": func(h *transport.Header) { h.SetHash++ },
		"plan 0000000000000df0":   func(h *transport.Header) { h.Plan++ },
	} {
		came := header()
		change(&came)
		err := want.Check(came)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		text := err.Error()
		if !strings.Contains(text, "wanted "+want.String()) ||
			!strings.Contains(text, "came   "+came.String()) || !strings.Contains(text, name) {
			t.Errorf("%s: the error does not print both sides:\n%s", name, text)
		}
	}
}

// post is a receive as a rank posts it: a block from peer on lane at tick.
func post(op, peer, lane, tick int32) actors.Envelope {
	e := actors.Envelope{
		Kind: actors.Post, From: actors.Addr{Role: actors.Rank, Rank: 8}, Op: op, Peer: peer,
	}
	h := header()
	h.Lane, h.Tick = lane, tick
	h.Stamp(&e)
	return e
}

func TestPostsTakeNamesOneTransfer(t *testing.T) {
	var p transport.Posts
	for op, at := range [][3]int32{{1, 0, 5}, {1, 0, 6}, {1, 1, 5}, {2, 0, 5}} {
		if err := p.Add(post(int32(op), at[0], at[1], at[2])); err != nil {
			t.Fatal(err)
		}
	}
	take := func(src int32, put actors.Envelope) int32 {
		got, ok := p.Take(src, &put)
		if !ok {
			return -1
		}
		return got.Op
	}
	older, other := post(0, 8, 0, 5), post(0, 8, 0, 5)
	older.Epoch--
	other.Round++
	for _, tc := range []struct {
		src  int32
		put  actors.Envelope
		want int32
	}{
		{3, post(0, 8, 0, 5), -1}, // from a rank that owes nothing
		{1, post(0, 8, 2, 5), -1}, // on another lane
		{1, post(0, 8, 0, 7), -1}, // at another tick
		{1, older, -1},            // of an older epoch
		{1, other, -1},            // of another round
		{1, post(0, 8, 0, 6), 1},
		{1, post(0, 8, 0, 6), -1}, // a credit is used once
		{2, post(0, 8, 0, 5), 3},
		{1, post(0, 8, 1, 5), 2},
		{1, post(0, 8, 0, 5), 0},
	} {
		if got := take(tc.src, tc.put); got != tc.want {
			t.Errorf("block of rank %d, lane %d tick %d round %d epoch %d: receive %d, want %d",
				tc.src, tc.put.Lane, tc.put.Tick, tc.put.Round, tc.put.Epoch, got, tc.want)
		}
	}
	if p.Len() != 0 {
		t.Errorf("%d receives are open at the end", p.Len())
	}
}

// TestPostsLimit: the table never grows beyond its limit, the error says whose it is, and a taken
// or flushed receive makes room.
func TestPostsLimit(t *testing.T) {
	for _, tc := range []struct{ limit, most int }{{3, 3}, {1, 1}, {0, transport.MaxPosts}} {
		p := transport.Posts{Limit: tc.limit}
		for tick := range tc.most {
			if err := p.Add(post(int32(tick), 1, 0, int32(tick))); err != nil {
				t.Fatalf("limit %d: receive %d: %v", tc.limit, tick, err)
			}
		}
		err := p.Add(post(0, 1, 0, -1))
		if err == nil || !strings.Contains(err.Error(), "rank 8") || p.Len() != tc.most {
			t.Fatalf("limit %d: error %v with %d open, want one naming rank 8 with %d", tc.limit,
				err, p.Len(), tc.most)
		}
		put := post(0, 8, 0, 0)
		if _, ok := p.Take(1, &put); !ok {
			t.Fatalf("limit %d: the first receive is gone", tc.limit)
		}
		if err := p.Add(post(0, 1, 0, -1)); err != nil {
			t.Errorf("limit %d: no room after a block came: %v", tc.limit, err)
		}
		p.Flush()
		if _, ok := p.Take(1, &put); ok || p.Len() != 0 {
			t.Errorf("limit %d: a receive outlives a flush", tc.limit)
		}
	}
}
