package tiles

import "encoding/binary"

// Op is an instruction of AMX-TILE or AMX-BF16.
type Op uint8

// The instructions that are decoded and executed.
const (
	LDTILECFG Op = iota
	STTILECFG
	TILERELEASE
	TILEZERO
	TILELOADD
	TILELOADDT1
	TILESTORED
	TDPBF16PS
	numOps
)

var opNames = [numOps]string{"LDTILECFG", "STTILECFG", "TILERELEASE", "TILEZERO", "TILELOADD",
	"TILELOADDT1", "TILESTORED", "TDPBF16PS"}

// String is the name in Intel's manual.
func (o Op) String() string { return opNames[o] }

// Registers that an address may have beside the 16 general ones.
const (
	none = -1
	rip  = 16
)

// Inst is a decoded instruction.
type Inst struct {
	Op  Op
	Len int // bytes

	// Dst is the tile that is written, of TILESTORED the one that is stored. Src1 and Src2 are the
	// factors of TDPBF16PS: rows of pairs along k, and for each k a row of pairs along n.
	Dst, Src1, Src2 int

	address
}

// address is base + index<<scale + disp. For a tile, index<<scale is the distance of its rows.
type address struct {
	base, index int // numbers of registers as encoded: rax, rcx, rdx, rbx, rsp, ...
	scale       uint
	disp        int64
}

// Decode reads the instruction at the beginning of code. It says false to all that is not one of
// Op's, and to encodings of them that a processor refuses as well (#UD): tiles above 7, an unused
// VEX.vvvv that is not 1111, VEX.L or W set, a tile in memory without SIB byte. Prefixes before VEX
// (an address size, FS and GS) are not known.
func Decode(code []byte) (Inst, bool) {
	if len(code) < 5 || code[0] != 0xC4 || code[1]&0x1F != 2 || code[2]&0x84 != 0 {
		return Inst{}, false
	}
	// VEX has R, X, B and vvvv inverted.
	extR, extX, extB := int(^code[1]>>4&8), int(^code[1]>>3&8), int(^code[1]>>2&8)
	vvvv, prefix := int(^code[2]>>3&15), code[2]&3
	mod, reg, rm := code[4]>>6, int(code[4]>>3&7), int(code[4]&7)
	const np, p66, pF3, pF2 = 0, 1, 2, 3
	in := Inst{Len: 5, address: address{base: none, index: none}}

	if code[3] == 0x5C {
		in.Op, in.Dst, in.Src1, in.Src2 = TDPBF16PS, reg, rm, vvvv
		return in, prefix == pF3 && mod == 3 && extR == 0 && extB == 0 && vvvv < 8
	}
	if vvvv != 0 {
		return Inst{}, false
	}
	switch op := code[3]; {
	case op == 0x49 && mod == 3 && prefix == np && reg == 0 && rm == 0:
		in.Op = TILERELEASE
		return in, true
	case op == 0x49 && mod == 3 && prefix == pF2 && rm == 0:
		in.Op, in.Dst = TILEZERO, reg
		return in, extR == 0
	case op == 0x49 && mod != 3 && prefix == np && reg == 0:
		in.Op = LDTILECFG
	case op == 0x49 && mod != 3 && prefix == p66 && reg == 0:
		in.Op = STTILECFG
	case op == 0x4B && mod != 3 && prefix != np && rm == 4 && extR == 0:
		in.Op, in.Dst = [4]Op{p66: TILELOADDT1, pF3: TILESTORED, pF2: TILELOADD}[prefix], reg
	default:
		return Inst{}, false
	}
	n, ok := in.address.decode(code[4:], extX, extB)
	in.Len = 4 + n
	return in, ok
}

// decode reads ModRM, SIB and displacement, and says how many bytes they are.
func (a *address) decode(code []byte, extX, extB int) (int, bool) {
	*a = address{base: none, index: none}
	mod, rm, n := code[0]>>6, int(code[0]&7), 1
	a.base = rm | extB
	if rm == 4 {
		if len(code) < 2 {
			return 0, false
		}
		n = 2
		a.scale = uint(code[1] >> 6)
		if index := int(code[1]>>3&7) | extX; index != 4 {
			a.index = index
		}
		rm = int(code[1] & 7)
		a.base = rm | extB
		if mod == 0 && rm == 5 {
			a.base = none
		}
	} else if mod == 0 && rm == 5 {
		a.base = rip
	}
	switch {
	case mod == 1 && len(code) > n:
		a.disp = int64(int8(code[n]))
		return n + 1, true
	case mod == 2 || mod == 0 && rm == 5:
		if len(code) < n+4 {
			return 0, false
		}
		a.disp = int64(int32(binary.LittleEndian.Uint32(code[n:])))
		return n + 4, true
	}
	return n, mod == 0
}

// start is the address without the index, stride what the index adds. next is the address of the
// next instruction.
func (a *address) start(regs *[16]uint64, next uint64) (start, stride uint64) {
	start = uint64(a.disp)
	switch {
	case a.base == rip:
		start += next
	case a.base != none:
		start += regs[a.base]
	}
	if a.index != none {
		stride = regs[a.index] << a.scale
	}
	return start, stride
}
