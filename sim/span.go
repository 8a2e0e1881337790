package sim

import (
	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/cudakern"
)

// OnLink is the Stream of a block on a link, beside the three streams of a device.
const OnLink = cudakern.NumStreams

// Span is what one op or one block occupies: an op a stream of its rank's device, a block a link.
// Spans of one stream, and of one link, do not overlap. They are told when they begin, so those of
// a round that is aborted are there too: what runs goes on to its end.
//
//	put      link free           link free again   at the receiver
//	Asked ~~~~ Begin ================= End ............. Over
//	           wait      occupies             latency
type Span struct {
	Rank   int32 // whose op; of a block, who sends it
	Stream uint8 // cudakern's stream, or OnLink
	Peer   int32 // who receives the block; -1 for an op
	Link   int   // as Costs number it; -1 for an op
	Round  int32
	Op     int32 // of the rank's program; of a block, its send
	Asked  actors.Time
	Begin  actors.Time
	End    actors.Time
	Over   actors.Time
}
