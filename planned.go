package kvloom

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"sync"

	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
)

// Limits of the plans that a session keeps and builds ahead.
const (
	DefaultPlans = 16 // kept for reuse when Config.Plans is 0
	MaxAhead     = 8  // prepared and not asked for; then the first of those that are made goes
)

// layer is the plan of a problem, proven and ready to run.
type layer struct {
	plan  *plan.Plan
	ready *rank.Compiled
	links []int // by rank: the transfers of its longest pass
	ops   int
}

// linksOf counts the transfers of each rank's longest pass.
func linksOf(c *rank.Compiled, ranks int) []int {
	out := make([]int, ranks)
	for _, scripts := range c.Scripts {
		for r := range scripts {
			n := 0
			for i := range scripts[r].Program.Ops {
				if scripts[r].Program.Ops[i].Kind.Link() {
					n++
				}
			}
			out[r] = max(out[r], n)
		}
	}
	return out
}

// planKey names what a plan follows from.
type planKey [sha256.Size]byte

// keyOf is the key of a spec: its problem, mesh, layouts by name, options and axes with all their
// fields, also those that New would refuse.
func keyOf(spec *plan.Spec) planKey {
	w := sha256.New()
	s := &spec.Shape
	fmt.Fprintf(w, "%d %d %d %d %d %d %d %d %v %v %v\n", s.QTokens, s.KTokens, s.QHeads, s.KHeads,
		s.Dim, s.VDim, s.ElemBytes, s.AccBytes, s.Scale, s.SoftCap, s.Sink)
	fmt.Fprintf(w, "%d %d %v\n%v\n%v\n%#v\n%#v\n%#v\n", spec.Mesh.Head, spec.Mesh.Ring,
		spec.Mesh.Placement, spec.Layout, spec.KeyLayout, spec.Options, spec.Ring, spec.Heads)
	writeMask(w, spec)
	return planKey(w.Sum(nil))
}

func writeMask(w hash.Hash, spec *plan.Spec) {
	var buf [48]byte
	for _, s := range spec.Shape.Mask {
		for i, x := range [...]int{s.Q0, s.Q1, s.K0, s.K1, s.Lo, s.Hi} {
			binary.LittleEndian.PutUint64(buf[8*i:], uint64(x))
		}
		w.Write(buf[:])
	}
}

// planned is a plan that is there or being made.
type planned struct {
	done  chan struct{} // closed when layer or err is set
	layer *layer
	err   error
	used  uint64 // when it was last asked for; 0: never
	order uint64 // of those that were prepared
}

// made tells whether the plan is there, or what was wrong with it.
func (p *planned) made() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// planCache keeps plans by what they follow from, the last used ones, and makes plans ahead of
// their use, one at a time. It has a lock of its own: plans are made while rounds run.
type planCache struct {
	ctx    context.Context
	cancel context.CancelFunc
	build  sync.WaitGroup
	turn   chan struct{} // one build ahead at a time

	mu     sync.Mutex
	most   int
	clock  uint64
	order  uint64
	plans  map[planKey]*planned
	closed bool
}

func newPlanCache(most int) *planCache {
	c := &planCache{most: most, plans: map[planKey]*planned{}, turn: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// close ends what is being built and waits for it.
func (c *planCache) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.build.Wait()
}

// get gives the plan of a spec: kept, or being made, or made now.
func (c *planCache) get(ctx context.Context, spec plan.Spec) (*layer, error) {
	key := keyOf(&spec)
	c.mu.Lock()
	p, ok := c.plans[key]
	if !ok {
		p = &planned{done: make(chan struct{})}
		c.plans[key] = p
	}
	c.clock++
	p.used = c.clock
	c.mu.Unlock()
	if !ok {
		c.fill(ctx, p, spec)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.err != nil && c.plans[key] == p {
		delete(c.plans, key)
	}
	c.trim()
	return p.layer, p.err
}

// prepare begins to make the plan of a spec, unless it is there.
func (c *planCache) prepare(spec plan.Spec) error {
	key := keyOf(&spec)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if _, ok := c.plans[key]; ok {
		return nil
	}
	if !c.makeRoom() {
		return fmt.Errorf("kvloom: %d plans are being made ahead, the limit is %d: call Attention "+
			"for some of them first", MaxAhead, MaxAhead)
	}
	c.order++
	p := &planned{done: make(chan struct{}), order: c.order}
	c.plans[key] = p
	c.build.Add(1)
	go func() {
		defer c.build.Done()
		c.turn <- struct{}{}
		defer func() { <-c.turn }()
		c.fill(c.ctx, p, spec)
	}()
	return nil
}

// makeRoom drops the plan that was prepared first, is made and was never asked for, if as many as
// may be are ahead. It is false when all of them are still being made.
func (c *planCache) makeRoom() bool {
	ahead := 0
	var oldest planKey
	at := uint64(0)
	for key, p := range c.plans {
		if p.used > 0 {
			continue
		}
		ahead++
		if p.made() && (at == 0 || p.order < at) {
			oldest, at = key, p.order
		}
	}
	if ahead < MaxAhead {
		return true
	}
	if at > 0 {
		delete(c.plans, oldest)
	}
	return at > 0
}

// fill makes a plan: built, proven, ready to run.
func (c *planCache) fill(ctx context.Context, p *planned, spec plan.Spec) {
	defer close(p.done)
	if err := ctx.Err(); err != nil {
		p.err = errors.Join(ErrClosed, err)
		return
	}
	if n := opsOf(&spec); n > MaxOps {
		p.err = tooManyOps(&spec, n)
		return
	}
	built, err := plan.New(spec)
	if err != nil {
		p.err = err
		return
	}
	ready, err := prove(ctx, built, built.Seal)
	if err != nil {
		p.err = err
		return
	}
	p.layer = &layer{plan: built, ready: ready, links: linksOf(ready, spec.Mesh.Ranks()),
		ops: opsOf(&spec)}
}

// trim drops the plans that were used longest ago, beyond the limits of their number and of their
// ops together; those in use by an Attention live on with it.
func (c *planCache) trim() {
	for {
		used, ops := c.kept()
		if used <= c.most && (ops <= MaxOps || used == 1) {
			return
		}
		var oldest planKey
		at := uint64(0)
		for key, p := range c.plans {
			if p.used > 0 && (at == 0 || p.used < at) {
				oldest, at = key, p.used
			}
		}
		delete(c.plans, oldest)
	}
}

// kept counts the plans that were asked for, and their ops.
func (c *planCache) kept() (plans, ops int) {
	for _, p := range c.plans {
		if p.used == 0 {
			continue
		}
		plans++
		if p.made() && p.layer != nil {
			ops += p.layer.ops
		}
	}
	return plans, ops
}
