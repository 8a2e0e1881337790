package plan

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

func TestFieldAgainstBig(t *testing.T) {
	p := big.NewInt(fieldP)
	rapid.Check(t, func(t *rapid.T) {
		residue := rapid.OneOf(rapid.Uint64Range(0, fieldP-1),
			rapid.Uint64Range(fieldP-4, fieldP-1))
		a, b := residue.Draw(t, "a"), residue.Draw(t, "b")
		x, y := new(big.Int).SetUint64(a), new(big.Int).SetUint64(b)
		check := func(what string, got uint64, want *big.Int) {
			if want.Mod(want, p); got != want.Uint64() {
				t.Fatalf("%s of %d, %d: %d, want %v", what, a, b, got, want)
			}
		}
		check("sum", fadd(a, b), new(big.Int).Add(x, y))
		check("difference", fsub(a, b), new(big.Int).Sub(x, y))
		check("product", fmul(a, b), new(big.Int).Mul(x, y))
		check("power", fpow(a, b), new(big.Int).Exp(x, y, p))
		if a != 0 && fmul(a, finv(a)) != 1 {
			t.Fatalf("1/%d = %d", a, finv(a))
		}
	})
}

func TestPowersReachAllDigits(t *testing.T) {
	const most = 1<<23 + 5
	p := newPowers(12345, most)
	for _, e := range []int{0, 1, 2047, 2048, 4095, 1<<22 - 1, 1 << 22, 1<<22 + 2049, most} {
		if got, want := p.at(e), fpow(12345, uint64(e)); got != want {
			t.Errorf("12345^%d = %d, want %d", e, got, want)
		}
	}
}

// drawSpan draws a span inside [0,n).
func drawSpan(t *rapid.T, n int, label string) mesh.Span {
	s := rapid.IntRange(0, n-1).Draw(t, label+" start")
	d := rapid.IntRange(1, 5).Draw(t, label+" stride")
	c := rapid.IntRange(1, (n-1-s)/d+1).Draw(t, label+" count")
	return mesh.Span{Start: s, Stride: d, Count: c}
}

// drawSet draws a set of strided spans, cut out of a random colouring of residues, so that spans
// interleave.
func drawSet(t *rapid.T, n int, label string) mesh.Set {
	var set mesh.Set
	taken := map[int]bool{}
	for range rapid.IntRange(0, 4).Draw(t, label) {
		p := drawSpan(t, n, label)
		free := true
		for i := range p.Count {
			free = free && !taken[p.At(i)]
		}
		if free && (len(set) == 0 || set[len(set)-1].Start < p.Start) {
			set = append(set, p)
			for i := range p.Count {
				taken[p.At(i)] = true
			}
		}
	}
	return set
}

func drawSlice(t *rapid.T, n int) attn.Slice {
	q0, k0 := rapid.IntRange(0, n).Draw(t, "q0"), rapid.IntRange(0, n).Draw(t, "k0")
	s := attn.Slice{Q0: q0, Q1: rapid.IntRange(q0, n).Draw(t, "q1"), K0: k0,
		K1: rapid.IntRange(k0, n).Draw(t, "k1"), Lo: -attn.Unbounded, Hi: attn.Unbounded}
	if rapid.Bool().Draw(t, "low") {
		s.Lo = rapid.IntRange(-n, n).Draw(t, "lo")
	}
	if rapid.Bool().Draw(t, "high") {
		s.Hi = rapid.IntRange(max(s.Lo, -n), 2*n).Draw(t, "hi")
	}
	return s
}

// bruteTile counts x^q y^k over pairs one by one, slice by slice.
func bruteTile(f *field, m attn.Mask, qs, ks []int) uint64 {
	sum := uint64(0)
	for _, s := range m {
		for _, q := range qs {
			for _, k := range ks {
				if lo, hi := s.KeyRange(q); lo <= k && k < hi {
					sum = fadd(sum, fmul(f.x.at(q), f.y.at(k)))
				}
			}
		}
	}
	return sum
}

func upTo(n int) []int { return mesh.Set{allTokens(n)}.Positions() }

func TestTilesAgainstPairsOneByOne(t *testing.T) {
	const n = 40
	rapid.Check(t, func(t *rapid.T) {
		f := newField(rapid.Uint64().Draw(t, "seed"), n, 3)
		var m attn.Mask
		for range rapid.IntRange(1, 4).Draw(t, "slices") {
			m = append(m, drawSlice(t, n))
		}
		h := &Header{Sets: []mesh.Set{nil, drawSet(t, n, "q"), drawSet(t, n, "k")}}
		sets := newSets(f, h, setHashes(h))
		x := newMaskIndex(m).within(rect{0, n, 0, n})
		qs, ks := h.Sets[1].Positions(), h.Sets[2].Positions()
		if got, want := f.tile(x, &sets[1], &sets[2]), bruteTile(f, m, qs, ks); got != want {
			t.Fatalf("tile %v x %v of %v: %d, want %d", h.Sets[1], h.Sets[2], m, got, want)
		}
		if got, want := f.total(x), bruteTile(f, m, upTo(n), upTo(n)); got != want {
			t.Fatalf("total of %v: %d, want %d", m, got, want)
		}
		r := rect{rapid.IntRange(0, n/2).Draw(t, "r q"), n - 3, 2,
			rapid.IntRange(2, n).Draw(t, "r k")}
		inside := bruteTile(f, m, upTo(n)[r.q0:r.q1], upTo(n)[r.k0:r.k1])
		if got := f.total(x.within(r)); got != inside {
			t.Fatalf("total of %v in %v: %d, want %d", m, r, got, inside)
		}
	})
}

// Sums must stay right where a series has no closed form: y = 1, x = 1, xy = 1.
func TestTilesAtPointsOfUnity(t *testing.T) {
	for _, c := range [][2]uint64{{1, 1}, {1, 7}, {7, 1}, {7, finv(7)}} {
		f := newField(1, 40, 1)
		f.x, f.y = newPowers(c[0], 82), newPowers(c[1], 82)
		m := attn.Mask{{Q1: 40, K1: 40, Lo: -5, Hi: 3}, {Q0: 7, Q1: 9, K1: 40, Lo: 4, Hi: 30}}
		if got, want := f.total(newMaskIndex(m)), bruteTile(f, m, upTo(40), upTo(40)); got != want {
			t.Errorf("x=%d y=%d: total %d, want %d", c[0], c[1], got, want)
		}
	}
}

func TestHeadSums(t *testing.T) {
	f := newField(9, 4, 5)
	z := fsub(f.z[2], f.z[1])
	want := fadd(fmul(z, z), fmul(fmul(z, z), z))
	if got := f.heads(mesh.Heads{Lo: 2, Hi: 4}); got != want {
		t.Errorf("heads 2:4 sum to %d, want z^2+z^3 = %d", got, want)
	}
}

// A long sequence must not overflow the tables, and cuts of it must add up.
func TestLongSequenceAddsUp(t *testing.T) {
	const n = 1 << 26
	f := newField(3, n, 1)
	x := newMaskIndex(attn.Causal(n, n))
	sum := uint64(0)
	for a := range 3 {
		for b := range 3 {
			lo, hi := mesh.CutEven(n, 3, a)
			k0, k1 := mesh.CutEven(n, 3, b)
			sum = fadd(sum, f.total(x.within(rect{lo, hi, k0, k1})))
		}
	}
	if want := f.total(x); sum != want {
		t.Errorf("nine parts of a causal mask of %d tokens add up to %d, want %d", n, sum, want)
	}
}
