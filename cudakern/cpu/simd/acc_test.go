package simd
import ("testing";"fmt";"github.com/kvloom/kvloom/attn")
func TestAccTable(t *testing.T) {
	for _, c := range []struct{ n, d, dv int }{{700, 64, 64}, {500, 128, 128}, {300, 256, 40},{400, 33, 97}} {
	  for _, kind := range []string{"causal","full","x40"} {
			b := contiguous(c.n, 2, 2, c.d, c.dv)
			if kind != "causal" { b.Mask = attn.Full(c.n, c.n) }
			do := fillBlock(b, uint64(c.n))
			if kind == "x40" { for i := range b.Q { b.Q[i] *= 40 } }
			want := exact(b, do)
			for _, isa := range []ISA{Portable, AVX2, AVX512} {
				r := (path{isa, &Scratch{}}).run(b, do)
				_, e := r.errors(&want)
				fmt.Printf("%v %s %-9v %.2g\n", c, kind, isa, e)
			}
	}}
}
