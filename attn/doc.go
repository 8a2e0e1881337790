// Package attn owns the mathematics of exact attention and the algebra of masks, on plain slices:
// the slow, obvious twin that every faster path is held against. It knows no ranks, devices or
// links.
//
// Three readings of one formula, each checked against the one above it:
//
//	Problem  q, k, v whole, float64        out = softmax(scale * q k^T | mask) v
//	   |                                   lse = log sum exp(scale * q.k)
//	   |  Dense, DenseBackward             the oracle; DenseRows, RowsBackward and
//	   |                                   KeysBackward are its samples, bit for bit
//	   v
//	Block    some query rows, some keys    Forward folds a block into the state (m, l, acc),
//	   |     K K K                         Backward gives its dK, dV and adds to dQ
//	   |   Q # # .   State   FreshState -> Forward, Forward, ... -> Finalize -> (out, lse)
//	   |   Q # # #   m l acc
//	   v
//	partials (out, lse) on a wire          Merge folds one finished partial into another
//
// A soft cap bends the logits of any of them. A sink, a learned logit of each query head, joins the
// sum of a row when it is finished: blocks and states know nothing of it, partials that are to be
// merged leave it out but for one. BF16 is an element type alone: what it holds is widened to the
// type of the accumulators, and rounded once where it is written.
//
// Mask says which pairs (query i, key j) count, by global positions; Pairs and Class count and
// sort the tiles of two token sets without looking at the pairs one by one, NeededKeys and
// NeededQueries say what of a set another one meets. A mask is a list of slices, whoever makes it:
//
//	Full Causal Window Prefix BlockCausal   a file each; ParseMask reads their words
//	Documents                               packs sequences, each with a mask of its own inside
//	ParseSlices                             any slices, from a file
//	Index                                   thousands of slices, asked about few queries
//
// Duties of the caller:
//   - Problem.Validate, Block.Validate and Mask.Validate are called once where a problem comes in.
//     The functions themselves trust their operands, and panic or index out of range on wrong
//     lengths.
//   - The slices of a mask are disjoint. Pairs and Class count a doubled pair twice.
//   - A sink is given to one Finalize of a row, not to each of the partials that are merged.
//   - Arrays written to do not overlap those read, but where a function says that they may.
//
// Invariants:
//  1. A row without an allowed key has out 0, lse -Inf or its sink, and gradients 0; -Inf minus
//     -Inf is never formed, and a key or row that the mask leaves out is never read, so a NaN there
//     stays there. SinkGrad alone reads all of delta.
//  2. A NaN or +Inf at a place that is read comes out as NaN; it is never swallowed, but that a
//     soft cap makes the cap of an infinite logit.
//  3. Sums run in an order fixed by shapes and mask alone: the same call gives the same bits, for
//     any Parallel, and a sampled row or key gives the bits of the dense one.
//  4. Blocks in any cut and any order give the dense result within rounding.
//  5. lse is a natural logarithm; the logit is scale * q.k, or c tanh(scale * q.k / c).
//  6. A sink joins the sum of its row exactly once, and is stable for any size of it.
//  7. A number becomes a BF16 by one rounding to nearest, ties to even, from whatever type.
//  8. The masks that the functions make allow the pairs of their definitions and no others, in
//     valid slices in order of their queries.
//  9. NeededKeys and NeededQueries are exact for all strides, in spans that cannot be joined.
//
// Concurrency: nothing here starts a goroutine or keeps anything between calls. Calls that write
// to different arrays may run at the same time. A Parallel given by the caller may run its items
// at once: no two of them write the same element.
package attn
