package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// Options are the choices of a plan that change no result. Zero values are the defaults.
type Options struct {
	KVSlots    int // ring slots besides the pinned home block; default 2
	OuterSlots int // slots for the start blocks of inner windows; default 2
	DKVSlots   int // travelling dKV slots; default 2
	Partials   int // own dKV partials; default 2
	// HeadChunks cuts the exchanges of each head rank into that many, by heads: while one chunk is
	// attended the next one comes. The forward pass then keeps nothing head-sharded, and the
	// backward pass exchanges its inputs again. Default 1.
	HeadChunks int
	// NarrowDKV lets dKV travel round the ring as bf16; it is added up in accumulators all the
	// same.
	NarrowDKV bool
}

func (o Options) withDefaults() Options {
	for _, n := range []*int{&o.KVSlots, &o.OuterSlots, &o.DKVSlots, &o.Partials} {
		if *n == 0 {
			*n = 2
		}
	}
	o.HeadChunks = max(o.HeadChunks, 1)
	return o
}

// String names the options in plan hashes; those of later versions are named where they are not
// the default.
func (o Options) String() string {
	s := fmt.Sprintf("{%d %d %d %d}", o.KVSlots, o.OuterSlots, o.DKVSlots, o.Partials)
	if o.HeadChunks > 1 {
		s += fmt.Sprintf(" head chunks %d", o.HeadChunks)
	}
	if o.NarrowDKV {
		s += " dkv bf16"
	}
	return s
}

// Validate refuses slot counts with which a round would stop for ever or be unbounded.
func (o Options) Validate() error {
	for _, x := range []struct {
		name string
		n    int
		min  int
	}{
		{"kv slots", o.KVSlots, 2}, {"outer slots", o.OuterSlots, 2},
		{"dkv slots", o.DKVSlots, 2}, {"partials", o.Partials, 1},
	} {
		if x.n != 0 && (x.n < x.min || x.n > MaxSlots) {
			return fmt.Errorf("%s %d: use %d to %d (0 is the default, 2)", x.name, x.n, x.min,
				MaxSlots)
		}
	}
	if o.HeadChunks < 0 {
		return fmt.Errorf("head-chunks %d: use 1 or more", o.HeadChunks)
	}
	return nil
}

// agree checks options against the shape and the mesh.
func (s *Spec) agree() error {
	o, least := &s.Options, s.Shape.QHeads/s.Mesh.Head
	switch {
	case o.HeadChunks > 1 && s.Mesh.Head == 1:
		return fmt.Errorf("head-chunks %d with head degree 1: heads are not exchanged, so there "+
			"is nothing to cut; use head-chunks 1 or a head degree of at least 2", o.HeadChunks)
	case o.HeadChunks > least:
		return fmt.Errorf("head-chunks %d: a head rank of degree %d holds as few as %d of the %d "+
			"query heads; use at most %d", o.HeadChunks, s.Mesh.Head, least, s.Shape.QHeads, least)
	case o.NarrowDKV && s.Shape.AccBytes != wireAccBytes:
		return fmt.Errorf("dkv-wire bf16: sums of %d bytes an element do not travel as bf16; "+
			"leave dkv-wire out", s.Shape.AccBytes)
	}
	if axis, ok := s.Ring.(Keeper); ok && o.NarrowDKV && axis.KeepsDKV() {
		return fmt.Errorf("dkv-wire bf16 with %v: dK and dV stay where they are and dQ travels; "+
			"leave dkv-wire out or rotate kv", s.Ring)
	}
	return nil
}

// wireAccBytes is the width of the sums that may travel as bf16: those of f32.
const wireAccBytes = 4

// MaxSlots is the limit of ring slots, dKV slots and partials.
const MaxSlots = 64

// RingAxis writes what happens along the ring: which block is where at each step.
type RingAxis interface {
	// Forward attends every KV block that q may see and gives the finished out block.
	Forward(b *Builder, q, kv Block) (out Block)
	// Backward gives the head-sharded gradients of q, and of the home KV block.
	Backward(b *Builder, q, kv, out, do, delta Block) (dq, dkv Block)
	// Validate refuses a mesh that the axis cannot serve.
	Validate(m mesh.Mesh) error
	// LaneCount is 2 when the two chunks of a shard travel apart.
	LaneCount() int
	String() string
}

// Trimmer is a RingAxis that sends only rows that are needed; Builder.NeedSet gives them.
type Trimmer interface {
	RingAxis
	Trims() bool
}

