package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// expWide are the terms from x^6 down to x^0 of a polynomial for 2^x on [0,1), minimal in relative
// error (2e-9) with 2^0 = 1 kept exact; expNarrow are those on [-1/2,1/2].
var (
	expWide = [...]float32{0.00021612914861179888, 0.0012467846972867846, 0.009675451554358006,
		0.055485282093286514, 0.2402293086051941, 0.6931470632553101, 1}
	expNarrow = [...]float32{0.00015353361959569156, 0.0013398873852565885,
		0.00961843691766262, 0.055503323674201965, 0.24022647738456726, 0.6931471824645996, 1}
)

const (
	leastWide   = -126 // what is below 2^leastWide is flushed to 0
	leastNarrow = -127 // what rounds to leastNarrow, and less, becomes 0
	mostPower   = 128
	// shifter, added to a number up to 2^21 in size, rounds it to an integer; with the bias of the
	// exponent, so that the low bits of the sum are the exponent of that power of 2.
	shifter = 3<<22 + 127
	middle  = -1.5849625 // the power y = -2x log2(e) where tanh x is 1/2
	// Above straight tanh x is x + x (third y^2 + fifth y^4 + seventh y^6), to 9e-10 of it: terms
	// of the polynomial that meets it in Chebyshev's nodes.
	straight = -0.6
	third    = -0.04003771394491196
	fifth    = 0.0019229886820539832
	seventh  = -9.044614853337407e-05
)

// Predicates of VCMPPS that are true where a number is NaN.
const (
	unordered = 3
	notEqual  = 4
	notLess   = 5
)

// less is the predicate of VCMPPS that is false where a number is NaN.
const less = 1

// table lays out the constants: whole vectors, as narrow ones cannot be broadcast by an operand.
func (g *gen) table() {
	g.consts = map[string]operand.Mem{}
	base, size := g.StaticGlobal("consts"+g.isa.name), 0
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	put := func(name string, values ...uint32) {
		at := base
		at.Disp += size
		g.consts[name] = at
		for _, v := range values {
			g.AddDatum(size, operand.U32(v))
			size += 4
		}
	}
	fill := func(name string, x float32) {
		values := make([]uint32, g.isa.width)
		for i := range values {
			values[i] = math.Float32bits(x)
		}
		put(name, values...)
	}
	poly, least := expNarrow, float32(leastNarrow)
	if g.wide() {
		poly, least = expWide, leastWide
	}
	for i, c := range poly {
		fill(term(i), c)
	}
	fill("log2e", math.Log2E)
	fill("-inf", float32(math.Inf(-1)))
	fill("least", least)
	fill("most", mostPower)
	fill("shifter", shifter)
	fill("half", math.Float32frombits(0x7fff))
	fill("one", math.Float32frombits(1))
	fill("quiet", math.Float32frombits(1<<6))
	fill("sign", math.Float32frombits(1<<31))
	fill("unit", 1)
	fill("two", 2)
	fill("middle", middle)
	fill("vanish", leastNarrow)
	fill("straight", straight)
	fill("third", third)
	fill("fifth", fifth)
	fill("seventh", seventh)
	if g.wide() {
		for i, c := range expNarrow {
			fill(nearTerm(i), c)
		}
		return
	}
	for i := range expNarrow {
		g.consts[nearTerm(i)] = g.consts[term(i)]
	}
	bits, window := make([]uint32, panelVecs*g.isa.width), make([]uint32, 2*g.isa.width)
	for i := range bits {
		bits[i] = 1 << i
	}
	for i := range g.isa.width {
		window[i] = math.MaxUint32
	}
	put("lane bits", bits...)
	put("window", window...)
}

// term names coefficient i of the polynomial.
func term(i int) string { return string(rune('a' + i)) }

// constant is a vector of a constant.
func (g *gen) constant(name string) reg.VecVirtual {
	v := g.vec()
	g.VMOVUPS(g.consts[name], v)
	return v
}

// nearTerm names coefficient i of the polynomial around 0, of vectors of any width.
func nearTerm(i int) string { return "near " + term(i) }
