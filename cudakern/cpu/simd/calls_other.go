//go:build !amd64 || noasm

package simd

// Without assembly there are no kernels: Supported says so, and what calls one nevertheless ends
// here.
const noKernels = "simd: kernels are called that this build does not have: ask Supported first"

// absent ends the program.
func (i ISA) absent() {
	if Supported(i) != nil {
		panic(noKernels)
	}
}

func (i ISA) scores(dst, qt, k *float32, stride, n, d, vecs int) {
	i.absent()
}

func (i ISA) weigh(o, p, v *float32, stride, n, dims int, alpha *float32, vecs int) {
	i.absent()
}

func (i ISA) outer(c, a, b *float32, n, width, fours int) {
	i.absent()
}

func (i ISA) softmax(s *float32, words *uint64, n int, m, l, alpha *float32, vecs int) {
	i.absent()
}

func (i ISA) slopes(s, dp *float32, words *uint64, n int, lse, delta *float32, scale float32,
	vecs int,
) {
	i.absent()
}

func (i ISA) cap(s *float32, n int, curve *float32) {
	i.absent()
}

func (i ISA) bend(s, dp *float32, n int, delta, curve *float32) {
	i.absent()
}

func (i ISA) pack(dst, src *float32, items *int, rowBytes, width, vecs int) {
	i.absent()
}

func (i ISA) packScaled(dst, src *float32, items *int, rowBytes, width, vecs int,
	scale, rest float32,
) {
	i.absent()
}

func (i ISA) unpack(dst, src *float32, items *int, rowBytes, width, vecs int) {
	i.absent()
}

func (i ISA) unpackPast(dst, src *float32, items *int, rowBytes, width, vecs int) {
	i.absent()
}

func (i ISA) touch(src *byte, items *int, n, rowBytes, bytes int) {
	i.absent()
}

func (i ISA) widen(dst *float32, src *uint16, to, from, rows, n int) {
	i.absent()
}

func (i ISA) narrow(dst *uint16, src *float32, n int) {
	i.absent()
}

func (i ISA) finite(p *float32, stride, rows, width int) bool {
	i.absent()
	return false
}

func (i ISA) delta(dst, a, b *float32, n, width int) {
	i.absent()
}

func (i ISA) scale(dst, src *float32, n int, by float64) {
	i.absent()
}

func (i ISA) accumulate(dst, src *float32, n int) {
	i.absent()
}

func (i ISA) peak(rounds int) {
	i.absent()
}