// Keeper is a RingAxis that may leave dKV where it is.
type Keeper interface {
	RingAxis
	KeepsDKV() bool
}

// Surveyor is a RingAxis that wants to look over the whole plan once, before any program is
// written: what it finds is in Builder.Survey of every rank. It must not be changed any more.
type Surveyor interface {
	RingAxis
	Survey(b *Builder) any
}

// HeadAxis writes the exchanges between token-sharded and head-sharded blocks.
type HeadAxis interface {
	// Gather turns home blocks (this rank's tokens, all heads) into head-sharded ones (the ring
	// shard's tokens, this rank's heads), each kept under its role or scratch.
	Gather(b *Builder, home []Block, roles []Role) []Block
	// Scatter sends head-sharded blocks home and receives what comes home from the others. It
	// consumes accumulators.
	Scatter(b *Builder, head []Block) []Landing
	// Land puts together what has come for each block, of all head chunks, in the session's slots
	// of the given roles; it sums replicas of KV heads.
	Land(b *Builder, chunks [][]Landing, roles []Role)
	String() string
}

// Landing is what one head chunk brings home of a block: parts in the order in which replicas are
// summed, and slots to release when they are put together.
type Landing struct{ Parts, Done []Block }

// Spec is everything that a plan follows from.
type Spec struct {
	Shape Shape
	Mesh  mesh.Mesh
	// Layout deals the tokens; nil is zigzag. KeyLayout deals the keys where they are a sequence of
	// their own; nil is Layout.
	Layout, KeyLayout mesh.Layout
	Options           Options
	Ring              RingAxis
	Heads             HeadAxis
}

// Plan gives every rank its programs, on demand. It is immutable and safe for concurrent use.
type Plan struct {
	spec   Spec
	header Header
	groups []group // by ring shard
	sees   *sees
	survey any // what a Surveyor found
}

type group struct {
	q, k           SetID   // the shard
	qRun, kRun     []SetID // its runs, by head rank
	qLanes, kLanes []SetID // its halves, where they travel apart
	needs          []SetID // by ring shard: the keys of it that its queries may see, if trimmed
}

// New checks a spec and makes its plan.
func New(spec Spec) (*Plan, error) {
	spec.Options = spec.Options.withDefaults()
	if spec.Shape.Collective() {
		return nil, fmt.Errorf("plan: dim 0: use 1 to %d (a collective is no attention: see "+
			"package collect)", MaxDim)
	}
	if spec.Layout == nil {
		spec.Layout = mesh.Zigzag
	}
	if spec.KeyLayout == nil {
		spec.KeyLayout = spec.Layout
	}
	for _, check := range []func() error{
		spec.Shape.Validate, spec.Mesh.Validate, spec.Options.Validate,
		func() error { return spec.Ring.Validate(spec.Mesh) },
		func() error {
			return mesh.ValidateHeads(spec.Shape.QHeads, spec.Shape.KHeads, spec.Mesh.Head)
		},
		spec.agree,
		func() error { return spec.Layout.Validate(spec.Shape.QTokens, spec.Mesh.Ring) },
		func() error { return spec.KeyLayout.Validate(spec.Shape.KTokens, spec.Mesh.Ring) },
		func() error { return spec.Shape.Mask.Validate(spec.Shape.QTokens, spec.Shape.KTokens) },
	} {
		if err := check(); err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
	}
	p := &Plan{spec: spec}
	p.fillSets()
	p.sees = newSees(&p.header, p.groups)
	if axis, ok := spec.Ring.(Surveyor); ok {
		p.survey = axis.Survey(p.builder(Forward, 0))
	}
	return p, nil
}

