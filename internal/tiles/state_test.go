package tiles

import (
	"bytes"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// whole configures eight tiles of 16 rows of 64 bytes.
func whole() *[64]byte {
	b := &[64]byte{0: 1}
	for t := range 8 {
		b[16+2*t], b[48+t] = 64, 16
	}
	return b
}

// arena is memory from address base on; no other can be touched, nor what is behind its limit.
type arena struct {
	base  uint64
	bytes []byte
	limit int
}

func (a *arena) Read(spans []Span) (int, error) {
	return a.each(spans, func(s, m []byte) int { return copy(s, m) })
}

func (a *arena) Write(spans []Span) (int, error) {
	return a.each(spans, func(s, m []byte) int { return copy(m, s) })
}

func (a *arena) each(spans []Span, do func(s, m []byte) int) (n int, err error) {
	for _, s := range spans {
		off := s.Addr - a.base
		if off >= uint64(a.limit) {
			return n, nil
		}
		if n += do(s.Bytes, a.bytes[off:a.limit]); off+uint64(len(s.Bytes)) > uint64(a.limit) {
			return n, nil
		}
	}
	return n, nil
}

// visible is what a program can see of a State.
type visible struct {
	palette, startRow uint8
	colsb             [names]uint16
	rows              [names]uint8
	tiles             [names][maxRows][maxColsb]byte
}

func see(s *State) visible { return visible{s.palette, s.startRow, s.colsb, s.rows, s.tiles} }

// dirty is a state with some number in each byte of each tile.
func dirty(rows [8]uint8, colsb [8]uint16) *State {
	s := &State{palette: 1, rows: rows, colsb: colsb}
	for t := range s.tiles {
		for r := range s.tiles[t] {
			for i := range s.tiles[t][r] {
				s.tiles[t][r][i] = byte(t*100 + r*64 + i + 1)
			}
		}
	}
	return s
}

func TestFaults(t *testing.T) {
	rows, colsb := [8]uint8{16, 16, 16, 8, 16, 3, 2}, [8]uint16{64, 64, 64, 64, 32, 6, 4}
	config := func(change func(b *[64]byte)) *arena {
		b := whole()
		change(b)
		return &arena{0x1000, b[:], 64}
	}
	cfg := Inst{Op: LDTILECFG, Len: 5, address: address{base: none, index: none, disp: 0x1000}}
	load := func(tile int) Inst { return Inst{Op: TILELOADD, Dst: tile, address: cfg.address} }
	dot := func(c, a, b int) Inst { return Inst{Op: TDPBF16PS, Dst: c, Src1: a, Src2: b} }
	far := cfg
	far.disp = 1 << 47
	for _, c := range []struct {
		name  string
		in    Inst
		mem   *arena
		start uint8
		kind  Kind
		rule  string
	}{
		{"palette", cfg, config(func(b *[64]byte) { b[0] = 2 }), 0, GP, "palette 2"},
		{"byte 2", cfg, config(func(b *[64]byte) { b[2] = 1 }), 0, GP, "byte 2 of"},
		{"byte 15", cfg, config(func(b *[64]byte) { b[15] = 1 }), 0, GP, "byte 15"},
		{"byte 32", cfg, config(func(b *[64]byte) { b[32] = 1 }), 0, GP, "byte 32"},
		{"byte 47", cfg, config(func(b *[64]byte) { b[47] = 1 }), 0, GP, "byte 47"},
		{"byte 56", cfg, config(func(b *[64]byte) { b[56] = 1 }), 0, GP, "byte 56"},
		{"byte 63", cfg, config(func(b *[64]byte) { b[63] = 1 }), 0, GP, "byte 63"},
		{"colsb", cfg, config(func(b *[64]byte) { b[16] = 65 }), 0, GP, "larger than"},
		{"colsb high", cfg, config(func(b *[64]byte) { b[31] = 1 }), 0, GP, "larger than"},
		{"rows", cfg, config(func(b *[64]byte) { b[55] = 17 }), 0, GP, "larger than"},
		{"no rows", cfg, config(func(b *[64]byte) { b[50] = 0 }), 0, GP, "one is 0"},
		{"no colsb", cfg, config(func(b *[64]byte) { b[20] = 0 }), 0, GP, "one is 0"},
		{"not canonical", far, nil, 0, GP, "not canonical"},
		{"no memory", cfg, &arena{0x1000, make([]byte, 64), 63}, 0, Page, "0x103f cannot"},
		{"load of no tile", load(7), nil, 0, UD, "tile 7 is not configured"},
		{"load of 6 bytes", load(5), nil, 0, UD, "no multiple of 4"},
		{"load from a row that is not", load(6), nil, 2, UD, "start_row 2"},
		{"zero of no tile", Inst{Op: TILEZERO, Dst: 7}, nil, 0, UD, "tile 7 is not"},
		{"product in a factor", dot(1, 1, 2), nil, 0, UD, "not three"},
		{"square", dot(0, 1, 1), nil, 0, UD, "not three"},
		{"product in the other", dot(2, 1, 2), nil, 0, UD, "not three"},
		{"product of no tile", dot(0, 1, 7), nil, 0, UD, "tile 7 is not"},
		{"product of 6 bytes", dot(5, 0, 1), nil, 0, UD, "no multiple of 4"},
		{"m", dot(3, 0, 1), nil, 0, UD, "m: tile 3 has 8 rows, tile 0 has 16"},
		{"k", dot(0, 1, 3), nil, 0, UD, "k: rows of tile 1 have 16 pairs, tile 3 has 8"},
		{"n", dot(4, 0, 1), nil, 0, UD, "n: rows of tile 4 have 32 bytes, of tile 1 64"},
	} {
		s := dirty(rows, colsb)
		s.startRow = c.start
		before := see(s)
		err := s.Exec(c.in, 0x400000, &[16]uint64{}, c.mem)
		var f *Fault
		if !errors.As(err, &f) || f.Kind != c.kind || !strings.Contains(f.Error(), c.rule) ||
			!strings.HasPrefix(f.Error(), c.in.Op.String()+" at 0x400000: ") {
			t.Errorf("%s: got %v, want %v, %q", c.name, err, c.kind, c.rule)
		}
		if see(s) != before {
			t.Errorf("%s changed the state", c.name)
		}
	}
	for _, in := range []Inst{load(0), dot(0, 1, 2), {Op: TILEZERO}, {Op: TILESTORED}} {
		err := new(State).Exec(in, 0, &[16]uint64{}, nil)
		if f, ok := err.(*Fault); !ok || f.Kind != UD || f.Rule != "tiles are not configured" {
			t.Errorf("%v without configuration: %v", in.Op, err)
		}
	}
}

func TestConfiguration(t *testing.T) {
	b := whole()
	b[1], b[22], b[51], b[30], b[55] = 3, 12, 5, 0, 0
	m := &arena{0, append(b[:], make([]byte, 64)...), 128}
	regs := &[16]uint64{8: 64, 1: 16}
	at := func(op Op, a address) Inst { return Inst{Op: op, Len: 5, address: a} }
	s := dirty([8]uint8{1}, [8]uint16{4})
	run := func(in Inst) {
		t.Helper()
		if err := s.Exec(in, 0x7FFB, regs, m); err != nil {
			t.Fatal(err)
		}
	}
	run(at(LDTILECFG, address{base: rip, index: none, disp: -0x8000})) // relative to the next one
	if want := (visible{palette: 1, startRow: 3, colsb: [8]uint16{64, 64, 64, 12, 64, 64, 64, 0},
		rows: [8]uint8{16, 16, 16, 5, 16, 16, 16, 0}}); see(s) != want {
		t.Errorf("configured %+v", see(s))
	}
	run(at(STTILECFG, address{base: none, index: 1, scale: 2})) // rcx*4
	if !bytes.Equal(m.bytes[64:], b[:]) {
		t.Errorf("stored %v, want %v", m.bytes[64:], b)
	}
	s.tiles[1][1][1] = 1
	run(at(TILERELEASE, address{}))
	run(at(STTILECFG, address{base: 8, index: none}))
	if see(s) != (visible{}) || !bytes.Equal(m.bytes[64:], make([]byte, 64)) {
		t.Errorf("released, yet %+v; stored %v", see(s), m.bytes[64:])
	}
	s = dirty([8]uint8{1}, [8]uint16{4})
	m.bytes[64+20] = 1 // of palette 0 nothing else is looked at
	run(at(LDTILECFG, address{base: 8, index: none}))
	if see(s) != (visible{}) {
		t.Errorf("palette 0, yet %+v", see(s))
	}
}

// TestFaultsOfMemory loads and stores tiles of any size and stride, with an end of memory in their
// way: what is done before, where the fault is, and that the instruction can be repeated.
func TestFaultsOfMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, n := rapid.IntRange(1, 16).Draw(t, "rows"), 4*rapid.IntRange(1, 16).Draw(t, "words")
		stride := rapid.SampledFrom([]int{0, 1, 4, n, 64, 100}).Draw(t, "stride")
		store := rapid.Bool().Draw(t, "store")
		end := (rows-1)*stride + n
		m := &arena{0x10000, make([]byte, end), rapid.IntRange(0, end).Draw(t, "limit")}
		for i := range m.bytes {
			m.bytes[i] = byte(i*7 + 3)
		}
		s := dirty([8]uint8{5: uint8(rows)}, [8]uint16{5: uint16(n)})
		old := see(s)
		want, memory, at, done := old, bytes.Clone(m.bytes), 0, 0
		for r := range rows {
			row := memory[r*stride:][:n]
			if store {
				copy(row, s.tiles[5][r][:n])
			} else {
				want.tiles[5][r] = [64]byte{}
				copy(want.tiles[5][r][:], row)
			}
			if r*stride+n <= m.limit && done == r {
				done = r + 1
			}
		}
		if !store {
			clear(want.tiles[5][rows:])
		}
		at = max(done*stride, m.limit)
		in := Inst{Op: TILELOADD, Dst: 5, address: address{base: 3, index: 12, disp: -16}}
		if store {
			in.Op = TILESTORED
		}
		regs := &[16]uint64{3: 0x10010, 12: uint64(stride)}
		err := s.Exec(in, 0, regs, m)
		if f, ok := err.(*Fault); done < rows && (!ok || f.Kind != Page ||
			f.Addr != 0x10000+uint64(at) || int(s.startRow) != done) {
			t.Fatalf("%v at row %d, want a fault at %#x of row %d", err, s.startRow, at, done)
		}
		if !store && done < rows && s.tiles[5][done] != old.tiles[5][done] {
			t.Fatalf("row %d is half loaded", done)
		}
		m.limit = end
		if done < rows {
			err = s.Exec(in, 0, regs, m)
		}
		if err != nil || see(s) != want || !bytes.Equal(m.bytes, memory) {
			t.Fatalf("%d rows of %d: %v, differs", rows, n, err)
		}
	})
}

func TestZero(t *testing.T) {
	s := dirty([8]uint8{2: 3}, [8]uint16{2: 8})
	want := see(s)
	want.tiles[2] = [16][64]byte{}
	s.startRow = 1
	if err := s.Exec(Inst{Op: TILEZERO, Dst: 2}, 0, nil, nil); err != nil || see(s) != want {
		t.Errorf("%v, or another tile changed", err)
	}
}

// TestUnavailable wants another error for a command that is not there than for a platform.
func TestUnavailable(t *testing.T) {
	want := ErrUnavailable
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		want = exec.ErrNotFound
	}
	if _, err := Run(exec.Command("no-such-command-of-tiles")); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}
