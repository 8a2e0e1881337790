package kvloom

import (
	"fmt"
	"math"
	"time"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
	"go.uber.org/zap"
)

// Defaults of a Config.
const (
	DefaultDeadline = 30 * time.Second
	DefaultWindow   = 4
)

// Problem is one attention layer's shape: queries [Tokens, Heads, Dim], keys [KeyTokens, KVHeads,
// Dim], values [KeyTokens, KVHeads, VDim].
type Problem struct {
	Tokens, KeyTokens int // KeyTokens 0: as Tokens
	Heads, KVHeads    int
	Dim, VDim         int       // VDim 0: as Dim
	Scale             float64   // of q.k, usually 1/sqrt(Dim); 0 weighs all keys alike
	Mask              attn.Mask // such as attn.Causal(Tokens, KeyTokens)
	// ElemBytes is the width of q, k, v, dO and out on devices and links, AccBytes that of sums; 0
	// are those of the session's type. 2 in a session of float32 is bf16: values are rounded to it
	// on the way in, results at the end, and everything between is summed in float32.
	ElemBytes, AccBytes int
	SoftCap             float64 // of logits: cap * tanh(logit / cap); 0 is none
	Sink                bool    // a logit a head joins each row's sum: State.SetSink, Inputs.Sink
	// Layout and Ring are Config's if nil, as are Options. KeyLayout deals keys that are a sequence
	// of their own; nil is Layout.
	Layout, KeyLayout mesh.Layout
	Ring              plan.RingAxis
	Options           *plan.Options
}

// Config is a gang of ranks and what they will attend.
type Config struct {
	Mesh    mesh.Mesh
	Layout  mesh.Layout // nil is mesh.Zigzag
	Options plan.Options
	// Plans is how many plans are kept for problems that come again; 0 is DefaultPlans.
	Plans int
	// Ring is the scheme of the ring axis: ringbus.Ring (inner window, way of dKV, lanes), or any
	// other; nil is the plain ring.
	Ring     plan.RingAxis
	Problems []Problem // that Run names by index; more can come with Session.Attention
	// Deadline is how long a rank may wait without progress before the round is aborted. The call
	// ends at most a quarter of it later when a rank is silent, and at most two and a quarter later
	// when all answer but an op of a device does not end: a long op may yet. 0 is DefaultDeadline.
	Deadline time.Duration
	// Window is how many rounds a rank may be ahead of the slowest; 0 is DefaultWindow.
	Window int
	// Workers of the shared pool; 0 is GOMAXPROCS.
	Workers int
	// Kernels names the CPU kernels: portable, avx2, avx512, avx512bf16, amx, or auto (or nothing)
	// for the fastest that the machine has. One plan and one kind of kernels give the same bits.
	// auto and amx ask Linux for the use of AMX's tiles, if there are any, for the whole process.
	Kernels string
	// MemoryLimit is the most tensor bytes of all ranks together; 0 is no limit.
	MemoryLimit int64
	// Logger gets the actors' words; nil is silence.
	Logger *zap.Logger
	// Progress is told of every round that a rank has done, on an actor's goroutine: it must return
	// at once.
	Progress func(rank, round int32)
	// Trace is told of every op and every block when it is over, one call at a time, on an actor's
	// or a worker's goroutine: it must return soon.
	Trace func(TraceEvent)
	// Pace makes devices and links take modelled time on the wall clock; nil is full speed.
	Pace *Pace
}

// Pace is modelled time: what an op takes at least on its device, and what a block takes on its
// link, which carries one block at a time in order.
type Pace struct {
	Op   func(rank, round, op int32) time.Duration
	Link func(src, dst, lane, round, op int32) time.Duration
}

