package tiles

import (
	"encoding/binary"
	"fmt"
)

// What palette 1 offers.
const (
	names    = 8  // tiles
	maxRows  = 16 // rows of a tile
	maxColsb = 64 // bytes of a row
)

// State is what a thread's tile registers hold. Its zero value is the state of a new thread.
type State struct {
	palette  uint8 // 0: tiles are not configured
	startRow uint8 // where a load or store that faulted goes on
	colsb    [names]uint16
	rows     [names]uint8
	tiles    [names][maxRows][maxColsb]byte

	spans  [maxRows]Span // scratch of loads and stores
	buffer [maxRows][maxColsb]byte
	dot    dotScratch
}

// Span is a piece of memory: where it is, and what is read from or written to there.
type Span struct {
	Addr  uint64
	Bytes []byte
}

// Memory is what instructions load from and store to. Both functions move the spans in order, and
// return how many bytes they moved before the first one that may not be touched. The error is for
// all other trouble.
type Memory interface {
	Read(spans []Span) (int, error)
	Write(spans []Span) (int, error)
}

// Kind is the kind of a fault.
type Kind uint8

// The faults of these instructions.
const (
	UD   Kind = iota // invalid opcode: SIGILL
	GP               // general protection: SIGSEGV without an address
	Page             // memory that may not be touched: SIGSEGV at Addr
)

// String is what Intel's manual calls the fault.
func (k Kind) String() string { return [...]string{"#UD", "#GP", "#PF"}[k] }

// Fault says why an instruction cannot be executed.
type Fault struct {
	Kind Kind
	Op   Op
	PC   uint64 // address of the instruction
	Addr uint64 // of Page: the first byte that cannot be touched
	Rule string // what is broken
}

// Error names the instruction, its address and the rule.
func (f *Fault) Error() string {
	return fmt.Sprintf("%v at %#x: %s (%v)", f.Op, f.PC, f.Rule, f.Kind)
}

// Exec executes an instruction that lies at pc, for a thread with these general registers (in the
// order of their numbers; no instruction of tiles changes them). A *Fault leaves the state as
// hardware does: unchanged, but for the rows that a load has finished and the row where it goes on.
// Any other error is the memory's.
func (s *State) Exec(in Inst, pc uint64, regs *[16]uint64, mem Memory) error {
	err := s.exec(in, pc+uint64(in.Len), regs, mem)
	if f, ok := err.(*Fault); ok {
		f.Op, f.PC = in.Op, pc
	}
	return err
}

func (s *State) exec(in Inst, next uint64, regs *[16]uint64, mem Memory) error {
	switch in.Op {
	case LDTILECFG, STTILECFG:
		start, index := in.start(regs, next)
		return s.config(in.Op, start+index, mem)
	case TILERELEASE:
		s.release()
		return nil
	case TDPBF16PS:
		if err := s.checkDot(in.Dst, in.Src1, in.Src2); err != nil {
			return err
		}
		s.multiply(in.Dst, in.Src1, in.Src2)
		s.startRow = 0
		return nil
	}
	if err := s.checkTile(in.Dst); err != nil {
		return err
	}
	if in.Op == TILEZERO {
		s.tiles[in.Dst] = [maxRows][maxColsb]byte{}
		s.startRow = 0
		return nil
	}
	if s.colsb[in.Dst]%4 != 0 {
		return ud("tile %d has rows of %d bytes, no multiple of 4", in.Dst, s.colsb[in.Dst])
	}
	if s.startRow >= s.rows[in.Dst] {
		return ud("start_row %d, tile %d has %d rows", s.startRow, in.Dst, s.rows[in.Dst])
	}
	start, stride := in.start(regs, next)
	return s.move(in.Op == TILESTORED, in.Dst, start, stride, mem)
}

func (s *State) release() {
	s.palette, s.startRow = 0, 0
	s.colsb, s.rows = [names]uint16{}, [names]uint8{}
	s.tiles = [names][maxRows][maxColsb]byte{}
}

// config is LDTILECFG and STTILECFG.
func (s *State) config(op Op, addr uint64, mem Memory) error {
	b := &s.buffer[0]
	s.spans[0] = Span{addr, b[:]}
	if op == LDTILECFG {
		if _, err := access(mem.Read, s.spans[:1]); err != nil {
			return err
		}
		return s.configure(b)
	}
	*b = [maxColsb]byte{0: s.palette, 1: s.startRow}
	for t := range names {
		binary.LittleEndian.PutUint16(b[16+2*t:], s.colsb[t])
		b[48+t] = s.rows[t]
	}
	_, err := access(mem.Write, s.spans[:1])
	return err
}

