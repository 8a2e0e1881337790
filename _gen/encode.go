package main

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Neither avo nor the assembler knows the instructions of AVX512_BF16 and of tiles. They are written
// as bytes (Intel, Software Developer's Manual, volume 2, 2.3, 2.7 and the instructions), each one
// named in a comment before them: objdump -d -w names the same.

// encoding is what differs in the bytes of the instructions of AVX512_BF16.
type encoding struct {
	prefix, opcode uint8 // prefix: 2 for F3, 3 for F2
	sum            bool  // the destination is an operand too
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

// encode puts bytes in place of the instructions that unknown and tile added, when they have
// registers.
func encode(f *ir.File) error {
	for _, fn := range f.Functions() {
		var nodes []ir.Node
		for _, n := range fn.Nodes {
			made, err := written(n)
			if err != nil {
				return fmt.Errorf("%s: %w", fn.Name, err)
			}
			nodes = append(nodes, made...)
		}
		fn.Nodes = nodes
	}
	return nil
}

// written is n, or in its place a comment and the bytes that it stands for.
func written(n ir.Node) ([]ir.Node, error) {
	i, ok := n.(*ir.Instruction)
	if !ok {
		return []ir.Node{n}, nil
	}
	var code []byte
	var err error
	if e, ok := encodings()[i.Opcode]; ok {
		code, err = e.bytes(i)
	} else if e, ok := tileEncodings()[i.Opcode]; ok {
		code, err = e.bytes(i)
	} else {
		return []ir.Node{n}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i.Opcode, err)
	}
	var names []string
	for _, op := range i.Operands {
		if tile, ok := op.(operand.U8); ok {
			names = append(names, fmt.Sprintf("TMM%d", tile))
			continue
		}
		names = append(names, op.Asm())
	}
	text := strings.TrimSpace(i.Opcode + " " + strings.Join(names, ", "))
	return append([]ir.Node{ir.NewComment(text)}, data(code)...), nil
}

// bytes is the instruction on 512-bit registers in EVEX, whose high bits of registers are inverted.
func (e encoding) bytes(i *ir.Instruction) ([]byte, error) {
	var r [3]uint8 // b, a, dst
	for j, op := range i.Operands {
		p, ok := op.(reg.Physical)
		if !ok {
			return nil, fmt.Errorf("operand %d, %s, is no register", j, op.Asm())
		}
		r[j] = uint8(p.PhysicalIndex())
	}
	b, a, dst := r[0], r[1], r[2]
	p0 := 2 | not(dst, 3)<<7 | not(b, 4)<<6 | not(b, 3)<<5 | not(dst, 4)<<4
	p1 := e.prefix | 1<<2 | (^a&15)<<3
	p2 := 2<<5 | not(a, 4)<<3
	return []byte{0x62, p0, p1, p2, e.opcode, 3<<6 | dst&7<<3 | b&7}, nil
}

// not is the inverse of bit n of x.
func not(x uint8, n int) uint8 { return x>>n&1 ^ 1 }

// data is code as directives for the assembler.
func data(code []byte) (nodes []ir.Node) {
	for len(code) > 0 {
		i, n := &ir.Instruction{}, 0
		switch {
		case len(code) >= 4:
			n, i.Opcode = 4, "LONG"
			i.Operands = []operand.Op{operand.U32(binary.LittleEndian.Uint32(code))}
		case len(code) >= 2:
			n, i.Opcode = 2, "WORD"
			i.Operands = []operand.Op{operand.U16(binary.LittleEndian.Uint16(code))}
		default:
			n, i.Opcode = 1, "BYTE"
			i.Operands = []operand.Op{operand.U8(code[0])}
		}
		nodes, code = append(nodes, i), code[n:]
	}
	return nodes
}
