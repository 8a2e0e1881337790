// Package ringbus owns the ring axis: builders that write, into a rank's program, which KV block is
// where at each ring step, its hops, and the journey home of its gradient. It decides order and
// slots; when an op really runs is the worker's business.
//
// Ring, the plain one, C = 4: every hop goes from ring rank c to c+1, and at step t rank c
// holds block (c-t) mod C.
//
//	           step 0   step 1   step 2   step 3        KV sends a rank: C-1
//	rank 0     b0       b3       b2       b1            a block's last holder drops it
//	rank 1     b1       b0       b3       b2
//	rank 2     b2       b1       b0       b3
//	rank 3     b3       b2       b1       b0
//
//	forward, rank c, ticks from T, step t at tick T+t
//	  compute   zero [attend b(c)  ][attend b(c-1)][attend b(c-2)][attend b(c-3)] finalize
//	  out       send b(c) >T+1  send b(c-1) >T+2  send b(c-2) >T+3
//	  in        recv b(c-1) <T+1  recv b(c-2) <T+2  recv b(c-3) <T+3
//
//	backward, step t at tick T+2t; KV goes round as before, two ticks a hop
//	  compute   [attend-bwd b(c) -> partial][attend-bwd b(c-1) -> partial] ...
//	  in                    recv dKV b(c-1) <T+3 [accumulate partial] ...  recv dKV b(c) <T+2C+1
//	  out       send dKV b(c) >T+3        send dKV b(c-1) >T+5 ...        C sends, the last one home
//
// The first rank that met a block sends its partial itself as the accumulator; until then no dKV
// travels. Slots, besides the pinned home blocks: Options.KVSlots for KV on its way, Options.
// DKVSlots for accumulators on theirs, Options.Partials for own parts. One travelling slot of
// either kind would stop for ever on a ring of three and more, so plan refuses it.
//
// Under full and causal masks every block goes all the way round. Under others it stops at the last
// rank that needs it, and its accumulator goes home from there; a document that lies on one rank
// costs nothing. With RotateQ the backward walk is the same, of queries and dQ.
//
//	scheme      forward, into a rank            backward, into a rank
//	ring        KV of C-1 blocks, hop by hop    the same, and dKV, C hops     rotate kv
//	                                            visits of C-1, and dQ, C      rotate q
//	allgather   KV of C-1, straight, all held   the same, and parts of dKV
//	halo        the rows of KV that are seen    the same, and their dKV
//	passq       Q of C-1, and parts of out      as rotate q
//
// # Duties of the caller
//
// plan.Plan calls the axis with blocks of the ring shard and the rank's heads; q, do, out and delta
// have equal rows, as have kv and dkv. The mask is that of the plan's header. With head degree 1
// out, dq and dkv are written into the session's home slots, else into scratch ones that the head
// axis takes over (out: the session's head slot).
//
// # Invariants
//
//	B1  Ring under full and causal masks, a token in every chunk: C-1 KV sends a rank in either
//	    pass, C dKV sends backward, none of any kind when C = 1 (TestSendCounts).
//	B2  A rank attends block (c-t) mod C at step t, once, with all its heads, when the mask allows
//	    a pair of it, and no other (TestBlockAtStep).
//	B3  Hops without rows are not sent, nor a block that no later rank needs, nor an accumulator
//	    before somebody added to it or after the last one did, but home
//	    (TestNothingTravelsForNothing). A block that no query sees gets zero gradients at home.
//	B4  Both ends of a transfer carry the same tick, tensor, tokens and heads (TestEndsMatch).
//	B5  KV, dKV and partials use at most the slots of the options (TestSlotLimits); fewer than can
//	    work are refused (TestTooFewSlotsAreRefused).
//	B6  Hops hide behind arithmetic: no hop of a step waits for its attend, and no attend for the
//	    accumulator or the sum of the step before (TestHopsHideBehindArithmetic; in virtual time
//	    TestForwardHidesHops and TestBackwardHidesHops of package sim).
//	B7  The parts of a block's gradient are added in ring order, beginning at the first rank that
//	    met it, whatever the timing (TestGradientFollowsItsBlock).
//	B8  Every scheme with any of its choices, any mask, layout, heads and mesh gives a plan that
//	    Verify proves (TestEverySchemeIsSound); choices that a scheme does not have are refused
//	    (TestSchemesRefuseWhatTheyDoNotHave).
//	B9  Halo moves the rows that are needed and no other, and nothing moves for a document that
//	    lies on one rank (TestHaloMovesWhatIsSeen, TestDocumentsAtHomeDoNotTravel).
//
// # Concurrency
//
// Axes have no state; one value serves any number of builders at the same time.
package ringbus
