// Package kernel owns the arithmetic of the CPU device: exact attention of one KV block, forward
// and backward, in tiles, as pure functions in portable Go for f32 and f64, and for bf16 with
// accumulators of either.
//
//	            keys ->  64
//	queries  +--------+--------+--------+      one task of Forward: one query head and one row of
//	   |  64 | full   | border | (skip) |      tiles, from left to right; the state (m, l, acc)
//	   v     +--------+--------+--------+      lies between the tiles and between the blocks
//	         | full   | full   | border |
//	         +--------+--------+--------+      one task of Backward: one KV head, a column of
//	           |                               tiles from top to bottom for every query head
//	           v                               that reads it: dK, dV of the column, dQ of the rows
//
// In a tile two query rows at a time go through all three stages while their scores are in cache:
// inner products with the keys (dotPair), softmax, weighted sum of the values (axpyPair). The
// backward is five products of the same two kinds. A soft cap bends the scores between the first
// and the second stage. Rows of BF16 are widened when they are packed, once a tile.
//
// A task sifts the slices of the mask once. From then on it passes by the rows and keys beyond the
// reach of those that are left, whole tiles at a time, and marks in each tile the pairs allowed.
//
// # Duties of the caller
//
// The lengths of all arrays fit the block; spans have a count and a stride of at least 1; slices of
// the mask are pairwise disjoint. Tasks that run at once each have a Scratch of their own, and
// nothing else writes the arrays that they read or write. A fresh state is made by FreshState, and
// the rows of a finished one are read by Finalize, which alone knows of sinks. q, k, v and do are
// of the accumulators' type or of BF16.
//
// # Invariants
//
//  1. A task's bits depend on the block alone: not on the order of the tasks, on which of them run
//     at once, nor on the other heads in the block. Cuts come from shapes.
//  2. Tasks of one block write disjoint elements, and only those of their rows and heads.
//  3. A pair that the mask forbids has no influence, whatever its key or query holds: a NaN or an
//     infinity reaches only the rows and keys that are allowed to see it, and there it stays.
//  4. A tile without an allowed pair is skipped. A wholly allowed tile is computed without masking.
//  5. A row without an allowed key has out 0, lse -Inf or its sink, and no gradient. -Inf is never
//     taken from -Inf.
//  6. Sums run over at most 64 terms before they are added to a carried sum, so that errors grow
//     with the number of tiles and not of keys.
//  7. In the steady state nothing is allocated: a Scratch grows only for a block of larger D, DV or
//     number of slices than any before.
//  8. Inputs of BF16 give the bits that the same numbers in the accumulators' type give.
//  9. A capped score in single precision is within 1e-7 of itself, relatively.
//
// # Concurrency
//
// Functions start no goroutine, hold no lock and keep nothing but the Scratch that they are given.
package kernel
