package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// encoding is what differs in the bytes of the instructions of AVX512_BF16, which neither avo nor
// the assembler knows (Intel, Software Developer's Manual, volume 2, 2.7 and the instructions). Each
// one is named in a comment before its bytes: objdump -d -w names the same.
type encoding struct {
	prefix, opcode uint32 // prefix: 2 for F3, 3 for F2
	sum            bool   // the destination is an operand too
}

// encodings of dst, a, b.
func encodings() map[string]encoding {
	return map[string]encoding{
		"VDPBF16PS":      {prefix: 2, opcode: 0x52, sum: true},
		"VCVTNE2PS2BF16": {prefix: 3, opcode: 0x72},
	}
}

// dot adds to acc, float by float, the two products of pairs of a and b.
func (g *gen) dot(b, a, acc reg.Register) { g.unknown("VDPBF16PS", b, a, acc) }

// round sets dst to a and b rounded to bf16, a in the low half.
func (g *gen) round(a, b, dst reg.Register) { g.unknown("VCVTNE2PS2BF16", a, b, dst) }

// unknown adds an instruction that encode will write as bytes, its operands in the order of the
// assembler, with what avo needs to give it registers.
func (g *gen) unknown(name string, b, a, dst reg.Register) {
	in := []operand.Op{b, a}
	if encodings()[name].sum {
		in = append(in, dst)
	}
	g.Instruction(&ir.Instruction{
		Opcode: name, Operands: []operand.Op{b, a, dst}, Inputs: in, Outputs: []operand.Op{dst},
		ISA: []string{"AVX512_BF16"},
	})
}

// encode puts bytes in place of the instructions that unknown added, when they have registers.
func encode(f *ir.File) error {
	for _, fn := range f.Functions() {
		var nodes []ir.Node
		for _, n := range fn.Nodes {
			i, ok := n.(*ir.Instruction)
			if !ok {
				nodes = append(nodes, n)
				continue
			}
			e, ok := encodings()[i.Opcode]
			if !ok {
				nodes = append(nodes, n)
				continue
			}
			made, err := e.bytes(i)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", fn.Name, i.Opcode, err)
			}
			nodes = append(nodes, made...)
		}
		fn.Nodes = nodes
	}
	return nil
}

// bytes is the instruction on 512-bit registers in EVEX, whose high bits of registers are inverted.
func (e encoding) bytes(i *ir.Instruction) ([]ir.Node, error) {
	var r [3]uint32 // b, a, dst
	var names [3]string
	for j, op := range i.Operands {
		p, ok := op.(reg.Physical)
		if !ok {
			return nil, fmt.Errorf("operand %d, %s, is no register", j, op.Asm())
		}
		r[j], names[j] = uint32(p.PhysicalIndex()), op.Asm()
	}
	b, a, dst := r[0], r[1], r[2]
	bit := func(x uint32, n int) uint32 { return x >> n & 1 }
	p0 := 2 | (1-bit(dst, 3))<<7 | (1-bit(b, 4))<<6 | (1-bit(b, 3))<<5 | (1-bit(dst, 4))<<4
	p1 := e.prefix | 1<<2 | (^a&15)<<3
	p2 := uint32(2)<<5 | (1-bit(a, 4))<<3
	rm := 3<<6 | dst&7<<3 | b&7
	return []ir.Node{
		ir.NewComment(fmt.Sprintf("%s %s, %s, %s", i.Opcode, names[0], names[1], names[2])),
		data("LONG", 0x62|p0<<8|p1<<16|p2<<24, 8), data("WORD", e.opcode|rm<<8, 4),
	}, nil
}

// data is bytes of code, so many hexadecimal digits.
func data(directive string, bytes uint32, digits int) ir.Node {
	var op operand.Op = operand.U32(bytes)
	if digits == 4 {
		op = operand.U16(bytes)
	}
	return &ir.Instruction{Opcode: directive, Operands: []operand.Op{op}}
}
