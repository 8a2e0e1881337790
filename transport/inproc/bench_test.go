package inproc

import (
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/transport"
)

// BenchmarkTransfer reports one block's Post, Credit, Put, hop, Sent and Arrived, without
// mailboxes.
func BenchmarkTransfer(b *testing.B) {
	told := 0
	tell := func(actors.Envelope) { told++ }
	n := New(Options{Ranks: 2, Mover: transport.NoBlocks{}, Send: tell})
	open, send := post(0, 1, 0, 30, 1), put(1, 1, 0, 20, 1)
	for i, e := range []*actors.Envelope{&send, &open} {
		e.To = actors.Addr{Role: actors.Link, Rank: int32(i)}
		e.From = actors.Addr{Role: actors.Rank, Rank: int32(i)}
	}
	b.ReportAllocs()
	for range b.N {
		n.Handle(open)
		n.Handle(send)
	}
	if told != 3*b.N {
		b.Fatalf("%d envelopes told in %d transfers", told, b.N)
	}
}
