// Package inproc owns the links between the ranks of one process: it matches each send with its
// receive, asks the memory's owner to hand the block over, and tells both ends.
//
//	rank 0          link 0                     link 1          rank 1
//	                                            <--- Post ----          slot and frame, the credit
//	       <--- Credit ------------------------
//	  ---- Put ---->   find the post of link 1
//	                   [pace: one block at a time on a way]
//	                   Mover.Hop(0, 1, round, send op, recv op)
//	       <--- Sent --                         ---- Arrived -->        header as the sender said
//
// A link end is a table of open receives, an epoch and a count of hops that touch its rank's
// slots. Without a pace the hop happens on the goroutine of the sending rank. With one, blocks wait
// on their way (one for each directed pair of ranks, or what LinkOf says) and each holds it for its
// time; the hop happens on a timer's goroutine.
//
// # Duties of the caller
//
// Handle is the function of role Link: it gets the envelopes that ranks send to their own link.
// Those of one rank come one at a time and in order, as an actor sends. Send does not block, may be
// called from any goroutine, and does not call Handle before it returns. Mover.Post and Mover.Hop
// are called without locks of the net's tables, for different ranks at the same time.
//
// # Invariants
//
//  1. Each envelope to a rank comes from that rank's own link: Credit, Sent, Arrived, Broken,
//     Flushed.
//  2. A block moves only into a posted receive of the same peer, lane, tick, round and epoch, once
//     (TestPutNeedsItsOwnPost), and only when both ends have the same header of it; else both ends
//     hear of a corrupt block and a note prints both (TestHeadersAreCompared). A put of the epoch
//     at hand without a receive is a corrupt block to its sender; what an abort leaves is dropped
//     and counted (TestStragglersAreNoFault).
//  3. Arrived carries the sender's header unchanged.
//  4. Blocks of one way move in the order in which they were put. Hops of one source rank are never
//     concurrent, so transport.Meter may wrap the mover.
//  5. After Flushed{E} no hop of an epoch up to E touches the rank's slots, as source or as
//     destination, and none is announced.
//  6. A post or put of a newer epoch ends older ones of its rank, as a flush does: a rank that died
//     flushed nothing.
//  7. Every queue is bounded by the open receives, transport.MaxPosts for each rank.
//
// # Concurrency
//
// Handle, Dropped and Close may be called from any goroutine.
package inproc
