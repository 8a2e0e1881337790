// Package mesh owns the geometry of a run: which rank sits where in the grid of head degree H times
// ring degree C, which tokens each ring shard and each rank holds, and which query and key/value
// heads each head rank holds. Everything follows from a few integers by formulas, but for a Dealt
// layout, which lists its shards; nothing of attention, programs or devices is known here.
//
//	Mesh 2x4, head-first            Layout: S tokens in 2C chunks     zigzag: c and 2C-1-c
//
//	      c=0 c=1 c=2 c=3            tokens  0 ............... S-1
//	 h=0   0   2   4   6             chunk   0  1  2  3  4  5  6  7
//	 h=1   1   3   5   7             shard   0  1  2  3  3  2  1  0
//	       ^ head group              contig. 0  0  1  1  2  2  3  3
//
//	shard 1, a Set, rows in this order          SplitHeads 6/3 over H = 2
//	  [chunk 1    ][chunk 6    ]                  query heads  0 1 2 | 3 4 5
//	  |--- home h=0 ---|--- h=1 ---|              KV heads     0 0 1 | 1 2 2
//	  CutEven: first runs are the longer          h=0 holds 0:2, h=1 holds 1:3
//
//	Layout      shard c of C holds
//	zigzag      chunks c and 2C-1-c of the sequence        Basic
//	contiguous  one run                                    Basic
//	striped:N   stripes c, c+C, c+2C, ... of N tokens      Striped, ParseStriped
//	doc-zigzag  zigzag's chunks of each document           DocZigzag
//	whole-doc   whole documents, long ones cut             NewWholeDoc
//	any other   what is listed: package balance, say       Dealt, NewDealt
//
// A Span is an arithmetic run of positions, a Set is spans; positions are global, so a mask can be
// read off them. The order of a set's positions is the order of the rows of every tensor over it.
//
// # Duties of the caller
//
// Mesh.Validate and ValidateHeads are called once where a mesh and heads come in. The other
// functions trust their arguments: coordinates and ranks inside the mesh, degrees of at least 1,
// head degree at most the query heads, KV heads dividing the query heads, rows inside the set.
// A Set that is given to others is not changed any more. Layout.Validate is called before the other
// methods of a layout. Layouts are compared by String: DocZigzag has a slice, so == would panic.
//
// # Invariants
//
//	G1  Head-first g = c*H + h, context-first g = h*C + c (TestRankGrid). Rank and Coord are
//	    inverse, and ranks are 0..H*C-1, each once (TestRankCoordInverse).
//	G2  The shards of any S >= 1, any C, either layout, hold each of 0..S-1 once; zigzag shard c is
//	    chunks c and 2C-1-c of 2C; nothing is padded; spans rise and do not touch
//	    (TestShardsPartitionTokens, TestShardTable).
//	G3  The homes of a head group cut their shard's rows in order (TestShardsPartitionTokens), so
//	    all homes hold each token once, whatever the placement (TestHomesOwnEachTokenOnce).
//	G4  Sizes of chunks, of shards, and of the homes in a group differ by at most one; any of them
//	    may be empty (TestShardsPartitionTokens, TestCutEven). That is so of shards under zigzag,
//	    contiguous and doc-zigzag; homes, under any layout.
//	G5  Each query head is on one head rank, in order; a head rank holds the KV heads that its
//	    query heads read, no other (TestSplitHeads, TestSplitHeadsTable, TestSplitHeadsFieldCases).
//	G6  Rows [lo,hi) of a set are positions [lo,hi) of its list, without an empty span
//	    (TestRowsAreSlicesOfPositions).
//	G7  Under a causal mask the largest over mean work of zigzag shards is at most 1.01 at S = 4096,
//	    C <= 16, and contiguous ones have (2C-1)/C within 1% (TestCausalBalance).
//	G8  What is refused names the value and one that works (TestMeshValidate,
//	    TestValidateHeadsRefuses, TestNamesParseBack, TestParseStriped, TestValidateStarts,
//	    TestDealtRefuses).
//	G9  The shards of every layout part the tokens; spans lie one after the other, in shards, halves
//	    and homes; halves are the shard's rows, cut in order (TestLayoutsPartTokens).
//	G10 Layouts that deal differently have different names (TestNamesTellLayoutsApart).
//	G11 A stripe is one span; stripes of one token are one span together (TestStripes,
//	    TestStripedTable).
//	G12 Under doc-zigzag tokens of shards differ by at most one in each document, and over all of
//	    them; causal work in a document of L tokens is less than L pairs above the mean
//	    (TestDocZigzagBalance), and these differences do not add up (TestDocZigzagOverDocuments).
//	G13 Under whole-doc a document of at most a fair share of the causal work is on one shard; a
//	    shard has at most the mean and the largest such document, a fair share more where longer
//	    ones are cut (TestWholeDocuments); tokens are even where work allows it
//	    (TestWholeDocTokens).
//	G14 A Dealt layout parts the tokens and is for one sequence and ring (TestDealtRefuses).
//
// # Concurrency
//
// All types are plain values and all functions are pure: any number of goroutines may call them.
package mesh