// spec is the plan's side of problem i.
func (c *Config) spec(i int) plan.Spec {
	p := c.Problems[i]
	if p.KeyTokens == 0 {
		p.KeyTokens = p.Tokens
	}
	if p.VDim == 0 {
		p.VDim = p.Dim
	}
	spec := plan.Spec{
		Shape: plan.Shape{
			QTokens: p.Tokens, KTokens: p.KeyTokens, QHeads: p.Heads, KHeads: p.KVHeads,
			Dim: p.Dim, VDim: p.VDim, ElemBytes: p.ElemBytes, AccBytes: p.AccBytes,
			Scale: p.Scale, Mask: p.Mask, SoftCap: p.SoftCap, Sink: p.Sink,
		},
		Mesh: c.Mesh, Layout: c.Layout, KeyLayout: p.KeyLayout, Options: c.Options,
		Ring: c.axis(), Heads: headshuffle.AllToAll{},
	}
	if p.Layout != nil {
		spec.Layout = p.Layout
	}
	if p.Ring != nil {
		spec.Ring = p.Ring
	}
	if p.Options != nil {
		spec.Options = *p.Options
	}
	return spec
}

// axis is the scheme of the ring axis.
func (c *Config) axis() plan.RingAxis {
	if c.Ring == nil {
		return ringbus.Ring{}
	}
	return c.Ring
}

// Plan builds and checks the plan of problem i, without starting anything. Errors name what is
// wrong and what would work.
func (c *Config) Plan(i int) (*plan.Plan, error) {
	spec, err := c.checked(i)
	if err != nil {
		return nil, err
	}
	return plan.New(spec)
}

// checked is the spec of problem i, which must exist and have a mask.
func (c *Config) checked(i int) (plan.Spec, error) {
	if i < 0 || i >= len(c.Problems) {
		return plan.Spec{}, fmt.Errorf("kvloom: problem %d of %d does not exist", i,
			len(c.Problems))
	}
	if c.Problems[i].Mask == nil {
		return plan.Spec{}, fmt.Errorf("kvloom: problem %d has no mask: give one, such as "+
			"attn.Causal(%d, %d) or attn.Full; the empty mask attn.Mask{} allows nothing", i,
			c.Problems[i].Tokens, c.Problems[i].Tokens)
	}
	return c.spec(i), nil
}

// MaxOps is the most ops of a plan that one process holds for its ranks, some 5 GB, and of the
// plans together that it keeps for problems that come again.
const MaxOps = 1 << 25

// opsOf is about how many ops the ranks of a plan have together: for each head chunk up to 12 a
// ring step and 8 a piece.
func opsOf(s *plan.Spec) int {
	return s.Mesh.Ranks() * max(s.Options.HeadChunks, 1) * (12*s.Mesh.Ring + 8*s.Mesh.Head)
}

func tooManyOps(s *plan.Spec, n int) error {
	return fmt.Errorf("mesh %dx%d in %d head chunks has about %d ops for its %d ranks, the limit "+
		"of one process is %d: use a shorter ring, fewer ranks or fewer chunks", s.Mesh.Head,
		s.Mesh.Ring, max(s.Options.HeadChunks, 1), n, s.Mesh.Ranks(), MaxOps)
}

func (c Config) withDefaults() Config {
	if c.Deadline == 0 {
		c.Deadline = DefaultDeadline
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Plans == 0 {
		c.Plans = DefaultPlans
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

func (c *Config) validate() error {
	switch {
	case c.Mesh.Validate() != nil:
		return fmt.Errorf("kvloom: %w", c.Mesh.Validate())
	case c.axis().Validate(c.Mesh) != nil:
		return fmt.Errorf("kvloom: %w", c.axis().Validate(c.Mesh))
	case opsOf(&plan.Spec{Mesh: c.Mesh, Options: c.Options}) > MaxOps:
		spec := plan.Spec{Mesh: c.Mesh, Options: c.Options}
		return fmt.Errorf("kvloom: %w", tooManyOps(&spec, opsOf(&spec)))
	case c.Plans < 1 || c.Plans > math.MaxInt16:
		return fmt.Errorf("kvloom: %d plans to keep: use 1 to %d", c.Plans, math.MaxInt16)
	case c.Deadline < time.Millisecond:
		return fmt.Errorf("kvloom: deadline %v is below the limit of 1ms", c.Deadline)
	case c.Window < 1 || c.Window > math.MaxInt16:
		return fmt.Errorf("kvloom: window %d: use 1 to %d rounds", c.Window, math.MaxInt16)
	}
	return nil
}
