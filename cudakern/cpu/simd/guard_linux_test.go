package simd

import (
	"syscall"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
)

// guards makes arrays whose memory lies between two pages that nobody may touch.
type guards struct {
	t     *rapid.T
	atEnd bool // the array ends where the second one begins, else it begins where the first ends
	maps  [][]byte
}

func (g *guards) close() {
	for _, m := range g.maps {
		if err := syscall.Munmap(m); err != nil {
			g.t.Fatal(err)
		}
	}
}

// guarded is a copy of src between guards.
func guarded[E attn.Elem](g *guards, src []E) []E {
	if len(src) == 0 {
		return nil
	}
	page := syscall.Getpagesize()
	size := len(src) * int(unsafe.Sizeof(src[0]))
	inner := (size + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, inner+2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		g.t.Fatal(err)
	}
	g.maps = append(g.maps, m)
	for _, guard := range [][]byte{m[:page], m[page+inner:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			g.t.Fatal(err)
		}
	}
	at := page
	if g.atEnd {
		at += inner - size
	}
	dst := unsafe.Slice((*E)(unsafe.Pointer(&m[at])), len(src))
	copy(dst, src)
	return dst
}

// TestGuardPages runs all passes on arrays whose neighbours must not be touched, and wants the bits
// of a run on ordinary ones.
func TestGuardPages(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		if !p.isa.dots() { // that would compute a copy of the block
			t.Run("f32", rapid.MakeCheck(func(t *rapid.T) {
				b, do := drawBlock(t, 150)
				guardPages(t, p, b, do)
			}))
		}
		t.Run("bf16", rapid.MakeCheck(func(t *rapid.T) {
			b, do := drawBlock(t, 150)
			guardPages(t, p, narrow(b), narrowed(do))
		}))
	})
}

func guardPages[E attn.Elem](t *rapid.T, p path, b *attn.Block[E], do []E) {
	g := &guards{t: t, atEnd: rapid.Bool().Draw(t, "at the end")}
	defer g.close()
	out, lse := forwardAll(p, b)
	grad := backwardAll(p, b, do, out, lse)

	in := *b
	in.Q, in.K, in.V = guarded(g, b.Q), guarded(g, b.K), guarded(g, b.V)
	s := newState(b)
	s.Acc, s.M, s.L = guarded(g, s.Acc), guarded(g, s.M), guarded(g, s.L)
	fold(p, &in, s, nil)
	Finalize(p.isa, s.Acc, s.M, s, nil, b.DV, 0, len(s.M))
	mustMatch(t, out, s.Acc, lse, s.M)

	grad2 := attn.Grad[E, float32]{
		DO: guarded(g, do), LSE: s.M, Delta: guarded(g, grad.Delta),
		DQ: guarded(g, make([]float32, len(b.Q))), DK: guarded(g, make([]float32, len(b.K))),
		DV: guarded(g, make([]float32, len(b.V))),
	}
	Delta(p.isa, grad2.Delta, grad2.DO, s.Acc, b.DV, 0, len(s.M))
	descend(p, &in, grad2)
	mustMatch(t, grad.DQ, grad2.DQ, grad.DK, grad2.DK, grad.DV, grad2.DV)
	Accumulate(p.isa, grad2.DQ, grad2.DQ, 0, len(grad2.DQ))
}
