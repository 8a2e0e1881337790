package main

import (
	"encoding/binary"
	"fmt"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tileEncoding is what differs in the bytes of the instructions of tiles, all in VEX, 0F 38.
type tileEncoding struct {
	prefix, opcode uint8 // prefix: 0 for none, 1 for 66, 2 for F3, 3 for F2
}

// tileEncodings of instructions whose operands are tiles (numbers) and at most one place in memory.
// The last tile is the destination, or the source of a store.
func tileEncodings() map[string]tileEncoding {
	return map[string]tileEncoding{
		"LDTILECFG":   {0, 0x49}, // mem
		"TILERELEASE": {0, 0x49},
		"TILEZERO":    {3, 0x49}, // tile
		"TILELOADD":   {3, 0x4b}, // mem, tile
		"TILESTORED":  {2, 0x4b}, // tile, mem
		"TDPBF16PS":   {2, 0x5c}, // b, a, tile
	}
}

// tile adds an instruction of tiles.
func (g *gen) tile(name string, ops ...operand.Op) {
	g.Instruction(&ir.Instruction{
		Opcode: name, Operands: ops, Inputs: append([]operand.Op(nil), ops...),
		ISA: []string{"AMX_BF16", "AMX_TILE"},
	})
}

// tmm is tile register i.
func tmm(i int) operand.Op { return operand.U8(i) }

// rowsAt is 16 rows of a tile in memory, stride bytes apart.
func rowsAt(base, stride reg.Register, disp int) operand.Mem {
	return operand.Mem{Base: base, Index: stride, Scale: 1, Disp: disp}
}

// bytes is the instruction in VEX of three bytes.
func (e tileEncoding) bytes(i *ir.Instruction) ([]byte, error) {
	var tiles []uint8
	var mem *operand.Mem
	for j, op := range i.Operands {
		switch x := op.(type) {
		case operand.U8:
			tiles = append(tiles, uint8(x))
		case operand.Mem:
			mem = &x
		default:
			return nil, fmt.Errorf("operand %d, %s, is no tile and not in memory", j, op.Asm())
		}
	}
	x, b, v, rm := uint8(1), uint8(1), uint8(15), []byte{3 << 6}
	if mem != nil {
		var err error
		if x, b, rm, err = memory(mem); err != nil {
			return nil, err
		}
	}
	switch len(tiles) {
	case 1:
		rm[0] |= tiles[0] << 3
	case 3:
		v = ^tiles[0] & 15
		rm[0] |= tiles[2]<<3 | tiles[1]
	}
	return append([]byte{0xc4, 1<<7 | x<<6 | b<<5 | 2, v<<3 | e.prefix, e.opcode}, rm...), nil
}

// memory is ModRM, SIB and displacement of a place in memory, and the inverses of the high bits of
// index and base.
func memory(m *operand.Mem) (x, b uint8, code []byte, err error) {
	base, ok := m.Base.(reg.Physical)
	if !ok {
		return 0, 0, nil, fmt.Errorf("base %s is no register", m.Asm())
	}
	at, index := uint8(base.PhysicalIndex()), uint8(4) // no index
	if m.Index != nil {
		i, ok := m.Index.(reg.Physical)
		if !ok || m.Scale != 1 {
			return 0, 0, nil, fmt.Errorf("index %s is no register, times 1", m.Asm())
		}
		index = uint8(i.PhysicalIndex())
	}
	sib := index&7<<3 | at&7
	switch {
	case m.Disp == 0 && at&7 != 5:
		code = []byte{4, sib}
	case m.Disp == int(int8(m.Disp)):
		code = []byte{1<<6 | 4, sib, uint8(m.Disp)}
	default:
		code = binary.LittleEndian.AppendUint32([]byte{2<<6 | 4, sib}, uint32(m.Disp))
	}
	return not(index, 3), not(at, 3), code, nil
}
