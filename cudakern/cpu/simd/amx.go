package simd

// AMX multiplies tiles: 16 rows of 32 numbers of bf16 by 16 rows of 16 pairs. Its tiles are
// registers; elsewhere in this package a tile is a cut of the keys. It takes what the path of pairs
// has, but for three things. Keys are taken 16 at a time and dims 32, with zeros where a block
// ends; what is multiplied by a panel of weights lies in rows of pairs of keys, a row a dim (turn);
// and rows of weights are as long as two tiles:
//
//	S^T[16 keys][16]  = K[16][32 dims]     . Qt[16 pairs of dims][16]         K where it is
//	O^T[16 dims][16] += V^T[16][32 keys]   . P^T[16 pairs of keys][16]        V turned
//	dV[16 keys][16]  += P[16][32 queries]  . dO[16 pairs of queries][16 dims] P 64 wide
const (
	amxRows  = 16
	stepDims = 32 // numbers of a row of a tile
	wideRow  = 64 // numbers of a row of weights

	// farApart is the bytes between rows from which a tile of them would not stay in the first
	// cache, as they share its sets, and be read anew for each group.
	farApart = 1024
)

// amxSteps is the tiles that w numbers take.
func amxSteps(w int) int { return ceilDiv(w, stepDims) }

// turn sets Scratch.dot.woven [padded(w), tilePairs] to the pairs of n rows, w wide and stride
// bytes apart, with zeros around them: a row for each number of a row. It reports whether all
// numbers are finite.
func (sc *Scratch) turn(from *uint16, stride, n, w int) bool {
	pad, pairs := padded(w), sc.clean
	finite := pairBF16(&pairs[0], from, &sc.count[0], stride, n, w, 4*pad, pairBytes)
	clear(pairs[ceilDiv(n, 2)*pad : tilePairs*pad])
	AVX512.pack(&sc.dot.woven[0], &pairs[0], &sc.count[0], 4*pad, pad, panelVecs)
	return finite
}
