package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/kvloom/kvloom/mesh"
)

// Options are the choices of a plan that change no result. Zero values are the defaults.
type Options struct {
	KVSlots    int // ring slots besides the pinned home block; default 2
	OuterSlots int // slots for the start blocks of inner windows; default 2
	DKVSlots   int // travelling dKV slots; default 2
	Partials   int // own dKV partials; default 2
}

func (o Options) withDefaults() Options {
	for _, n := range []*int{&o.KVSlots, &o.OuterSlots, &o.DKVSlots, &o.Partials} {
		if *n == 0 {
			*n = 2
		}
	}
	return o
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
	return nil
}

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

// HeadAxis writes the exchanges between token-sharded and head-sharded blocks.
type HeadAxis interface {
	// Gather turns home blocks (this rank's tokens, all heads) into head-sharded ones (the ring
	// shard's tokens, this rank's heads), each kept under its role or scratch.
	Gather(b *Builder, home []Block, roles []Role) []Block
	// Scatter is the inverse, into the session's slots of the given roles; it consumes
	// accumulators and sums replicas of KV heads.
	Scatter(b *Builder, head []Block, roles []Role)
	String() string
}

// Spec is everything that a plan follows from.
type Spec struct {
	Shape   Shape
	Mesh    mesh.Mesh
	Layout  mesh.Layout
	Options Options
	Ring    RingAxis
	Heads   HeadAxis
}

// Plan gives every rank its programs, on demand. It is immutable and safe for concurrent use.
type Plan struct {
	spec   Spec
	header Header
	groups []group // by ring shard
}

type group struct {
	q, k       SetID   // the shard
	qRun, kRun []SetID // its runs, by head rank
	lanes      []SetID // its chunks of keys, where they travel apart
}

// New checks a spec and makes its plan.
func New(spec Spec) (*Plan, error) {
	spec.Options = spec.Options.withDefaults()
	if spec.Shape.Collective() {
		return nil, fmt.Errorf("plan: dim 0: use 1 to %d (a collective is no attention: see "+
			"package collect)", MaxDim)
	}
	checks := []error{
		spec.Shape.Validate(), spec.Mesh.Validate(), spec.Options.Validate(),
		spec.Ring.Validate(spec.Mesh),
	}
	for _, err := range checks {
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
	}
	if err := mesh.ValidateHeads(spec.Shape.QHeads, spec.Shape.KHeads, spec.Mesh.Head); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if err := spec.Shape.Mask.Validate(spec.Shape.QTokens, spec.Shape.KTokens); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	p := &Plan{spec: spec}
	p.fillSets()
	return p, nil
}

// fillSets makes the table of token sets: each ring shard and its runs, each content once.
func (p *Plan) fillSets() {
	s, m := &p.spec.Shape, p.spec.Mesh
	h := &p.header
	*h = Header{Shape: *s, Ranks: m.Ranks(), Sets: []mesh.Set{nil}, Names: []string{"none"}}
	seen := map[string]SetID{"": 0}
	intern := func(set mesh.Set, name string) SetID {
		key := fmt.Sprint([]mesh.Span(set))
		if set.Len() == 0 {
			key = ""
		}
		id, ok := seen[key]
		if !ok {
			id = SetID(len(h.Sets))
			seen[key] = id
			h.Sets, h.Names = append(h.Sets, set), append(h.Names, name)
		}
		return id
	}
	h.HomeQ, h.HomeK = make([]SetID, h.Ranks), make([]SetID, h.Ranks)
	lanes := p.spec.Ring.LaneCount()
	if lanes == 1 {
		lanes = 0 // the shard itself travels
	}
	for c := range m.Ring {
		g := group{
			q: intern(p.spec.Layout.Shard(s.QTokens, m.Ring, c), fmt.Sprintf("c%d", c)),
			k: intern(p.spec.Layout.Shard(s.KTokens, m.Ring, c), fmt.Sprintf("k%d", c)),
		}
		for i := range lanes {
			chunk := p.spec.Layout.Chunk(s.KTokens, m.Ring, c, i)
			g.lanes = append(g.lanes, intern(chunk, fmt.Sprintf("k%d%c", c, 'a'+i)))
		}
		for i := range m.Head {
			at := mesh.Coord{H: i, C: c}
			q := intern(p.spec.Layout.Home(s.QTokens, m, at), fmt.Sprintf("c%d.%d", c, i))
			k := intern(p.spec.Layout.Home(s.KTokens, m, at), fmt.Sprintf("k%d.%d", c, i))
			g.qRun, g.kRun = append(g.qRun, q), append(g.kRun, k)
			r := m.Rank(at)
			h.HomeQ[r], h.HomeK[r] = q, k
		}
		p.groups = append(p.groups, g)
	}
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
	b := NewBuilder(&p.header, p.spec.Mesh, p.spec.Options, pass, rank)
	b.groups = p.groups
	if pass == Forward {
		p.forward(b)
	} else {
		p.backward(b)
	}
	return b.Program(), nil
}

// forward: home q, kv -> exchange -> ring -> exchange -> home out.
func (p *Plan) forward(b *Builder) {
	head := p.spec.Heads.Gather(b,
		[]Block{b.Home(HomeKV, KV), b.Home(HomeQ, Q)}, []Role{HeadKV, HeadQ})
	out := p.spec.Ring.Forward(b, head[1], head[0])
	p.spec.Heads.Scatter(b, []Block{out}, []Role{HomeOut})
}

// backward: home dO -> exchange -> delta -> ring -> exchange -> home dq, dkv.
func (p *Plan) backward(b *Builder) {
	do := p.spec.Heads.Gather(b, []Block{b.Home(HomeDO, DO)}, []Role{Scratch})[0]
	q, kv := b.HeadSharded(HeadQ, Q), b.HeadSharded(HeadKV, KV)
	out := b.HeadSharded(HeadOut, Out)
	delta := b.Take(PoolState, 0, Delta, q.Set, q.Heads)
	if !delta.Empty {
		b.Read(do).Read(out).Write(delta).Emit(DeltaOp, b.Tick(0))
	}
	dq, dkv := p.spec.Ring.Backward(b, q, kv, out, do, delta)
	b.Release(delta)
	if p.spec.Mesh.Head > 1 {
		b.Release(do)
	}
	p.spec.Heads.Scatter(b, []Block{dkv, dq}, []Role{HomeDKV, HomeDQ})
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
