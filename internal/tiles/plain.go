package tiles

import (
	"encoding/binary"
	"math/bits"
)

// Status flags of an addition or subtraction: carry, parity, auxiliary carry, zero, sign, overflow.
const (
	flagCF = 1 << 0
	flagPF = 1 << 2
	flagAF = 1 << 4
	flagZF = 1 << 6
	flagSF = 1 << 7
	flagOF = 1 << 11

	flagsOfSum = flagCF | flagPF | flagAF | flagZF | flagSF | flagOF
)

// plain executes the instruction at pc if it is one of the few that stand between those of tiles in
// a loop, and says where the next one is: on 64-bit registers MOV (also from memory), LEA, ADD,
// SUB, CMP, INC, DEC, and jumps to an offset. It saves a stop of the thread.
func plain(code []byte, pc uint64, regs *[16]uint64, flags *uint64, mem Memory) (
	uint64, bool,
) {
	if len(code) < 7 { // what is looked at, but for addresses, which are checked
		return 0, false
	}
	near, far := uint64(int8(code[1])), func(at int) uint64 { return imm32(code[at:]) }
	switch op := code[0]; {
	case op>>4 == 0x7:
		return jump(holds(op&15, *flags), pc+2, near)
	case op == 0xEB:
		return jump(true, pc+2, near)
	case op == 0xE9:
		return jump(true, pc+5, far(1))
	case op == 0x0F && code[1]>>4 == 0x8:
		return jump(holds(code[1]&15, *flags), pc+6, far(2))
	case op>>3 == 0x48>>3: // REX.W
		n, ok := wideOp(code, pc, regs, flags, mem)
		return pc + uint64(n), ok
	}
	return 0, false
}

func jump(taken bool, next, offset uint64) (uint64, bool) {
	if taken {
		next += offset
	}
	return next, true
}

func imm32(b []byte) uint64 { return uint64(int32(binary.LittleEndian.Uint32(b))) }

// holds evaluates the condition of a jump.
func holds(cc byte, flags uint64) bool {
	cf, zf, sf, of := flags&flagCF != 0, flags&flagZF != 0, flags&flagSF != 0, flags&flagOF != 0
	is := [8]bool{of, cf, zf, cf || zf, sf, flags&flagPF != 0, sf != of, zf || sf != of}[cc>>1]
	return is != (cc&1 == 1)
}

// wideOp is plain for what begins with REX.W; it says how long the instruction is.
func wideOp(code []byte, pc uint64, regs *[16]uint64, flags *uint64, mem Memory) (int, bool) {
	rex, op := int(code[0]), code[1]
	extR, extX, extB := rex<<1&8, rex<<2&8, rex<<3&8
	mod, reg, rm := code[2]>>6, int(code[2]>>3&7)|extR, int(code[2]&7)|extB
	if (op == 0x8D || op == 0x8B) && mod != 3 { // LEA, MOV
		var a address
		n, ok := a.decode(code[2:], extX, extB)
		start, index := a.start(regs, pc+2+uint64(n))
		value := start + index
		if op == 0x8B && ok {
			var b [8]byte
			moved, err := access(mem.Read, []Span{{value, b[:]}})
			ok, value = err == nil && moved == len(b), binary.LittleEndian.Uint64(b[:])
		}
		if ok {
			regs[reg] = value
		}
		return 2 + n, ok
	}
	if op&0xC7 == 0x05 { // rax and 32 bits
		return 6, sum(op>>3, &regs[0], imm32(code[2:]), flags)
	}
	if mod != 3 {
		return 0, false
	}
	switch op {
	case 0x89:
		regs[rm] = regs[reg]
	case 0x8B:
		regs[reg] = regs[rm]
	case 0xC7:
		if reg&7 != 0 {
			return 0, false
		}
		regs[rm] = imm32(code[3:])
		return 7, true
	case 0x01, 0x29, 0x39:
		return 3, sum(op>>3, &regs[rm], regs[reg], flags)
	case 0x03, 0x2B, 0x3B:
		return 3, sum(op>>3, &regs[reg], regs[rm], flags)
	case 0x83:
		return 4, sum(byte(reg&7), &regs[rm], uint64(int8(code[3])), flags)
	case 0x81:
		return 7, sum(byte(reg&7), &regs[rm], imm32(code[3:]), flags)
	case 0xFF: // INC, DEC: as by 1, but CF stays
		carry := *flags & flagCF
		ok := reg&7 < 2 && sum(byte(reg&7*5), &regs[rm], 1, flags)
		*flags = *flags&^flagCF | carry
		return 3, ok
	default:
		return 0, false
	}
	return 3, true
}

// sum does ADD (0), SUB (5) or CMP (7) on x, and its flags.
func sum(op byte, x *uint64, y uint64, flags *uint64) bool {
	old := *x
	var res, carry, over uint64 // bit 63 of over: overflow
	switch op {
	case 0:
		res, carry = bits.Add64(old, y, 0)
		over = (old ^ res) & (y ^ res)
	case 5, 7:
		res, carry = bits.Sub64(old, y, 0)
		over = (old ^ y) & (old ^ res)
	default:
		return false
	}
	f := *flags&^flagsOfSum | carry | (old^y^res)&flagAF | over>>63*flagOF | res>>63*flagSF
	if res == 0 {
		f |= flagZF
	}
	if bits.OnesCount8(uint8(res))%2 == 0 {
		f |= flagPF
	}
	if *flags = f; op != 7 {
		*x = res
	}
	return true
}