// fillSets makes the table of token sets: each ring shard and its runs, each content once.
func (p *Plan) fillSets() {
	s, m := &p.spec.Shape, p.spec.Mesh
	h := &p.header
	*h = Header{Shape: *s, Ranks: m.Ranks(), Sets: []mesh.Set{nil}, Names: []string{noneName}}
	h.HomeQ, h.HomeK = make([]SetID, h.Ranks), make([]SetID, h.Ranks)
	in := interner{header: h, seen: map[uint64][]SetID{}}
	halves := 0
	if p.spec.Ring.LaneCount() > 1 {
		halves = 2 // else the shard itself travels
	}
	p.groups = make([]group, m.Ring)
	for c := range p.groups {
		g := &p.groups[c]
		q, k := p.spec.Layout, p.spec.KeyLayout
		qs, ks := q.Shard(s.QTokens, m.Ring, c), k.Shard(s.KTokens, m.Ring, c)
		g.q, g.k = in.id(qs, "c%d", c), in.id(ks, "k%d", c)
		for i := range halves {
			g.kLanes = append(g.kLanes,
				in.id(mesh.Half(k, s.KTokens, m.Ring, c, i), "k%d%c", c, 'a'+i))
			g.qLanes = append(g.qLanes,
				in.id(mesh.Half(q, s.QTokens, m.Ring, c, i), "c%d%c", c, 'a'+i))
		}
		for i := range m.Head {
			g.qRun = append(g.qRun, in.id(run(qs, m.Head, i), "c%d.%d", c, i))
			g.kRun = append(g.kRun, in.id(run(ks, m.Head, i), "k%d.%d", c, i))
			r := m.Rank(mesh.Coord{H: i, C: c})
			h.HomeQ[r], h.HomeK[r] = g.qRun[i], g.kRun[i]
		}
	}
	if t, ok := p.spec.Ring.(Trimmer); ok && t.Trims() {
		p.fillNeeds(&in)
	}
}

// fillNeeds adds the sets of what each shard needs of each other.
func (p *Plan) fillNeeds(in *interner) {
	h := &p.header
	for c := range p.groups {
		for j := range p.groups {
			need := attn.NeededKeys(h.Mask, h.Sets[p.groups[c].q], h.Sets[p.groups[j].k])
			p.groups[c].needs = append(p.groups[c].needs, in.id(need, "n%d.%d", c, j))
		}
	}
}

// run is the rows of a shard that head rank i of degree is at home with (mesh.Home).
func run(shard mesh.Set, degree, i int) mesh.Set {
	lo, hi := mesh.CutEven(shard.Len(), degree, i)
	return shard.Rows(lo, hi)
}

// interner gives each set one number.
type interner struct {
	header *Header
	seen   map[uint64][]SetID // by hash of the content
}

// id is the number of a set; a new one is named by format.
func (in *interner) id(set mesh.Set, format string, args ...any) SetID {
	if set.Len() == 0 {
		return 0
	}
	h := in.header
	id := SetID(len(h.Sets))
	h.Sets = append(h.Sets, set)
	hash := h.SetHash(id)
	for _, old := range in.seen[hash] {
		if slices.Equal(h.Sets[old], set) {
			h.Sets = h.Sets[:id]
			return old
		}
	}
	in.seen[hash] = append(in.seen[hash], id)
	h.Names = append(h.Names, fmt.Sprintf(format, args...))
	return id
}

// Header is what all programs share.
func (p *Plan) Header() *Header { return &p.header }

// Spec is what the plan was made of, defaults filled in.
func (p *Plan) Spec() Spec { return p.spec }

// Passes are the passes that the plan has programs for.
func (p *Plan) Passes() []Pass { return []Pass{Forward, Backward} }

// Program writes the program of one rank in one pass.
func (p *Plan) Program(pass Pass, rank int) (*Program, error) {
	if rank < 0 || rank >= p.header.Ranks {
		return nil, fmt.Errorf("plan: rank %d is not in a mesh of %d ranks", rank, p.header.Ranks)
	}
	b := p.builder(pass, rank)
	if pass == Forward {
		p.forward(b)
	} else {
		p.backward(b)
	}
	return b.Program(), nil
}

// builder starts a program of the plan.
func (p *Plan) builder(pass Pass, rank int) *Builder {
	b := NewBuilder(&p.header, p.spec.Mesh, p.spec.Options, pass, rank)
	b.groups, b.sees, b.Survey = p.groups, p.sees, p.survey
	return b
}

// forward: home q, kv -> exchange -> ring -> exchange -> home out.
func (p *Plan) forward(b *Builder) {
	home := []Block{b.Home(HomeKV, KV), b.Home(HomeQ, Q)}
	roles := []Role{HeadKV, HeadQ}
	if b.Opt.HeadChunks > 1 {
		roles = []Role{Scratch, Scratch}
	}
	p.chunks(b, home, roles, []Role{HomeOut}, func(head []Block) []Block {
		return []Block{p.spec.Ring.Forward(b, head[1], head[0])}
	})
}

