// Package simd owns the fast kernels of the CPU device: exact attention of one KV block, forward
// and backward, f32 or bf16 elements with f32 sums, in AVX-512 and in AVX2 with FMA. It does what
// package kernel does, the slow twin, and chooses by what the processor has.
//
//	queries of a head, or of several      panel Qt [d, 48]: a query is a lane, softmax and sums go
//	heads of a group, 48 at a time:       down the columns, never across; AVX2 has 24 lanes
//
//	             48 queries                             scores   S^T[c][48]  = K[c] . Qt
//	        +---------------------+                     softmax  P^T = e^(S^T - max), max, sum
//	  K[c]  | S^T -> P^T          |  96 keys            weigh    O^T[dv][48] = alpha O^T + V^T P^T
//	  V[c]  |                     |  a tile
//	        +---------------------+                     backward, the same panels:
//	        | O^T (or dQ^T)       |  dims               scores   S^T = K Qt,  dP^T = V dOt
//	        +---------------------+                     slopes   P = e^(S-lse), dS = P(dP-delta)
//	                                                    weigh    dQ^T += K^T dS^T
//	  only queries are packed; K and V are read         outer    dV += P^T dO, dK += dS^T Q
//	  where they are, one number for 48 lanes
//
//	task of Forward: one KV head, up to 384 queries x heads; tiles of keys from left to right
//	task of Backward: one KV head; 1152 queries x heads at a time; tiles of keys, whose dK and dV
//	stay in scratch until all those queries have passed
//
// A task of Backward is one pass of queries after another over all tiles. Where there are fewer KV
// heads than workers it is cut into pieces (Grid), some tiles of a pass each, that run as a wave
// from the first pass and tile to the last. Every sum is carried from piece to piece in the order
// of the whole task, so the cut, which may follow the workers, does not show in the bits.
//
// Tasks and tiles end where a span ends, if that leaves them half of their size: a chunk of a
// zigzag shard has no border of the mask inside a tile. What is left of a task after groups of 3
// vectors of queries is in groups of 2, so that a shard of 1,024 rows fills all lanes. A step of a
// ring has little arithmetic for each row that it reads and writes: rows of the next group are
// asked for (touch) while the group before it is at work, in pieces, as a core has few reads under
// way at once. Sums that are more than caches hold until they are needed again go past them
// (Scratch.Past, TestPast).
//
// A block of accumulators is 8 keys by 3 vectors (AVX2: 4 by 3) and stays in registers over a sum:
// 24 multiply-adds for 11 loads. A tile that all lanes see wholly is computed without a mask, one
// that none sees is skipped, and of others only the hull of the keys that are seen is computed,
// with a word of lanes for each key. A call of assembly does at most 48 lanes by 96 keys by 256
// elements, some 20 us, as it cannot be interrupted.
//
// A soft cap bends the scores where they lie, before softmax (cap) or before slopes (bend, which
// makes (dP - delta) (1 - tanh^2) of dP besides, so that slopes is as without). tanh is a quotient
// of powers of 2, as cap.go has it; without a cap nothing is different.
//
// Blocks of bf16 need not be widened where products of pairs do twice the work of float32, on AMD's
// processors (AVX512BF16, see dot.go), or where there are tiles, registers of 16 rows by 16 pairs
// (AMX, see amx.go). Each call sets the tiles up and gives them back, so that the system never
// has to keep them for a thread at rest.
//
// The assembly is written by the program in _gen, which has a module of its own.
//
// # Duties of the caller
//
// Serves says yes to the block, and Supported to the instruction set, which is not Portable: that
// name stands for package kernel. The lengths of all arrays fit the block; spans have a count and a
// stride of at least 1; slices of the mask are pairwise disjoint. Tasks that run at once each have
// a Scratch of their own, and nothing else writes the arrays that they read or write. A piece
// begins when those that it needs are over.
//
// # Invariants
//
//	V1  A task's bits depend on the block and the instruction set alone: not on the order of the
//	    tasks, on what a Scratch did before, nor on the other heads in the block (TestOrder,
//	    TestHeadSplit, TestHeadSplitBand). Cuts come from shapes, but for pieces, whose bits are
//	    those of the task in any cut and any order that keeps to Grid.Needs
//	    (TestPiecesGiveTheSameBits, TestPiecesOfAShape, TestGridOrder).
//	V2  Tasks of one block write disjoint elements, and only those of their rows and heads
//	    (TestWritesOwnItems); nothing outside the arrays, or outside the parts of a Scratch, is
//	    read or written (TestGuardPages; the kernels one by one: TestGuardedPack and its like).
//	V3  A pair that the mask forbids has no influence, whatever its key or query holds: a NaN or
//	    an infinity reaches only the rows and keys that may see it (TestPoison), and gives there
//	    what it gives in package kernel (TestInfinitiesLikeTwin,
//	    TestInfinitiesOfRows).
//	V4  A row without an allowed key keeps its state bit for bit; from a fresh one it has out 0,
//	    lse -Inf and no gradient. -Inf is never taken from -Inf (TestUnseenRowsKeepState,
//	    TestInfiniteLogits, TestWeightlessRows, TestNothingAllowed).
//	V5  The state goes from block to block in any cut of the keys, and dK and dV are set or added
//	    to (TestCarriedState).
//	V6  Errors are at most twice those of package kernel (TestAccuracy, TestRandomBlocks,
//	    TestManyTiles, TestSubnormal); a weight is within 1.2e-7 of the power of 2 of its argument
//	    (TestExp). So a product is summed over at most 32 dims, 96 keys or 48 queries before it is
//	    added to a carried sum.
//	V7  bf16 elements give the bits of the same numbers in f32 (TestNarrowElements). Not so in
//	    AVX512BF16 and AMX: they round weights and their gradients to bf16 before the next product,
//	    take subnormal numbers for 0, and are off by up to 2.5e-3 in out and 4e-3 in gradients, not
//	    in lse (TestPairs), in any cut of the keys (TestPairsDoNotDrift). With f32 elements, and
//	    with an odd d or dv, their bits are those of AVX512 (TestPairsAreOfBF16).
//	V8  In the steady state nothing is allocated (TestNoAllocations).
//	V9  The generated files are what the generator writes (TestGenerated).
//	V10 Every test of a path is also made of AMX where the processor has all of it but tiles, with
//	    an interpreter of their instructions (TestTiles).
//	V11 A capped score is within 3e-7 of itself, relatively, and 1 - tanh^2 within 3e-7
//	    (1 + |s/cap|), 0 below 2^-126 (TestCap). NaN, both zeros and subnormal scores stay, infinite
//	    ones become the cap (TestCapEdges). A cap of 2^60 gives the bits of none (TestHighCap).
//
// # Concurrency
//
// Functions start no goroutine, hold no lock and keep nothing but the Scratch that they are given.
// What the processor has is asked anew by each call of Detect; callers keep the answer. Linux lets
// a process use tiles when it asks for them, which it does, once and for all its threads, when AMX
// is the question: of Supported, or of Best where nothing else is missing.
package simd
