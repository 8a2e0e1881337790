package simd

import (
	"math"
	"unsafe"

	"github.com/kvloom/kvloom/attn"
)

// rows are rows of floats where a kernel reads them: row i begins at data[i*step].
type rows struct {
	data  []float32
	step  int
	n, w  int  // rows, floats of a row
	known bool // whether finite has been asked
	ok    bool // all are finite
	clean bool // Scratch.clean holds a copy without what is not finite
}

// at is the first float of row i.
func (r *rows) at(i int) *float32 { return &r.data[i*r.step] }

// stride is the bytes from row to row.
func (r *rows) stride() int { return 4 * r.step }

// floats is src if its elements are float32.
func floats[E attn.Elem](src []E) ([]float32, bool) {
	f, ok := any(src).([]float32)
	return f, ok
}

// load copies n rows of w elements, step elements apart in src, to rows of dst that are pad apart,
// as floats.
func load[E attn.Elem](isa ISA, dst []float32, src []E, n, w, step, pad int) {
	switch s := any(src).(type) {
	case []float32:
		for i := range n {
			copy(dst[i*pad:][:w], s[i*step:][:w])
		}
	case []attn.BF16:
		_, _ = s[(n-1)*step+w-1], dst[(n-1)*pad+w-1]
		isa.widen(&dst[0], (*uint16)(unsafe.Pointer(&s[0])), 4*pad, 2*step, n, w)
	}
}

// loadRow copies the row src to dst, as floats.
func loadRow[E attn.Elem](isa ISA, dst []float32, src []E) {
	load(isa, dst, src, 1, len(src), len(src), len(src))
}

// loadRows is load to buf, in rows of pad floats, with zeros up to minKeys rows. What stands behind
// the w floats of a row does not matter: weigh makes of it rows of the panel that are never stored.
func loadRows[E attn.Elem](isa ISA, buf []float32, src []E, n, w, step, pad int) rows {
	load(isa, buf, src, n, w, step, pad)
	if n < minKeys {
		clear(buf[n*pad : minKeys*pad])
	}
	return rows{data: buf, step: pad, n: n, w: w}
}

// split is x as the sum of two floats: the nearest towards 0, and a rest of the same sign. The rest
// is not 0 where x is not, as an infinity times 0 is NaN.
func split(x float64) (whole, rest float32) {
	whole = float32(x)
	if math.Abs(float64(whole)) > math.Abs(x) {
		whole = math.Nextafter32(whole, 0)
	}
	if rest = float32(x - float64(whole)); rest == 0 {
		rest = whole * 0x1p-48
	}
	return whole, rest
}

// isFinite reports whether x is neither NaN nor an infinity.
func isFinite(x float32) bool { return x-x == 0 }

// finite reports whether all of the rows are finite; it looks once.
func (r *rows) finite(isa ISA) bool {
	if !r.known {
		r.known, r.ok = true, isa.finite(&r.data[0], r.stride(), r.n, r.w)
	}
	return r.ok
}
