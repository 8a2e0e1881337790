package simd

import (
	"unsafe"

	"github.com/kvloom/kvloom/attn"
)

// Sizes of tiles, which fix the order of sums and so the bits of results.
const (
	maxKeys      = 96   // keys of a tile
	forwardLanes = 384  // queries times heads that a task of Forward takes to each tile
	backwardPack = 1152 // queries times heads that Backward has packed at a time

	zeroRows = 24 // outer reads rows of weights up to a multiple of this
	maxLanes = 48 // lanes of the widest panel

	panelVecs = 3 // vectors of a row of a panel, of which a group uses 2 or 3
)

// Scratch is what one running task needs besides its block. It may serve one task after another,
// of any block, pass and instruction set, but not two at once. The zero Scratch is ready for use.
type Scratch struct {
	// Past is for results that nobody reads soon: sums go past the caches to memory, which need not
	// be read for that, and leave the caches to what is at hand. A caller sets it before a task.
	Past bool

	groups []lanes
	near   []attn.Slice
	tile   tile
	keys   cursor // those after the tile
	pos    []int  // position of each row of a task
	words  [maxKeys + minKeys + 2]uint64
	alone  [maxLanes]int     // rows of a group's own copy: 0, 1, 2, ...
	count  [maxKeys]int      // 0, 1, 2, ...
	ones   [maxLanes]float32 // an alpha that changes nothing
	none   [maxLanes]float32 // a delta of 0
	alpha  [maxLanes]float32

	s, dp    []float32 // scores and weights of a tile, and their gradients: [maxKeys, lanes]
	q, o, do []float32 // panels, group after group: q, then out or dq, and do
	qr, dor  []float32 // rows of q and do, group after group
	k, v     []float32 // a tile of keys, of values
	clean    []float32 // one of them without what is not finite
	row      []float32 // one row
	dk, dv   []float32 // gradients of a tile
	dot      dots
}

// NewScratch makes a Scratch that need not grow for blocks of up to d and dv elements a head, group
// query heads a KV head and slices slices of mask, in either pass.
func NewScratch(d, dv, group, slices int) *Scratch {
	sc := &Scratch{near: make([]attn.Slice, 0, slices)}
	for _, isa := range []ISA{AVX2, AVX512} {
		sc.fitForward(isa, d, dv, max(forwardLanes, group))
		sc.fitBackward(isa, d, dv, max(backwardPack, group))
	}
	return sc
}

// padded is the floats of a row of w in scratch: a multiple of the widest vector.
func padded(w int) int { return (w + 15) &^ 15 }

// grow makes room for n floats at a multiple of 64 bytes.
func grow(a *[]float32, n int) {
	if len(*a) >= n {
		return
	}
	raw := make([]float32, n+15)
	off := -int(uintptr(unsafe.Pointer(&raw[0]))/4) & 15
	*a = raw[off : off+n]
}

// fit makes room for what both passes need.
func (sc *Scratch) fit(d, dv, groups int) {
	if sc.ones[0] == 0 {
		for i := range sc.ones {
			sc.ones[i] = 1
		}
		for i := range sc.count {
			sc.count[i] = i
		}
	}
	if cap(sc.groups) < groups {
		sc.groups = make([]lanes, groups)
	}
	if cap(sc.tile.runs) < maxKeys {
		sc.tile.runs = make([]run, 0, maxKeys)
	}
	grow(&sc.s, (maxKeys+zeroRows)*maxLanes)
	grow(&sc.k, maxKeys*padded(d))
	grow(&sc.v, maxKeys*padded(dv))
	grow(&sc.clean, maxKeys*padded(max(d, dv)))
	grow(&sc.row, max(d, dv))
	sc.fitDots(d, dv)
}

// unpack puts panel [w, lanes] back to the group's rows of dst [items, w].
func (sc *Scratch) unpack(isa ISA, dst, panel []float32, g *lanes, w int) {
	if sc.Past && w%16 == 0 && uintptr(unsafe.Pointer(&dst[0]))%64 == 0 {
		isa.unpackPast(&dst[0], &panel[0], &g.item[0], 4*w, w, g.vecs)
		return
	}
	isa.unpack(&dst[0], &panel[0], &g.item[0], 4*w, w, g.vecs)
}

// groupsOf is the groups of lanes that n queries times heads take.
func groupsOf(isa ISA, n int) int { return (n + isa.lanes() - 1) / isa.lanes() }

// fitForward makes room for a task of Forward of up to n queries times heads.
func (sc *Scratch) fitForward(isa ISA, d, dv, n int) {
	groups := groupsOf(isa, n)
	sc.fit(d, dv, groups)
	if cap(sc.pos) < n {
		sc.pos = make([]int, n)
	}
	grow(&sc.q, groups*isa.lanes()*padded(d))
	grow(&sc.o, groups*isa.lanes()*padded(dv))
	grow(&sc.qr, maxLanes*padded(max(d, dv)))
}

// fitBackward makes room for a task of Backward with up to n queries times heads packed.
func (sc *Scratch) fitBackward(isa ISA, d, dv, n int) {
	groups := groupsOf(isa, n)
	sc.fit(d, dv, groups)
	if cap(sc.pos) < n {
		sc.pos = make([]int, n)
	}
	lanes := groups * isa.lanes()
	grow(&sc.dp, (maxKeys+zeroRows)*maxLanes)
	grow(&sc.q, lanes*padded(d))
	grow(&sc.qr, lanes*padded(d))
	grow(&sc.o, lanes*padded(d))
	grow(&sc.do, lanes*padded(dv))
	grow(&sc.dor, lanes*padded(dv))
	grow(&sc.dk, (maxKeys+zeroRows)*padded(d))
	grow(&sc.dv, (maxKeys+zeroRows)*padded(dv))
}