// chunks exchanges home blocks chunk by chunk of heads, does the work on each chunk and brings its
// results home. Two chunks are at hand or on their way: while one is attended the next one comes,
// and when it is done the one after that starts, before its results go home.
func (p *Plan) chunks(b *Builder, home []Block, roles, results []Role,
	work func(head []Block) []Block) {
	n := b.Opt.HeadChunks
	heads, landed := make([][]Block, n), make([][]Landing, n)
	gather := func(i int) {
		if i < n {
			b.chunk = i
			heads[i] = p.spec.Heads.Gather(b, home, roles)
		}
	}
	gather(0)
	gather(1)
	for i := range n {
		b.chunk = i
		done := work(heads[i])
		if n > 1 {
			b.releaseAll(heads[i])
		}
		gather(i + 2)
		b.chunk = i
		landed[i] = p.spec.Heads.Scatter(b, done)
	}
	p.spec.Heads.Land(b, landed, results)
}

// backward: home dO -> exchange -> delta -> ring -> exchange -> home dq, dkv. In chunks of heads
// q, kv and out are exchanged again with dO.
func (p *Plan) backward(b *Builder) {
	home, roles := []Block{b.Home(HomeDO, DO)}, []Role{Scratch}
	chunked := b.Opt.HeadChunks > 1
	if chunked {
		home = append(home, b.Home(HomeKV, KV), b.Home(HomeQ, Q), b.Home(HomeOut, Out))
		roles = []Role{Scratch, Scratch, Scratch, Scratch}
	}
	p.chunks(b, home, roles, []Role{HomeDKV, HomeDQ}, func(head []Block) []Block {
		if !chunked {
			head = append(head, b.HeadSharded(HeadKV, KV), b.HeadSharded(HeadQ, Q),
				b.HeadSharded(HeadOut, Out))
		}
		do, kv, q, out := head[0], head[1], head[2], head[3]
		delta := b.Take(PoolState, 0, Delta, q.Set, q.Heads)
		if !delta.Empty {
			b.Read(do).Read(out).Write(delta).Emit(DeltaOp, b.Tick(0))
		}
		dq, dkv := p.spec.Ring.Backward(b, q, kv, out, do, delta)
		b.Release(delta)
		if p.spec.Mesh.Head > 1 && !chunked {
			b.Release(do)
		}
		return []Block{dkv, dq}
	})
}

// releaseAll is Release of several blocks.
func (b *Builder) releaseAll(blocks []Block) {
	for _, k := range blocks {
		b.Release(k)
	}
}

// Hash is Seal of the programs that the plan itself writes.
func (p *Plan) Hash() (Hash, error) {
	var programs []Hash
	for r := range p.header.Ranks {
		for _, pass := range p.Passes() {
			prog, err := p.Program(pass, r)
			if err != nil {
				return Hash{}, err
			}
			programs = append(programs, prog.Hash(&p.header))
		}
	}
	return p.Seal(programs), nil
}

// Seal is sha256 of the problem, the mesh, the options and the hashes of the programs' texts: rank
// 0 forward, rank 0 backward, rank 1 forward and so on. It is the name of the plan.
func (p *Plan) Seal(programs []Hash) Hash {
	w := sha256.New()
	s := &p.spec
	fmt.Fprintf(w, "problem %d %d %d %d %d %d %d %d %v %v\n", s.Shape.QTokens, s.Shape.KTokens,
		s.Shape.QHeads, s.Shape.KHeads, s.Shape.Dim, s.Shape.VDim, s.Shape.ElemBytes,
		s.Shape.AccBytes, s.Shape.Scale, s.Shape.Mask)
	if s.Shape.SoftCap != 0 || s.Shape.Sink {
		fmt.Fprintf(w, "softcap %v sink %v\n", s.Shape.SoftCap, s.Shape.Sink)
	}
	if key := s.KeyLayout.String(); key != s.Layout.String() {
		fmt.Fprintf(w, "key layout %s\n", key)
	}
	fmt.Fprintf(w, "mesh %d %d %v\noptions %v %v %v %v\n", s.Mesh.Head, s.Mesh.Ring,
		s.Mesh.Placement, s.Layout, s.Options, s.Ring, s.Heads)
	for _, sum := range programs {
		w.Write(sum[:])
	}
	return Hash(w.Sum(nil))
}

// Hash names a plan or a program.
type Hash [sha256.Size]byte

// String is the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Short is the first 64 bits, what block headers and envelopes carry.
func (h Hash) Short() uint64 {
	v := uint64(0)
	for _, x := range h[:8] {
		v = v<<8 | uint64(x)
	}
	return v
}

// Hash is the sha256 of the program's text.
func (p *Program) Hash(h *Header) Hash { return sha256.Sum256(p.AppendText(nil, h)) }
