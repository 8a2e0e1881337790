package integration

import (
	"fmt"
	"math"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// task is a problem with all that can be asked of a plan, and the way to run it.
type task struct {
	tokens, keys int // keys 0: self attention
	docs         []int
	word         string    // mask by its word, inside each document
	slices       attn.Mask // in place of word
	heads        int
	kvHeads      int
	dim, vdim    int     // vdim 0: dim
	scale        float64 // times 1/sqrt(dim); 0: 1
	softCap      float64
	sink         bool
	dtype        tensors.DType
	seed         uint64

	mesh              mesh.Mesh
	layout, keyLayout mesh.Layout
	scheme            string // empty: ring
	ring              ringbus.Ring
	opt               plan.Options
	kernels           string // empty: the fastest
	live              bool   // on real actors, else in virtual time
	world             uint64 // seed of virtual time
}

// full fills in what was left out.
func (c task) full() task {
	if c.keys == 0 {
		c.keys = c.tokens
	}
	if c.word == "" && c.slices == nil {
		c.word = "causal"
	}
	if c.heads == 0 {
		c.heads = 1
	}
	if c.kvHeads == 0 {
		c.kvHeads = c.heads
	}
	if c.dim == 0 {
		c.dim = 8
	}
	if c.vdim == 0 {
		c.vdim = c.dim
	}
	if c.scale == 0 {
		c.scale = 1
	}
	if c.scheme == "" {
		c.scheme = "ring"
	}
	if c.layout == nil {
		c.layout = mesh.Zigzag
	}
	if c.mesh.Head == 0 {
		c.mesh = mesh.Mesh{Head: 1, Ring: max(c.mesh.Ring, 1), Placement: c.mesh.Placement}
	}
	c.seed = max(c.seed, 1)
	return c
}

// mask is what queries may see.
func (c *task) mask() (attn.Mask, error) {
	switch {
	case c.word == "":
		return c.slices, nil
	case c.keys != c.tokens:
		return crossMask(c.word, c.tokens, c.keys)
	}
	inner, err := attn.ParseMask(c.word)
	if err != nil || c.docs == nil {
		if err == nil {
			return inner(c.tokens), nil
		}
		return nil, err
	}
	return attn.Documents(c.docs, inner)
}

// crossMask is a mask of queries and keys that are two sequences.
func crossMask(word string, q, k int) (attn.Mask, error) {
	switch word {
	case "full":
		return attn.Full(q, k), nil
	case "causal":
		return attn.Causal(q, k), nil
	}
	return nil, fmt.Errorf("mask %q is of one sequence", word)
}

// axis is the scheme with the ring's choices.
func (c *task) axis() (plan.RingAxis, error) { return ringbus.Make(c.scheme, c.ring) }

func (c *task) logitScale() float64 { return c.scale / math.Sqrt(float64(c.dim)) }

// config is the gang that runs the task.
func (c *task) config() (kvloom.Config, error) {
	mask, err := c.mask()
	if err != nil {
		return kvloom.Config{}, err
	}
	axis, err := c.axis()
	if err != nil {
		return kvloom.Config{}, err
	}
	return kvloom.Config{
		Mesh: c.mesh, Layout: c.layout, Ring: axis, Options: c.opt, Kernels: c.kernels,
		Problems: []kvloom.Problem{{
			Tokens: c.tokens, KeyTokens: c.keys, Heads: c.heads, KVHeads: c.kvHeads, Dim: c.dim,
			VDim: c.vdim, Scale: c.logitScale(), Mask: mask, ElemBytes: c.dtype.Bytes(),
			AccBytes: c.dtype.AccBytes(), SoftCap: c.softCap, Sink: c.sink, KeyLayout: c.keyLayout,
		}},
	}, nil
}

// taskInputs draws the task's tensors, rounded to its dtype.
func taskInputs[T attn.Float](c *task) kvloom.Inputs[T] {
	draw := func(name string, n int) []T {
		x := tensors.Draw[T](c.seed, name, n)
		if c.dtype == tensors.BF16 {
			tensors.RoundBF16(x)
		}
		return x
	}
	in := kvloom.Inputs[T]{
		Q: draw("q", c.tokens*c.heads*c.dim), K: draw("k", c.keys*c.kvHeads*c.dim),
		V: draw("v", c.keys*c.kvHeads*c.vdim), DO: draw("do", c.tokens*c.heads*c.vdim),
	}
	if c.sink {
		in.Sink = draw("sink", c.heads)
		in.Sink[len(in.Sink)-1] = T(math.Inf(-1)) // none for this head
	}
	return in
}

// answer is what the dense oracle says.
type answer struct {
	kvloom.Outputs[float64]
	maxLogit float64
}

// oracle computes the task densely in float64.
func oracle(c *task, in kvloom.Inputs[float64], par attn.Parallel) (answer, error) {
	mask, err := c.mask()
	if err != nil {
		return answer{}, err
	}
	p := &attn.Problem{
		QTokens: c.tokens, KTokens: c.keys, QHeads: c.heads, KHeads: c.kvHeads, D: c.dim,
		DV: c.vdim, Scale: c.logitScale(), SoftCap: c.softCap, Sink: in.Sink, Mask: mask, Q: in.Q,
		K: in.K, V: in.V,
	}
	if err := p.Validate(); err != nil {
		return answer{}, err
	}
	a := answer{maxLogit: attn.MaxLogit(p, par)}
	a.Out, a.LSE = attn.Dense(p, par)
	a.DQ, a.DK, a.DV, a.DSink = attn.DenseBackward(p, in.DO, a.Out, a.LSE, par)
	return a, nil
}

// widened is inputs in float64, exactly.
func widened[T attn.Float](in kvloom.Inputs[T]) kvloom.Inputs[float64] {
	out := kvloom.Inputs[float64]{Q: wide(in.Q), K: wide(in.K), V: wide(in.V), DO: wide(in.DO)}
	if in.Sink != nil {
		out.Sink = wide(in.Sink)
	}
	return out
}

// gatesOf are the gates of out and lse, and of the gradients.
func (c *task) gatesOf(maxLogit float64) (forward, backward, keys float64) {
	forward, backward = attn.BaseF32, attn.BaseF32
	switch c.dtype {
	case tensors.F64:
		forward, backward = attn.BaseF64, attn.BaseF64
	case tensors.BF16:
		forward, backward = attn.BaseBF16, attn.BaseBF16Grad
	}
	keys = backward
	if c.opt.NarrowDKV {
		// One rounding of 2^-9 a hop, of parts that may be larger than their sum.
		keys = max(keys, attn.BaseBF16Grad)
	}
	return attn.Gate(forward, maxLogit), attn.Gate(backward, maxLogit), attn.Gate(keys, maxLogit)
}
