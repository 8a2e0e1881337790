package plan

import (
	"fmt"
	"math"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// Limits of a plan's text. An error about one names it and the value.
const (
	MaxNameBytes    = 64      // of a token set's name
	MaxMaskSlices   = 1 << 16 // of a plan
	MaxSets         = 1 << 20 // of a plan
	MaxSpans        = 1 << 24 // of all token sets of a plan
	MaxProgramSlots = 1 << 20
	MaxProgramOps   = 1 << 22
	MaxProgramRefs  = 1 << 26 // operands and dependencies of all ops of a program, each
	MaxProgramBytes = 1 << 60 // of all slots of a program
	maxElemBytes    = 16
)

// Parsed is a plan that was read from its text. It is immutable and safe for concurrent use. It may
// be anything that can be written down: give it to Verify before it is used.
type Parsed struct {
	header   Header
	passes   []Pass
	programs [2][]*Program // by pass, rank
}

// Header is what all programs share.
func (p *Parsed) Header() *Header { return &p.header }

// Passes are the passes that the text has programs for.
func (p *Parsed) Passes() []Pass { return p.passes }

// Program is the program of a rank in a pass.
func (p *Parsed) Program(pass Pass, rank int) (*Program, error) {
	if pass > Backward || rank < 0 || rank >= len(p.programs[pass]) {
		return nil, fmt.Errorf("plan: the text has no %v program of rank %d", pass, rank)
	}
	return p.programs[pass][rank], nil
}

// ParsePlan reads the text of AppendPlan, and besides it only empty lines and lines that begin with
// #. It is strict: one space between words, numbers without leading zeros, ops and slots numbered
// from 0, programs in order. Errors name the line, what stands there and what was expected. What
// the programs do is not judged: that is Verify's.
func ParsePlan(data []byte) (*Parsed, error) {
	p := &parser{data: data, plan: &Parsed{}, names: map[string]SetID{noneName: 0}}
	p.next()
	p.expect(textVersion)
	p.end()
	p.head()
	for _, pass := range p.plan.passes {
		for rank := range p.plan.header.Ranks {
			prog := p.program(pass, rank)
			if p.err != nil {
				return nil, p.err
			}
			p.plan.programs[pass] = append(p.plan.programs[pass], prog)
		}
	}
	if p.more {
		p.fail("the end, after the last program")
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.plan, nil
}

// head reads all lines before the first program.
func (p *parser) head() {
	h := &p.plan.header
	p.shape(&h.Shape)
	first := p.n
	for p.has("mask ") {
		if len(h.Mask) == MaxMaskSlices {
			p.limit("mask slices", MaxMaskSlices)
		}
		h.Mask = append(h.Mask, p.slice())
		p.end()
	}
	if p.err == nil {
		if err := h.Mask.Validate(h.QTokens, h.KTokens); err != nil {
			p.err = fmt.Errorf("plan: line %d: the mask that begins here: %w", first, err)
		}
	}
	h.Sets, h.Names = []mesh.Set{nil}, []string{noneName}
	for spans := 0; p.has("set "); {
		spans += p.set(h, spans)
	}
	for p.has("home ") {
		if h.Ranks == mesh.MaxRanks {
			p.limit("ranks", mesh.MaxRanks)
		}
		p.number("the rank", int64(h.Ranks), int64(h.Ranks))
		p.expect(" q ")
		h.HomeQ = append(h.HomeQ, p.setName())
		p.expect(" k ")
		h.HomeK = append(h.HomeK, p.setName())
		h.Ranks++
		p.end()
	}
	if h.Ranks == 0 {
		p.fail("a line \"set ...\" or \"home 0 ...\"")
	}
	p.expect("passes")
	for pass := Forward; pass <= Backward; pass++ {
		if p.has(" " + pass.String()) {
			p.plan.passes = append(p.plan.passes, pass)
		}
	}
	if len(p.plan.passes) == 0 {
		p.fail("forward, backward, or both in this order")
	}
	p.end()
}

func (p *parser) shape(s *Shape) {
	line := p.n
	p.expect("shape tokens ")
	s.QTokens = p.number("query tokens", 1, MaxTokens)
	p.expect(" ")
	s.KTokens = p.number("key tokens", 1, MaxTokens)
	p.expect(" heads ")
	s.QHeads = p.number("query heads", 1, MaxHeads)
	p.expect(" ")
	s.KHeads = p.number("key/value heads", 1, MaxHeads)
	p.expect(" dim ")
	s.Dim = p.number("the dimension", 0, MaxDim)
	p.expect(" ")
	s.VDim = p.number("the dimension of values", 0, MaxDim)
	p.expect(" bytes ")
	s.ElemBytes = p.number("bytes of an element", 1, maxElemBytes)
	p.expect(" ")
	s.AccBytes = p.number("bytes of an accumulator", 1, maxElemBytes)
	p.expect(" scale ")
	s.Scale = p.float("the scale")
	if p.has(" softcap ") {
		s.SoftCap = p.positive("the soft cap")
	}
	s.Sink = p.has(" sink")
	p.end()
	if p.err == nil {
		if err := s.Validate(); err != nil {
			p.err = fmt.Errorf("plan: line %d: %w", line, err)
		}
	}
}

// slice reads what stands behind "mask ".
func (p *parser) slice() (s attn.Slice) {
	p.expect("q ")
	s.Q0, s.Q1 = p.span("queries", MaxTokens)
	p.expect(" k ")
	s.K0, s.K1 = p.span("keys", MaxTokens)
	p.expect(" k-q ")
	s.Lo = p.offset()
	p.expect(":")
	s.Hi = p.offset()
	return s
}

// span reads lo:hi.
func (p *parser) span(what string, most int64) (lo, hi int) {
	lo = p.number("the first of the "+what, 0, most)
	p.expect(":")
	return lo, p.number("the end of the "+what, 0, most)
}

func (p *parser) offset() int {
	switch {
	case p.has("-inf"):
		return -attn.Unbounded
	case p.has("inf"):
		return attn.Unbounded
	}
	return p.number("a diagonal, -inf or inf", 1-attn.Unbounded, attn.Unbounded-1)
}

// set reads what stands behind "set " and gives how many spans it has.
func (p *parser) set(h *Header, before int) int {
	name := string(p.word())
	if _, taken := p.names[name]; taken || !isName(name) {
		p.at -= len(name)
		p.fail(fmt.Sprintf("a new name of letters, digits, dots, dashes and underscores, at "+
			"most %d",
			MaxNameBytes))
	}
	if len(h.Sets) > MaxSets {
		p.limit("token sets", MaxSets)
	}
	var set mesh.Set
	for p.has(" ") {
		if before+len(set) == MaxSpans {
			p.limit("spans of all token sets", MaxSpans)
			break
		}
		set = append(set, p.tokens())
	}
	p.names[name] = SetID(len(h.Sets))
	h.Sets, h.Names = append(h.Sets, set), append(h.Names, name)
	p.end()
	return len(set)
}

// tokens reads one span of a set, lo:hi or lo:hi:stride.
func (p *parser) tokens() mesh.Span {
	from := p.at
	lo, hi := p.span("tokens", MaxTokens)
	s := mesh.Span{Start: lo, Stride: 1, Count: hi - lo}
	strided := p.has(":")
	if strided {
		s.Stride = p.number("the stride", 1, MaxTokens)
	}
	switch {
	case p.err != nil:
	case hi <= lo:
		p.at = from
		p.fail("tokens lo:hi with lo below hi")
	case strided && (s.Stride == 1 || (hi-1-lo)%s.Stride != 0):
		p.at = from
		p.fail("a stride above 1 that leads from the first token to the last")
	case strided:
		s.Count = (hi-1-lo)/s.Stride + 1
	}
	return s
}

// program reads the program of a rank in a pass.
func (p *parser) program(pass Pass, rank int) *Program {
	prog := &Program{Rank: rank, Pass: pass}
	p.expect(fmt.Sprintf("rank %d %v", rank, pass))
	p.end()
	total := int64(0)
	for p.has("slot ") {
		if len(prog.Slots) == MaxProgramSlots {
			p.limit("slots of a program", MaxProgramSlots)
		}
		s := p.slot(len(prog.Slots))
		if total += s.Bytes; total > MaxProgramBytes {
			p.limit("bytes of a program's slots", MaxProgramBytes)
		}
		prog.Slots = append(prog.Slots, s)
	}
	for p.err == nil && p.more && isDigit(p.peek()) {
		if len(prog.Ops) == MaxProgramOps {
			p.limit("ops of a program", MaxProgramOps)
		}
		p.op(prog)
		if max(len(prog.args), len(prog.deps)) > MaxProgramRefs {
			p.limit("operands or dependencies of a program", MaxProgramRefs)
		}
	}
	return prog
}

// slot reads what stands behind "slot ".
func (p *parser) slot(i int) (s Slot) {
	p.number("the slot's number", int64(i), int64(i))
	p.expect(" ")
	s.Role = Role(p.oneOf("a role", roleNames[:]))
	s.In, s.Keep = p.has(" in"), p.has(" keep")
	p.expect(" ")
	if s.In || s.Keep {
		s.Tensor, s.Set, s.Heads = p.region()
		p.expect(" ")
	}
	s.Bytes = int64(p.number("the slot's bytes", 0, MaxProgramBytes))
	p.expect(" B")
	p.end()
	return s
}

// op reads a line such as "4 attend rq[...]@s1 rkv[...]@s3 +st[...]@s2 t4 after 3 2".
func (p *parser) op(prog *Program) {
	n := int64(len(prog.Ops))
	p.number("the op's number", n, n)
	p.expect(" ")
	op := Op{Kind: Kind(p.oneOf("a kind of op", kindNames[:])), Peer: -1}
	p.args, p.deps = p.args[:0], p.deps[:0]
	p.expect(" ")
	for p.err == nil {
		a, ok := p.access()
		if !ok {
			break
		}
		o := Operand{Access: a}
		o.Tensor, o.Set, o.Heads = p.region()
		p.expect("@s")
		o.Slot = p.int32("a slot")
		p.args = append(p.args, o)
		p.expect(" ")
	}
	if op.Kind.Link() {
		if op.Kind == Send {
			p.expect("->")
		} else {
			p.expect("<-")
		}
		op.Peer = p.int32("a rank")
		p.expect("/")
		op.Lane = p.int32("a lane")
		p.expect(" ")
	}
	if !p.has("t") {
		p.fail("t and a tick")
	}
	op.Tick = p.int32("a tick")
	if p.has(" after") {
		p.expect(" ")
		p.deps = append(p.deps, p.int32("an op"))
		for p.has(" ") {
			p.deps = append(p.deps, p.int32("an op"))
		}
	}
	p.end()
	prog.Append(op, p.args, p.deps)
}

func (p *parser) access() (Access, bool) {
	for a := Read; a <= HandOn; a++ {
		if p.has(accessLetters[a : a+1]) {
			return a, true
		}
	}
	return 0, false
}

// accessLetters are the accesses in plan texts.
const accessLetters = "rw+c"

// region reads a frame such as kv[c0 h0:1].
func (p *parser) region() (t Tensor, set SetID, heads mesh.Heads) {
	t = Tensor(p.oneOf("a tensor", tensorNames[:]))
	p.expect("[")
	set = p.setName()
	p.expect(" h")
	lo, hi := p.span("heads", MaxHeads)
	p.expect("]")
	return t, set, mesh.Heads{Lo: int32(lo), Hi: int32(hi)}
}

// int32 reads a number that only Verify can judge.
func (p *parser) int32(what string) int32 { return int32(p.number(what, 0, math.MaxInt32)) }
