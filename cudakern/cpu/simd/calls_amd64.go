//go:build amd64 && !noasm

package simd

// The kernels of an instruction set, by name; see the generated declarations.

func (i ISA) scores(dst, qt, k *float32, stride, n, d, vecs int) {
	if i >= AVX512 {
		scoresAVX512(dst, qt, k, stride, n, d, vecs)
		return
	}
	scoresAVX2(dst, qt, k, stride, n, d, vecs)
}

func (i ISA) weigh(o, p, v *float32, stride, n, dims int, alpha *float32, vecs int) {
	if i >= AVX512 {
		weighAVX512(o, p, v, stride, n, dims, alpha, vecs)
		return
	}
	weighAVX2(o, p, v, stride, n, dims, alpha, vecs)
}

func (i ISA) outer(c, a, b *float32, n, width, fours int) {
	if i >= AVX512 {
		outerAVX512(c, a, b, n, width, fours)
		return
	}
	outerAVX2(c, a, b, n, width, fours)
}

func (i ISA) softmax(s *float32, words *uint64, n int, m, l, alpha *float32, vecs int) {
	if i >= AVX512 {
		softmaxAVX512(s, words, n, m, l, alpha, vecs)
		return
	}
	softmaxAVX2(s, words, n, m, l, alpha, vecs)
}

func (i ISA) slopes(s, dp *float32, words *uint64, n int, lse, delta *float32, scale float32,
	vecs int,
) {
	if i >= AVX512 {
		slopesAVX512(s, dp, words, n, lse, delta, scale, vecs)
		return
	}
	slopesAVX2(s, dp, words, n, lse, delta, scale, vecs)
}

func (i ISA) cap(s *float32, n int, curve *float32) {
	if i >= AVX512 {
		capAVX512(s, n, curve)
		return
	}
	capAVX2(s, n, curve)
}

func (i ISA) bend(s, dp *float32, n int, delta, curve *float32) {
	if i >= AVX512 {
		bendAVX512(s, dp, n, delta, curve)
		return
	}
	bendAVX2(s, dp, n, delta, curve)
}

func (i ISA) pack(dst, src *float32, items *int, rowBytes, width, vecs int) {
	if i >= AVX512 {
		packAVX512(dst, src, items, rowBytes, width, vecs)
		return
	}
	packAVX2(dst, src, items, rowBytes, width, vecs)
}

func (i ISA) packScaled(dst, src *float32, items *int, rowBytes, width, vecs int,
	scale, rest float32,
) {
	if i >= AVX512 {
		packScaledAVX512(dst, src, items, rowBytes, width, vecs, scale, rest)
		return
	}
	packScaledAVX2(dst, src, items, rowBytes, width, vecs, scale, rest)
}

func (i ISA) unpack(dst, src *float32, items *int, rowBytes, width, vecs int) {
	if i >= AVX512 {
		unpackAVX512(dst, src, items, rowBytes, width, vecs)
		return
	}
	unpackAVX2(dst, src, items, rowBytes, width, vecs)
}

func (i ISA) unpackPast(dst, src *float32, items *int, rowBytes, width, vecs int) {
	if i >= AVX512 {
		unpackPastAVX512(dst, src, items, rowBytes, width, vecs)
		return
	}
	unpackPastAVX2(dst, src, items, rowBytes, width, vecs)
}

func (i ISA) touch(src *byte, items *int, n, rowBytes, bytes int) {
	if i >= AVX512 {
		touchAVX512(src, items, n, rowBytes, bytes)
		return
	}
	touchAVX2(src, items, n, rowBytes, bytes)
}

func (i ISA) widen(dst *float32, src *uint16, to, from, rows, n int) {
	if i >= AVX512 {
		widenAVX512(dst, src, to, from, rows, n)
		return
	}
	widenAVX2(dst, src, to, from, rows, n)
}

func (i ISA) narrow(dst *uint16, src *float32, n int) {
	if i >= AVX512 {
		narrowAVX512(dst, src, n)
		return
	}
	narrowAVX2(dst, src, n)
}

func (i ISA) finite(p *float32, stride, rows, width int) bool {
	if i >= AVX512 {
		return finiteAVX512(p, stride, rows, width)
	}
	return finiteAVX2(p, stride, rows, width)
}

func (i ISA) delta(dst, a, b *float32, n, width int) {
	if i >= AVX512 {
		deltaAVX512(dst, a, b, n, width)
		return
	}
	deltaAVX2(dst, a, b, n, width)
}

func (i ISA) scale(dst, src *float32, n int, by float64) {
	if i >= AVX512 {
		scaleAVX512(dst, src, n, by)
		return
	}
	scaleAVX2(dst, src, n, by)
}

func (i ISA) accumulate(dst, src *float32, n int) {
	if i >= AVX512 {
		accumulateAVX512(dst, src, n)
		return
	}
	accumulateAVX2(dst, src, n)
}

func (i ISA) peak(rounds int) {
	if i >= AVX512 {
		peakAVX512(rounds)
		return
	}
	peakAVX2(rounds)
}
