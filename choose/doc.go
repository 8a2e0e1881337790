// Package choose picks a plan by its price: it makes the candidates that a problem allows, prices
// each with plan.Cost on a modelled cluster, and gives the table of all of them, the best one, and
// why it is the best.
//
//	Question                          candidates, in this order                 Table
//	spec, topology     scheme         layout                              row  seconds  ...
//	free: layout  ──>  ring kv   x    zigzag, doc-zigzag, balanced,  ──>    1  1.21 ms
//	      scheme       ring q         whole-doc, contiguous, striped        2  refused: lanes 2
//	      rotation     halo ...         │ plan.New refuses: the reason      3  1.83 ms
//	                                    │ plan.Cost prices the others       best: row 1, and why
//	                                    │ above the memory: refused
//
// What is not free is as asked. The modelled time is that of one round of each pass asked for, on
// the whole cluster; nothing is run and nothing is measured.
//
// # Duties of the caller
//
// The topology must have a rank for each of the mesh. A price is as good as the model: kernels that
// mask a tile are as fast as those that do not, whatever its width. The layout balanced is dealt by
// weights; they are the speeds of ring shards (Weights).
//
// # Invariants
//
//	J1  The chosen plan's modelled time is at most that of each candidate (TestBestIsLeast).
//	J2  Of candidates with the same time the first is chosen, and ring with zigzag is the first
//	    (TestTiesGoToTheFirst).
//	J3  A candidate that cannot be planned stays in the table with the reason, and is not chosen
//	    (TestRefusedStayInTheTable, TestNothingFits).
//	J4  A candidate above the memory of a rank is refused with that reason (TestMemoryLimit).
//	J5  The ops that are priced are bounded; where that leaves candidates out nothing is chosen. A
//	    candidate alone is always priced (TestPricingIsBounded).
//	J6  What is not free stays as asked (TestFixedStaysFixed).
//	J7  The same question gives the same table (TestSameQuestionSameTable).
//	J8  Weights are the speeds of the slowest rank of each ring shard, and a slow rank gets less
//	    (TestWeights, TestSlowRankGetsLess).
//	J9  Each word of a layout makes the layout of that name; what cannot be dealt is refused with
//	    what would work (TestLayoutWords, TestLayoutRefusals).
//
// # Concurrency
//
// All functions are pure; any number of goroutines may call them.
package choose
