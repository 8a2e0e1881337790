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
	tables     map[*plan.Program]*table
	uses       []use           // scratch of tabulate
	pairs      map[int32]int64 // by round: pairs x heads attended
	violations []string
}

// progress is what one rank has done of the round it is in.
type progress struct {
	round int32
	*table
	script *rank.Script
	over   []bool
}

// maxViolations bounds what is kept; the first ones tell the story.
const maxViolations = 100

func (c *checker) start(ranks int, book *rank.Rounds) {
	c.book, c.ranks = book, make([]progress, ranks)
	c.tables, c.pairs = map[*plan.Program]*table{}, map[int32]int64{}
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
		p.round, p.script = round, c.book.Script(r, round)
		prog := p.script.Program
		t, ok := c.tables[prog]
		if !ok {
			t = c.tabulate(p.script)
			c.tables[prog] = t
		}
		p.table = t
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
	for _, before := range p.before[p.first[op]:p.first[op+1]] {
		if !p.over[before] {
			c.fail(fmt.Sprintf("rank %d round %d: op %s starts while op %s is not over", r, round,
				p.script.Describe(op), p.script.Describe(before)))
			return
		}
	}
}

// end notes the end of an op and gives its floating-point operations.
func (c *checker) end(r, round, op int32) uint64 {
	p := c.at(r, round)
	p.over[op] = true
	k := p.script.Program.Ops[op].Kind
	if k != plan.Attend && k != plan.AttendBackward {
		return 0
	}
	n := p.pairs[op]
	c.pairs[round] += n
	flops := 2 * uint64(n) * uint64(p.script.Header.Dim+p.script.Header.VDim)
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

// table is what the checker knows of a program: for op i, before[first[i]:first[i+1]] are the
// earlier ops that must be over before it touches its slots, and pairs[i] the allowed pairs times
// heads that it attends.
type table struct {
	first, before []int32
	pairs         []int64
}

// use is who has touched a slot so far.
type use struct {
	writer  int32
	readers []int32
}

// tabulate makes the table of a program. An op conflicts with the last one that changed a slot of
// its, and where it changes the slot also with those that read it since.
func (c *checker) tabulate(s *rank.Script) *table {
	p := s.Program
	for len(c.uses) < len(p.Slots) {
		c.uses = append(c.uses, use{})
	}
	for i := range c.uses {
		c.uses[i].writer, c.uses[i].readers = -1, c.uses[i].readers[:0]
	}
	t := &table{
		first: make([]int32, len(p.Ops)+1), before: make([]int32, 0, 2*len(p.Ops)),
		pairs: make([]int64, len(p.Ops)),
	}
	for i := range p.Ops {
		t.first[i] = int32(len(t.before))
		if p.Ops[i].Kind != plan.Release {
			t.pairs[i] = s.Header.OpPairs(p, i)
			c.conflicts(t, p.Args(i), int32(i))
		}
	}
	t.first[len(p.Ops)] = int32(len(t.before))
	return t
}

// conflicts appends those of op i, and notes what it does to its slots.
func (c *checker) conflicts(t *table, args []plan.Operand, i int32) {
	for _, a := range args {
		u := &c.uses[a.Slot]
		if u.writer >= 0 && u.writer != i {
			t.before = append(t.before, u.writer)
		}
		if a.Access == plan.Read || a.Access == plan.HandOn {
			u.readers = append(u.readers, i)
			continue
		}
		for _, r := range u.readers {
			if r != i {
				t.before = append(t.before, r)
			}
		}
		u.writer, u.readers = i, u.readers[:0]
	}
}
