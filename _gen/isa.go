package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is what the kernels of one instruction set differ in.
type isa struct {
	name  string
	width int // float32 of a vector
	rows  int // rows of a block of accumulators that is 3 vectors wide
	outer []int
}

// outer[n-1] is the rows of a block that is n vectors wide: as many as the registers hold.
var (
	avx512 = isa{name: "AVX512", width: 16, rows: 8, outer: []int{12, 12, 8, 6}}
	avx2   = isa{name: "AVX2", width: 8, rows: 4, outer: []int{12, 6, 4}}
)

// panelVecs is the vectors of a panel row: 48 or 24 queries side by side.
const panelVecs = 3

// vecBytes is the bytes of a vector.
func (s isa) vecBytes() int { return 4 * s.width }

// rowBytes is the bytes of a panel row.
func (s isa) rowBytes() int { return panelVecs * s.vecBytes() }

// gen builds one file.
type gen struct {
	*build.Context
	isa    isa
	labels int
	consts map[string]operand.Mem
	used   int // vectors of a panel row that a softmax or slopes is for
}

// kernels generates all kernels of one instruction set.
func (g *gen) kernels(s isa) {
	g.isa = s
	g.table()
	g.scores()
	g.weigh()
	g.outer()
	g.softmax()
	g.slopes()
	g.cap()
	g.bend()
	g.pack()
	g.unpack()
	g.touch()
	g.widen()
	g.narrow()
	g.finite()
	g.delta()
	g.scale()
	g.accumulate()
	g.peak()
}

// begin starts function name<ISA>.
func (g *gen) begin(name, signature string, doc ...string) {
	name += g.isa.name
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.Pragma("noescape")
	g.SignatureExpr(signature)
	doc[0] = name + " " + doc[0]
	g.Doc(doc...)
}

// end returns from the function.
func (g *gen) end() {
	g.VZEROUPPER()
	g.RET()
}

// arg loads an argument of 8 bytes.
func (g *gen) arg(name string) reg.GPVirtual {
	r := g.GP64()
	g.Load(g.Param(name), r)
	return r
}

// label makes a name that no other label of the file has.
func (g *gen) label(name string) string {
	g.labels++
	return fmt.Sprintf("%s%d", name, g.labels)
}

// wide reports whether vectors have mask registers.
func (g *gen) wide() bool { return g.isa.width == 16 }

// vec is a new vector register.
func (g *gen) vec() reg.VecVirtual {
	if g.wide() {
		return g.ZMM()
	}
	return g.YMM()
}

// vecs is n new vector registers.
func (g *gen) vecs(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = g.vec()
	}
	return v
}

// zeros is n new vector registers of 0.
func (g *gen) zeros(n int) []reg.VecVirtual {
	v := g.vecs(n)
	for i := range v {
		g.VXORPS(v[i], v[i], v[i])
	}
	return v
}

// at is the memory at base+disp.
func at(base reg.Register, disp int) operand.Mem { return operand.Mem{Base: base, Disp: disp} }

// loop runs body while the counter n, at least 1 at first, has not fallen to 0; body is one step.
func (g *gen) loop(n reg.GPVirtual, body func()) {
	top := g.label("loop")
	g.Label(top)
	body()
	g.DECQ(n)
	g.JNZ(operand.LabelRef(top))
}

// each runs body n times, by steps of unroll while that many are left; body gets the number of
// steps that it stands for. n is used up and may be 0.
func (g *gen) each(n reg.GPVirtual, unroll int, body func(steps int)) {
	many, rest, one, done := g.label("many"), g.label("rest"), g.label("one"), g.label("done")
	g.SUBQ(operand.I32(unroll), n)
	g.JL(operand.LabelRef(rest))
	g.Label(many)
	body(unroll)
	g.SUBQ(operand.I32(unroll), n)
	g.JGE(operand.LabelRef(many))
	g.Label(rest)
	g.ADDQ(operand.I32(unroll), n)
	g.JZ(operand.LabelRef(done))
	g.Label(one)
	body(1)
	g.DECQ(n)
	g.JNZ(operand.LabelRef(one))
	g.Label(done)
}

// multiples gives registers with 3, 5 and 7 times stride.
func (g *gen) multiples(stride reg.GPVirtual) (s3, s5, s7 reg.GPVirtual) {
	s3, s5, s7 = g.GP64(), g.GP64(), g.GP64()
	g.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, s3)
	g.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 4}, s5)
	g.LEAQ(operand.Mem{Base: s3, Index: stride, Scale: 4}, s7)
	return s3, s5, s7
}

// rowAt addresses row r, 0 to 7, of rows that are stride apart.
func rowAt(base, stride, s3, s5, s7 reg.GPVirtual, r, disp int) operand.Mem {
	m := operand.Mem{Base: base, Disp: disp}
	switch r {
	case 1, 2, 4:
		m.Index, m.Scale = stride, uint8(r)
	case 3:
		m.Index, m.Scale = s3, 1
	case 6:
		m.Index, m.Scale = s3, 2
	case 5:
		m.Index, m.Scale = s5, 1
	case 7:
		m.Index, m.Scale = s7, 1
	}
	return m
}
