// Package balance deals the tokens of one sequence over the shards of a ring by what a mask makes
// of them: it looks for a mesh.Layout under which shards have like work, and says how even any
// layout is. Work is counted in pairs of a query and a key that the mask allows.
//
//	documents   |---- a ----|-b-|--- c ---|d|e|     causal inside each
//	chunks      |  |  |  |  |   |  |  |   | |       cut where the mask's slices begin, and inside
//	                 deal                           the chunk of most pairs first, to the shard
//	shard 0     |  |              |  |              that is done first and has room; then chunks
//	shard 1        |  |        |  |                 are traded until rounds, and steps, are even
//
//	step t: shard c attends the keys of shard c-t       matrix of pairs, and where step 1 is in it
//
//	        t=0    t=1    t=2                           keys   0    1    2
//	  c=0   00     02     01       largest over    query  0    .    .    1
//	  c=1   11     10     12       c, over mean           1    1    .    .
//	  c=2   22     21     20                              2    .    1    .
//
// Finer and finer cuts are tried, each in two kinds: chunks dealt one by one, and documents that
// are cut at all dealt zigzag over all shards. The coarsest that is good is taken, since each chunk
// is a span, and a span costs tiles.
//
// Where shards have weights, each has its part of the work in proportion, and of the tokens if all
// tokens work alike: what counts is the time, work over weight.
//
// # Duties of the caller
//
// Slices of the mask are disjoint (Validate refuses others). Documents come as slices: the mask is
// all that is known of them. Every rank of a run deals for itself or is told the layout; both give
// the same, since results follow from the problem alone.
//
// # Invariants
//
//	E1  Every token is dealt once, spans rise and do not touch (TestDealPartsTheTokens).
//	E2  The same problem gives the same layout, on any machine: ties go to the lower number, and no
//	    sum of products depends on how a machine fuses them (TestDealPartsTheTokens).
//	E3  No shard holds more than its part of the tokens, an eighth of an even part and one more,
//	    where Chunks is not given (TestDealPartsTheTokens).
//	E4  Reports say what the mask says, pair by pair (TestMeasureCounts), and a deal's own report is
//	    what Measure says of its layout (TestDealPartsTheTokens).
//	E5  Largest over mean work is at most 1.05 for packed documents of lengths log-uniform from 16
//	    to half the sequence, causal or in a window, 8,192 tokens on 8 shards
//	    (TestPackedDocumentsAreEven).
//	E6  Work is within 5% of the weights there (TestWeights).
//	E7  What is refused names the value and what would work (TestDealRefuses).
//
// # Concurrency
//
// All functions are pure; a Report is a plain value. Any number of goroutines may call them.
package balance
