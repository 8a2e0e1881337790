// Package collect owns collectives: builders that write the programs of an all-reduce, a
// reduce-scatter or an all-gather of one vector in each group of ranks. A group is an axis of the
// mesh: a head group, a ring or all ranks, in rank order. A collective is a plan like any other
// (plan.Source): the same Verify proves it, and the same workers, links and devices run it.
//
// Group of G = 3, n = 7 elements in runs of 3, 2, 2 (mesh.CutEven). Sets: g0 all, g0.i run i; heads
// are contributors, that is places in the group:
//
//	            brings (vec.in)     exchange            unpack adds            gets (sum.out)
//	place 0     vec[g0 h0:1]        g0.1 ->1, g0.2 ->2  g0.0: h0 + h1 + h2     sum[g0.0]
//	place 1     vec[g0 h1:2]        g0.2 ->2, g0.0 ->0  g0.1: h0 + h1 + h2     sum[g0.1]
//	place 2     vec[g0 h2:3]        g0.0 ->0, g0.1 ->1  g0.2: h0 + h1 + h2     sum[g0.2]
//	            \________________________ reduce-scatter ________________________/
//
//	all-gather  vec[g0.i] -> all peers; unpack g0.0 g0.1 g0.2 -> sum[g0], one contributor each
//	all-reduce  a reduce-scatter into scratch, then sum[g0.i] -> all peers; unpack -> sum[g0]
//
// Elements of all groups are one sequence: those of group g are g*n to g*n+n-1, so Verify proves
// with its usual sums over ranks that each contribution is there once. Bytes sent are those of a
// ring, n(G-1)/G a phase; pieces go straight to their receiver, at distance d with tick d, so that
// parts can be added in the order of the group, which a ring cannot. The price is room for a piece
// of each peer at once: an all-reduce of n elements holds 3n (in, out, pieces and own sum). Inputs
// are only read, so that a round can be run again.
//
// # Duties of the caller
//
// All ranks run the same plan in the same round. Give each rank's vector under plan.VecIn, take the
// result under plan.SumOut (Plan says the lengths); a rank whose run is empty brings no elements
// and has no result. Where an accumulator is wider than an element, sums have its width.
//
// # Invariants
//
//	C1  Results are the plain sums ((v0 + v1) + v2) + ... in the order of the group, bit by bit, the
//	    same on all its ranks, for any order of events (TestResults, TestTimingChangesNoBit).
//	C2  Every plan passes Verify (TestPlansAreProven); what is broken is refused in words
//	    (TestBrokenPlansAreRefused), and what Verify accepts gives the right bits
//	    (TestVerifyHasTeeth).
//	C3  A rank with a run sends G-1 pieces, 2(G-1) in an all-reduce; none when G = 1; empty runs
//	    are not sent. All is of class plan.Collective (TestCounts).
//	C4  Peak memory is what the drawing says (TestPeakBytes).
//	C5  The hash tells kinds, axes, meshes, lengths and widths apart (TestHashTellsPlansApart).
//	C6  A plan's text reads back as the same plan (TestTextIsReadBack).
//	C7  What New refuses cannot be; the error names the value and what would work (TestRefusals).
//
// # Concurrency
//
// A Plan is immutable; all its methods may be called by any number of goroutines.
package collect
