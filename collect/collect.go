package collect

import (
	"crypto/sha256"
	"fmt"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// Kind is what a collective does with the vectors of a group of G ranks.
type Kind uint8

// The kinds. Run i is the i-th of G near-equal runs of the elements (mesh.CutEven); ranks and runs
// are in the order of the group.
const (
	// AllReduce: each rank brings a vector, all get the sum of all.
	AllReduce Kind = iota
	// ReduceScatter: each rank brings a vector, rank i gets run i of the sum.
	ReduceScatter
	// AllGather: rank i brings run i, all get the whole vector.
	AllGather
)

// String is the kind's name in texts and errors.
func (k Kind) String() string {
	switch k {
	case AllReduce:
		return "all-reduce"
	case ReduceScatter:
		return "reduce-scatter"
	case AllGather:
		return "all-gather"
	}
	return fmt.Sprintf("?%d", uint8(k))
}

// Axis says which ranks are a group. Every rank of a mesh is in one group of each axis.
type Axis uint8

// The axes.
const (
	Head  Axis = iota // one ring index, all head indices
	Ring              // one head index, all ring indices
	World             // all ranks
)

// String is the axis's name in texts and errors.
func (a Axis) String() string {
	switch a {
	case Head:
		return "head"
	case Ring:
		return "ring"
	case World:
		return "world"
	}
	return fmt.Sprintf("?%d", uint8(a))
}

// size is the ranks of a group.
func (a Axis) size(m mesh.Mesh) int {
	switch a {
	case Head:
		return m.Head
	case Ring:
		return m.Ring
	}
	return m.Ranks()
}

// rank is the member of a group at a place. Places are in rising rank order.
func (a Axis) rank(m mesh.Mesh, group, place int) int {
	switch a {
	case Head:
		return m.Rank(mesh.Coord{H: place, C: group})
	case Ring:
		return m.Rank(mesh.Coord{H: group, C: place})
	}
	return place
}

// seat is the inverse of rank.
func (a Axis) seat(m mesh.Mesh, rank int) (group, place int) {
	at := m.Coord(rank)
	switch a {
	case Head:
		return at.C, at.H
	case Ring:
		return at.H, at.C
	}
	return 0, rank
}

// Spec is everything that a collective's plan follows from.
type Spec struct {
	Kind     Kind
	Mesh     mesh.Mesh
	Axis     Axis
	Elements int // of the vector of each group, at least 1
	// ElemBytes is the width of what ranks bring, AccBytes that of sums; 0 is ElemBytes. An
	// all-gather adds nothing, and gives elements as they came.
	ElemBytes, AccBytes int
}

// withDefaults fills in the width of sums.
func (s Spec) withDefaults() Spec {
	if s.AccBytes == 0 || s.Kind == AllGather {
		s.AccBytes = s.ElemBytes
	}
	return s
}

// validate refuses what cannot be, with what would work.
func (s *Spec) validate() error {
	if err := s.Mesh.Validate(); err != nil {
		return err
	}
	if s.Kind > AllGather {
		return fmt.Errorf("kind %v is unknown: use all-reduce, reduce-scatter or all-gather",
			s.Kind)
	}
	if s.Axis > World {
		return fmt.Errorf("axis %v is unknown: use head, ring or world", s.Axis)
	}
	size := s.Axis.size(s.Mesh)
	most := plan.MaxTokens / (s.Mesh.Ranks() / size)
	switch {
	case size > plan.MaxHeads:
		return fmt.Errorf("a group of %d ranks (axis %v) is above the limit of %d: use a smaller "+
			"axis", size, s.Axis, plan.MaxHeads)
	case s.Elements < 1 || s.Elements > most:
		return fmt.Errorf("elements %d: use 1 to %d with %d groups (axis %v), and cut a longer "+
			"vector into parts", s.Elements, most, s.Mesh.Ranks()/size, s.Axis)
	case s.ElemBytes < 1 || s.AccBytes < s.ElemBytes:
		return fmt.Errorf("element of %d bytes with a sum of %d: a sum is at least as wide as its "+
			"element", s.ElemBytes, s.AccBytes)
	}
	return nil
}

// Plan gives every rank its program of a collective, on demand. It is a plan.Source of one pass,
// plan.Forward; immutable and safe for concurrent use.
//
//	             brings, slot plan.VecIn (tensor Vec)     gets, slot plan.SumOut (tensor Sum)
//	all-reduce       all elements [Elements]                  all elements [Elements]
//	reduce-scatter   all elements [Elements]                  its run      [hi-lo]
//	all-gather       its run      [hi-lo]                     all elements [Elements]
//
// lo and hi are Run's. A rank whose run is empty has no slot for it: it brings empty parts and has
// no output.
type Plan struct {
	spec   Spec
	header plan.Header
	size   int
	groups []group
}

// group is the token sets of a group's vector: elements group*Elements and on.
type group struct {
	whole plan.SetID
	runs  []plan.SetID // by place
}

var _ plan.Source = (*Plan)(nil)

// New checks a spec and makes its plan. Errors name what is wrong and what would work.
func New(spec Spec) (*Plan, error) {
	spec = spec.withDefaults()
	if err := spec.validate(); err != nil {
		return nil, fmt.Errorf("collect: %v: %w", spec.Kind, err)
	}
	p := &Plan{spec: spec, size: spec.Axis.size(spec.Mesh)}
	p.fillSets()
	return p, nil
}

// fillSets makes the table of element sets, each content once, and says who brings and gets which.
func (p *Plan) fillSets() {
	s, ranks := &p.spec, p.spec.Mesh.Ranks()
	all := s.Elements * (ranks / p.size)
	contributors := p.size
	if s.Kind == AllGather {
		contributors = 1
	}
	p.header = plan.Header{
		Shape: plan.Shape{
			QTokens: all, KTokens: all, QHeads: contributors, KHeads: 1,
			ElemBytes: s.ElemBytes, AccBytes: s.AccBytes,
		},
		Ranks: ranks, Sets: []mesh.Set{nil}, Names: []string{"none"},
		HomeQ: make([]plan.SetID, ranks), HomeK: make([]plan.SetID, ranks),
	}
	for g := range ranks / p.size {
		lo := g * s.Elements
		gr := group{whole: p.addSet(lo, lo+s.Elements, fmt.Sprintf("g%d", g))}
		for i := range p.size {
			a, b := mesh.CutEven(s.Elements, p.size, i)
			run := plan.SetID(0)
			switch b - a {
			case 0:
			case s.Elements:
				run = gr.whole
			default:
				run = p.addSet(lo+a, lo+b, fmt.Sprintf("g%d.%d", g, i))
			}
			gr.runs = append(gr.runs, run)
			r := s.Axis.rank(s.Mesh, g, i)
			p.header.HomeQ[r], p.header.HomeK[r] = gr.whole, gr.whole
			if s.Kind == AllGather {
				p.header.HomeQ[r] = run
			}
			if s.Kind == ReduceScatter {
				p.header.HomeK[r] = run
			}
		}
		p.groups = append(p.groups, gr)
	}
}

func (p *Plan) addSet(lo, hi int, name string) plan.SetID {
	h := &p.header
	h.Sets = append(h.Sets, mesh.Set{{Start: lo, Stride: 1, Count: hi - lo}})
	h.Names = append(h.Names, name)
	return plan.SetID(len(h.Sets) - 1)
}

// Header is what all programs share.
func (p *Plan) Header() *plan.Header { return &p.header }

// Spec is what the plan was made of, defaults filled in.
func (p *Plan) Spec() Spec { return p.spec }

// Passes is the one pass of a collective.
func (p *Plan) Passes() []plan.Pass { return []plan.Pass{plan.Forward} }

// Hash names the plan: Seal of the programs that the plan itself writes.
func (p *Plan) Hash() plan.Hash {
	hashes := make([]plan.Hash, p.header.Ranks)
	for r := range hashes {
		hashes[r] = p.program(r).Hash(&p.header)
	}
	return p.Seal(hashes)
}

// Seal is the name of the plan with programs of these hashes, in rank order: sha256 of them and of
// everything that the plan follows from.
func (p *Plan) Seal(programs []plan.Hash) plan.Hash {
	w := sha256.New()
	s := &p.spec
	fmt.Fprintf(w, "collective %v %v %d %d %d\nmesh %d %d %v\n", s.Kind, s.Axis, s.Elements,
		s.ElemBytes, s.AccBytes, s.Mesh.Head, s.Mesh.Ring, s.Mesh.Placement)
	for _, sum := range programs {
		w.Write(sum[:])
	}
	return plan.Hash(w.Sum(nil))
}

// Program writes the program of one rank.
func (p *Plan) Program(pass plan.Pass, rank int) (*plan.Program, error) {
	if pass != plan.Forward || rank < 0 || rank >= p.header.Ranks {
		return nil, fmt.Errorf("collect: %v program of rank %d: a collective has forward ones of "+
			"ranks 0 to %d", pass, rank, p.header.Ranks-1)
	}
	return p.program(rank), nil
}

// Group is the ranks of a rank's group, in the order in which their parts are added, and the rank's
// place among them.
func (p *Plan) Group(rank int) (ranks []int, place int) {
	g, place := p.spec.Axis.seat(p.spec.Mesh, rank)
	for i := range p.size {
		ranks = append(ranks, p.spec.Axis.rank(p.spec.Mesh, g, i))
	}
	return ranks, place
}

// Run is the rank's own run [lo,hi) of its group's vector: what it gets of a reduce-scatter and
// brings to an all-gather.
func (p *Plan) Run(rank int) (lo, hi int) {
	_, place := p.spec.Axis.seat(p.spec.Mesh, rank)
	return mesh.CutEven(p.spec.Elements, p.size, place)
}
