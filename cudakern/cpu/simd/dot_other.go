//go:build !amd64 || noasm

package simd

func scoresBF16(dst, qt *float32, k *uint16, stride, n, pairs, vecs int, scale float32) {
	AVX512BF16.absent()
}

func weighBF16(o, p, v *float32, stride, pairs, dims int, alpha *float32, vecs int) {
	AVX512BF16.absent()
}

func outerBF16(c *float32, a *uint16, b *float32, n, width, fours int) { AVX512BF16.absent() }

func softmaxBF16(s *float32, words *uint64, n int, m, l, alpha *float32, vecs int) {
	AVX512BF16.absent()
}

func slopesBF16(s, d *float32, ds *uint16, see *uint64, n int, lse, mean *float32, by float32,
	vecs int,
) {
	AVX512BF16.absent()
}

func pairBF16(dst *float32, src *uint16, items *int, rowBytes, n, width, row, apart int) bool {
	AVX512BF16.absent()
	return false
}
