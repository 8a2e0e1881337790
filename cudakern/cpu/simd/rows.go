package simd

import (
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

// load copies the row src to dst, as floats.
func load[E attn.Elem](isa ISA, dst []float32, src []E) {
	switch s := any(src).(type) {
	case []float32:
		copy(dst, s)
	case []attn.BF16:
		isa.widen(&dst[0], (*uint16)(unsafe.Pointer(&s[0])), len(s))
	}
}

// loadRows copies n rows of w elements, step elements apart, to buf, padded with zeros to rows of
// pad floats, and to minKeys rows.
func loadRows[E attn.Elem](isa ISA, buf []float32, src []E, n, w, step, pad int) rows {
	for i := range n {
		row := buf[i*pad : (i+1)*pad]
		load(isa, row[:w], src[i*step:][:w])
		clear(row[w:])
	}
	if n < minKeys {
		clear(buf[n*pad : minKeys*pad])
	}
	return rows{data: buf, step: pad, n: n, w: w}
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