// configure takes over a configuration as it lies in memory.
func (s *State) configure(b *[maxColsb]byte) error {
	if b[0] == 0 { // the rest is not looked at
		s.release()
		return nil
	}
	if b[0] != 1 {
		return gp("palette %d, there are 0 and 1", b[0])
	}
	for i, x := range b {
		if x != 0 && (i >= 2 && i < 16 || i >= 32 && i < 48 || i >= 56) {
			return gp("reserved byte %d of the configuration is %d, not 0", i, x)
		}
	}
	var colsb [names]uint16
	var rows [names]uint8
	for t := range names {
		colsb[t], rows[t] = binary.LittleEndian.Uint16(b[16+2*t:]), b[48+t]
		if colsb[t] > maxColsb || rows[t] > maxRows {
			return gp("tile %d with %d rows of %d bytes, larger than %d of %d", t, rows[t],
				colsb[t], maxRows, maxColsb)
		}
		if (colsb[t] == 0) != (rows[t] == 0) {
			return gp("tile %d with %d rows of %d bytes: one is 0", t, rows[t], colsb[t])
		}
	}
	s.release()
	s.palette, s.startRow, s.colsb, s.rows = 1, b[1], colsb, rows
	return nil
}

func (s *State) checkTile(t int) error {
	if s.palette == 0 {
		return ud("tiles are not configured")
	}
	if s.rows[t] == 0 {
		return ud("tile %d is not configured", t)
	}
	return nil
}

// checkDot has the rules of TDPBF16PS: C[m,n] += A[m,k] B[k,n].
func (s *State) checkDot(c, a, b int) error {
	if c == a || a == b || c == b {
		return ud("tiles %d, %d and %d are not three", c, a, b)
	}
	for _, t := range []int{c, a, b} {
		if err := s.checkTile(t); err != nil {
			return err
		}
		if s.colsb[t]%4 != 0 {
			return ud("tile %d has rows of %d bytes, no multiple of 4", t, s.colsb[t])
		}
	}
	switch {
	case s.rows[c] != s.rows[a]:
		return ud("m: tile %d has %d rows, tile %d has %d", c, s.rows[c], a, s.rows[a])
	case s.colsb[a]/4 != uint16(s.rows[b]):
		return ud("k: rows of tile %d have %d pairs, tile %d has %d rows", a, s.colsb[a]/4, b,
			s.rows[b])
	case s.colsb[c] != s.colsb[b]:
		return ud("n: rows of tile %d have %d bytes, of tile %d %d", c, s.colsb[c], b, s.colsb[b])
	}
	return nil
}

// move loads or stores the rows of a tile, from start_row on.
func (s *State) move(store bool, t int, start, stride uint64, mem Memory) error {
	first, n := int(s.startRow), int(s.colsb[t])
	spans := s.spans[:int(s.rows[t])-first]
	rows := &s.buffer
	if store {
		rows = &s.tiles[t]
	}
	for i := range spans {
		r := first + i
		spans[i] = Span{start + uint64(r)*stride, rows[r][:n]}
	}
	do := mem.Read
	if store {
		do = mem.Write
	}
	moved, err := access(do, spans)
	done := first + moved/n
	if !store {
		for r := first; r < done; r++ {
			s.tiles[t][r] = [maxColsb]byte{}
			copy(s.tiles[t][r][:], rows[r][:n])
		}
	}
	if err != nil {
		s.startRow = uint8(done)
		return err
	}
	if !store {
		clear(s.tiles[t][s.rows[t]:])
	}
	s.startRow = 0
	return nil
}

// access moves spans, and makes the fault of what could not be moved.
func access(do func([]Span) (int, error), spans []Span) (int, error) {
	for i, sp := range spans {
		last := sp.Addr + uint64(len(sp.Bytes)) - 1
		if !canonical(sp.Addr) || !canonical(last) {
			n, err := access(do, spans[:i])
			if err == nil {
				err = gp("address %#x is not canonical", sp.Addr)
			}
			return n, err
		}
	}
	if len(spans) == 0 {
		return 0, nil
	}
	n, err := do(spans)
	if err != nil {
		return n, err
	}
	left := n
	for _, sp := range spans {
		if left < len(sp.Bytes) {
			addr := sp.Addr + uint64(left)
			return n, &Fault{Kind: Page, Addr: addr,
				Rule: fmt.Sprintf("memory at %#x cannot be accessed", addr)}
		}
		left -= len(sp.Bytes)
	}
	return n, nil
}

// canonical says whether bits 63 to 47 are the same.
func canonical(addr uint64) bool { return int64(addr)<<16>>16 == int64(addr) }

func ud(rule string, args ...any) error { return refuse(UD, rule, args...) }
func gp(rule string, args ...any) error { return refuse(GP, rule, args...) }

func refuse(k Kind, rule string, args ...any) error {
	return &Fault{Kind: k, Rule: fmt.Sprintf(rule, args...)}
}
