package choose

import (
	"fmt"
	"strings"

	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// Free says what may be chosen.
type Free struct{ Layout, Scheme, Rotate bool }

// Any reports whether there is anything to choose.
func (f Free) Any() bool { return f.Layout || f.Scheme || f.Rotate }

// Question is a problem and what of its plan is open.
type Question struct {
	// Spec is the problem, the mesh and the options; of its Layout and Ring nothing is read. A
	// KeyLayout is kept; Heads nil is headshuffle.AllToAll.
	Spec plan.Spec
	Free Free
	// Layout (a word for the function Layout), Scheme (ringbus.Names) and Ring are as asked for;
	// of what is free the value is not read.
	Layout, Scheme string
	Ring           ringbus.Ring
	Starts         []int     // of packed documents; nil: none
	Weights        []float64 // for balanced; nil: those of the topology
	Topology       *plan.Topology
	Passes         []plan.Pass // that are priced, one round each; nil: both
	// RankMemory is the most tensor bytes that a rank may hold; 0 is no limit.
	RankMemory int64
	// MaxOps is the most ops that are priced; 0 is DefaultMaxOps.
	MaxOps int
}

// DefaultMaxOps is the most ops of all candidates together that are priced: some tens of seconds.
// Where that is not enough for all of them nothing is chosen, as the best one may be left out.
const DefaultMaxOps = 1 << 25

// Row is one candidate. Of one that was refused only the names are known, and its figures if it was
// refused for its memory.
type Row struct {
	Layout, Scheme, Rotate string
	// Nanos is the modelled time until the last rank is done. Compute and exposed are those of that
	// rank: its device's own time, and its waits.
	Nanos, ComputeNanos, ExposedNanos int64
	SentBytes                         int64   // of all ranks
	PeakBytes                         int64   // the most that a rank holds
	Busiest                           int     // the rank that computes longest
	WorkRatio                         float64 // its time over the mean of all ranks
	Refused                           string  // why it cannot be; empty: it can
	OverMemory                        bool    // it was refused for the memory of a rank
	Spec                              plan.Spec
	Ring                              ringbus.Ring // of Spec.Ring
}

// Name is the candidate in three words.
func (r *Row) Name() string { return r.Layout + " " + r.Scheme + " " + r.Rotate }

// Table has all candidates in their order.
type Table struct {
	Rows []Row
	Best int    // its row
	Why  string // in a sentence
}

// Chosen is the best candidate.
func (t *Table) Chosen() *Row { return &t.Rows[t.Best] }

// Possible is how many candidates were priced and not refused: those of which one is chosen.
func (t *Table) Possible() int {
	n := 0
	for i := range t.Rows {
		if t.Rows[i].Refused == "" {
			n++
		}
	}
	return n
}

// Choose prices the candidates. The error is an *Impossible when none of them can be.
func Choose(q Question) (*Table, error) {
	if q.Topology == nil {
		q.Topology = Usual(q.Spec.Mesh.Ranks())
	}
	if q.Weights == nil {
		q.Weights = Weights(q.Topology, q.Spec.Mesh)
	}
	if q.Spec.Heads == nil {
		q.Spec.Heads = headshuffle.AllToAll{}
	}
	if q.MaxOps == 0 {
		q.MaxOps = DefaultMaxOps
	}
	t := &Table{Rows: q.candidates(), Best: -1}
	p := &pricing{question: &q, left: q.MaxOps, dealt: map[string]dealt{}}
	for i := range t.Rows {
		r := &t.Rows[i]
		err := p.price(r)
		if p.full {
			return nil, q.tooMany(i, len(t.Rows))
		}
		if err != nil {
			r.Refused = strings.TrimPrefix(err.Error(), "plan: ")
			continue
		}
		if t.Best < 0 || r.Nanos < t.Rows[t.Best].Nanos {
			t.Best = i
		}
	}
	if t.Best < 0 {
		return nil, &Impossible{t.Rows, q.RankMemory}
	}
	t.Why = t.why(q.Free)
	return t, nil
}

// candidates are the combinations of what is free, scheme by scheme.
func (q *Question) candidates() []Row {
	layouts, schemes := []string{q.Layout}, []string{q.Scheme}
	if q.Free.Layout {
		layouts = q.layouts()
	}
	if q.Free.Scheme {
		schemes = ringbus.Names()
	}
	var out []Row
	for _, scheme := range schemes {
		for _, rotate := range q.rotations(scheme) {
			for _, layout := range layouts {
				r := Row{Layout: layout, Scheme: scheme, Rotate: rotate.String(), Ring: q.Ring}
				r.Ring.Rotate = rotate
				if scheme == passQ {
					r.Ring.Rotate = ringbus.RotateKV // it has one way: one plan, one name
				}
				out = append(out, r)
			}
		}
	}
	return out
}

// passQ is the scheme whose backward pass sends queries round whatever is asked for.
const passQ = "passq"

// rotations are those to try with a scheme. Without a backward pass they are all the same.
func (q *Question) rotations(scheme string) []ringbus.Rotation {
	kv, rq := ringbus.RotateKV, ringbus.RotateQ
	switch {
	case scheme == passQ:
		return []ringbus.Rotation{rq}
	case !q.Free.Rotate:
		return []ringbus.Rotation{q.Ring.Rotate}
	case scheme == ringbus.Names()[0] && q.backward():
		return []ringbus.Rotation{kv, rq}
	}
	return []ringbus.Rotation{kv}
}

func (q *Question) backward() bool {
	for _, p := range q.Passes {
		if p == plan.Backward {
			return true
		}
	}
	return q.Passes == nil
}

// pricing is one walk through the candidates.
type pricing struct {
	question *Question
	left     int // ops that may still be priced
	priced   bool
	full     bool // there is no room for another candidate
	dealt    map[string]dealt
}

// dealt is what came of a layout's word.
type dealt struct {
	layout mesh.Layout
	err    error
}

// price fills in a row, or says why it cannot be.
func (p *pricing) price(r *Row) error {
	q := p.question
	ops := q.ops()
	d, ok := p.dealt[r.Layout]
	if !ok {
		d.layout, d.err = Layout(r.Layout, Sequence{&q.Spec.Shape, q.Spec.Mesh, q.Starts,
			q.Weights})
		p.dealt[r.Layout] = d
	}
	if d.err != nil {
		return d.err
	}
	axis, err := ringbus.Make(r.Scheme, r.Ring)
	if err != nil {
		return err
	}
	r.Spec = q.Spec
	r.Spec.Layout, r.Spec.Ring = d.layout, axis
	src, err := plan.New(r.Spec)
	if err != nil {
		return err
	}
	if p.full = p.priced && ops > p.left; p.full {
		return nil
	}
	e, err := plan.Cost(src, q.Topology, plan.CostOptions{Passes: q.Passes})
	if err != nil {
		return err
	}
	p.priced = true
	p.left -= ops
	r.account(e)
	return r.fits(q.RankMemory)
}

// tooMany is the error of a choice among more than can be priced.
func (q *Question) tooMany(done, all int) error {
	return fmt.Errorf("choose: %d candidates of some %d ops each cannot all be priced: the "+
		"limit is "+
		"%d ops together, and the best may be among the last %d; name a layout, a scheme or a "+
		"rotation", all, q.ops(), q.MaxOps, all-done)
}

// ops is about how many ops the plan of a candidate has: up to 12 a ring step and 8 a piece, in
// each pass.
func (q *Question) ops() int {
	passes := len(q.Passes)
	if q.Passes == nil {
		passes = 2
	}
	m := q.Spec.Mesh
	return passes * m.Ranks() * (12*m.Ring + 8*m.Head) * max(q.Spec.Options.HeadChunks, 1)
}

// account takes over what an estimate says.
func (r *Row) account(e *plan.Estimate) {
	s := &e.Ranks[e.Slowest]
	r.Nanos, r.ComputeNanos, r.ExposedNanos = e.Nanos, s.ComputeNanos, s.ExposedNanos
	most, sum := int64(-1), int64(0)
	for i := range e.Ranks {
		x := &e.Ranks[i]
		r.SentBytes += x.BytesBy(plan.LocalLink) + x.BytesBy(plan.RemoteLink)
		r.PeakBytes = max(r.PeakBytes, x.PeakBytes)
		if sum += x.ComputeNanos; x.ComputeNanos > most {
			most, r.Busiest = x.ComputeNanos, i
		}
	}
	r.WorkRatio = 1
	if sum > 0 {
		r.WorkRatio = float64(most) * float64(len(e.Ranks)) / float64(sum)
	}
}

// fits refuses a plan that a rank has not the memory for.
func (r *Row) fits(limit int64) error {
	if limit == 0 || r.PeakBytes <= limit {
		return nil
	}
	r.OverMemory = true
	return fmt.Errorf("a rank holds up to %s, its memory is %s", bytesText(r.PeakBytes),
		bytesText(limit))
}
