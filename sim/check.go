package sim

import (
	"fmt"

	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
)

// checker watches safety while the world runs, knowing programs but neither workers nor devices:
// an op may touch a slot only when every op before it in the program that conflicts on that slot
// is over; and each round must attend every allowed pair once.
type checker struct {
	book       *rank.Rounds
	ranks      []progress
	tables     map[*plan.Program][][]int32
	pairs      map[int32]int64 // by round: pairs x heads attended
	violations []string
}

// progress is what one rank has done of the round it is in.
type progress struct {
	round int32
	table [][]int32
	over  []bool
}

// maxViolations bounds what is kept; the first ones tell the story.
const maxViolations = 100

func (c *checker) start(ranks int, book *rank.Rounds) {
	c.book, c.ranks = book, make([]progress, ranks)
	c.tables, c.pairs = map[*plan.Program][][]int32{}, map[int32]int64{}
	for i := range c.ranks {
		c.ranks[i].round = -1
	}
}

func (c *checker) fail(text string) {
	if len(c.violations) < maxViolations {
		c.violations = append(c.violations, text)
	}
}

// at is the rank's progress in a round, begun anew when the round is.
func (c *checker) at(r, round int32) *progress {
	p := &c.ranks[r]
	if p.round != round {
		prog := c.book.Script(r, round).Program
		t, ok := c.tables[prog]
		if !ok {
			t = conflicts(prog)
			c.tables[prog] = t
		}
		p.round, p.table = round, t
		if cap(p.over) < len(prog.Ops) {
			p.over = make([]bool, len(prog.Ops))
		}
		p.over = p.over[:len(prog.Ops)]
		clear(p.over)
	}
	return p
}

// begin checks an op that starts to touch its slots.
func (c *checker) begin(r, round, op int32) {
	p := c.at(r, round)
	for _, before := range p.table[op] {
		if !p.over[before] {
			prog, h := c.book.Script(r, round).Program, c.book.Script(r, round).Header
			c.fail(fmt.Sprintf("rank %d round %d: op %s starts while op %s is not over", r, round,
				prog.AppendOp(nil, h, int(op)), prog.AppendOp(nil, h, int(before))))
			return
		}
	}
}

// over notes the end of an op and gives its floating-point operations.
func (c *checker) over(r, round, op int32) uint64 {
	p := c.at(r, round)
	p.over[op] = true
	s := c.book.Script(r, round)
	k := s.Program.Ops[op].Kind
	if k != plan.Attend && k != plan.AttendBackward {
		return 0
	}
	args := s.Program.Args(int(op))
	n := s.Header.Mask.Pairs(s.Header.Sets[args[0].Set], s.Header.Sets[args[1].Set]) *
		int64(args[0].Heads.Len())
	c.pairs[round] += n
	flops := 2 * uint64(n) * uint64(s.Header.Dim+s.Header.VDim)
	if k == plan.AttendBackward {
		flops = flops / 2 * 5
	}
	return flops
}

// complete checks a finished round: every allowed pair of every head was attended, none twice.
func (c *checker) complete(round int32) {
	e, ok := c.book.At(round)
	if !ok {
		return
	}
	want := e.Plan.Header.Mask.TotalPairs() * int64(e.Plan.Header.QHeads)
	if got := c.pairs[round]; got != want {
		c.fail(fmt.Sprintf("round %d attended %d pairs, the mask allows %d", round, got, want))
	}
	delete(c.pairs, round)
}

// conflicts lists, for each op, the earlier ops that must be over before it touches its slots: the
// last one that changed the slot, and for a change also those that read it since.
func conflicts(p *plan.Program) [][]int32 {
	type use struct {
		writer  int32
		readers []int32
	}
	uses := make([]use, len(p.Slots))
	for i := range uses {
		uses[i].writer = -1
	}
	out := make([][]int32, len(p.Ops))
	for i := range p.Ops {
		if p.Ops[i].Kind == plan.Release {
			continue
		}
		for _, a := range p.Args(i) {
			u := &uses[a.Slot]
			if u.writer >= 0 && u.writer != int32(i) {
				out[i] = append(out[i], u.writer)
			}
			if a.Access == plan.Read || a.Access == plan.HandOn {
				u.readers = append(u.readers, int32(i))
				continue
			}
			for _, r := range u.readers {
				if r != int32(i) {
					out[i] = append(out[i], r)
				}
			}
			u.writer, u.readers = int32(i), u.readers[:0:0]
		}
	}
	return out
}
