// Package headshuffle owns the head axis: builders that write, into a rank's program, the exchange
// that turns token-sharded blocks (own tokens, all heads) into head-sharded ones (the ring shard's
// tokens, own heads) and back. KV heads are sliced where they can be and held by several ranks
// where they must be.
//
// AllToAll (Ulysses), in one head group of H = 2; q, kv, do go to the shard, out, dq, dkv go home:
//
//	token-sharded                    head-sharded
//	    heads  0 1    2 3              h0: heads 0 1     h1: heads 2 3
//	h0 run 0 [ own  |  a  ]            run 0 [ own ]     run 0 [  a  ]    a: h0 -> h1
//	h1 run 1 [  b   | own ]            run 1 [  b  ]     run 1 [ own ]    b: h1 -> h0
//
//	to shard   h0: pack a, send a ->h1      recv b <-h1      unpack own, b  -> shard x heads 0 1
//	to home    the same with the axes swapped: pack (run p, own heads), unpack (own run, heads of p)
//
// The own region is not copied into a piece: unpack reads it in place. Gradients of KV heads that
// several ranks hold come home in several pieces, whose heads overlap:
//
//	28/7 over 2   h0 holds kv 0:4, h1 holds kv 3:7
//	unpack        cdkv[run h0:4] cdkv[run h3:7] -> dkv[run h0:7]     head 3: h0's part + h1's
//
// # Duties of the caller
//
// plan.Plan calls the axis with blocks over exactly this rank's home or head frames, in the same
// order on all ranks of a group. Scatter consumes accumulators and releases their slots; a block
// that is only read (out) stays where it is. With H = 1 both directions write nothing, and roles
// are the ring axis's business.
//
// # Invariants
//
//	H1  A block's exchange is one piece to and one from each peer of the head group, H-1 each way,
//	    none when H = 1 (TestPieceCounts).
//	H2  The piece from i to j towards the shard is (home of i) x (heads of j), on the way home (home
//	    of j) x (heads of i); one without tokens is not sent (TestPieces).
//	H3  Each block is unpacked by one op, sources in the order of head ranks, the own region in its
//	    place: replicas are summed in that order (TestUnpackInHeadRankOrder, TestReplicasAreSummed).
//	H4  Both ends of a piece carry the same tick, tensor, tokens and heads (TestEndsMatch).
//	H5  Bytes into a rank are what attention's formula says, also with uneven and replicated heads
//	    (TestBytesIn).
//	H6  All scratch slots are given back; what stays is the session's (TestPiecesAreGivenBack).
//	H7  In chunks of heads the exchange of one hides behind the attention of another, but the first
//	    way in and the last way out, and no more than two chunks are held
//	    (TestChunksHideTheExchange).
//
// # Concurrency
//
// AllToAll has no state; one value serves any number of builders at the same time.
package headshuffle
