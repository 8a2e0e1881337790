package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/mesh"
)

// eachOp runs f on every op of both plans by hand.
func eachOp(f func(fresh func() *hand, pass Pass, rank, op int)) {
	for _, fresh := range byHand() {
		p := fresh()
		for _, pass := range p.passes {
			for rank, q := range p.progs[pass] {
				for op := range q.Ops {
					f(fresh, pass, rank, op)
				}
			}
		}
	}
}

func mustRefuse(t *testing.T, p *hand, format string, args ...any) {
	t.Helper()
	r, err := Verify(p)
	if err != nil {
		t.Fatal(err)
	}
	if r.Err() == nil {
		t.Errorf("accepted: "+format, args...)
	}
}

// Plans by hand have nothing to spare: whatever is taken from an op or changed in it is missed.
func TestVerifyRefusesAnyChangeOfAnOp(t *testing.T) {
	eachOp(func(fresh func() *hand, pass Pass, rank, op int) {
		try := func(what string, do func(p *hand)) {
			t.Helper()
			p := fresh()
			do(p)
			mustRefuse(t, p, "%v rank %d op %d %s", pass, rank, op, what)
		}
		was := fresh().progs[pass][rank]
		try("dropped", drop(pass, rank, op))
		try("doubled", insert(pass, rank, was.Ops[op], was.Deps(op), was.Args(op)...))
		for k := range was.Deps(op) {
			try(fmt.Sprintf("without dependency %d", k), at(pass, rank, op, func(e *edit) {
				e.deps = slices.Delete(e.deps, k, k+1)
			}))
		}
		for k := range was.Args(op) {
			try(fmt.Sprintf("without operand %d", k), at(pass, rank, op, func(e *edit) {
				e.args = slices.Delete(e.args, k, k+1)
			}))
			tryOperand(was.Args(op)[k], func(o Operand) {
				if was.Ops[op].Kind == Send && o.Slot != was.Args(op)[k].Slot {
					return // the block that pack copied has the region too
				}
				try(fmt.Sprintf("operand %d %+v", k, o), at(pass, rank, op, func(e *edit) {
					e.args[k] = o
				}))
			})
		}
		if was.Ops[op].Kind.Link() {
			for _, change := range []func(e *edit){
				func(e *edit) { e.op.Tick++ }, func(e *edit) { e.op.Lane++ },
				func(e *edit) { e.op.Peer = int32(rank) },
				func(e *edit) { e.op.Kind ^= Send ^ Recv },
			} {
				try("other end", at(pass, rank, op, change))
			}
		}
	})
}

// tryOperand gives every operand that differs in one field.
func tryOperand(o Operand, f func(o Operand)) {
	for a := Read; a <= HandOn; a++ {
		if c := o; a != o.Access {
			c.Access = a
			f(c)
		}
	}
	for t := Q; t < numTensors; t++ {
		if c := o; t != o.Tensor {
			c.Tensor = t
			f(c)
		}
	}
	for s := SetID(-1); s < 5; s++ {
		if c := o; s != o.Set {
			c.Set = s
			f(c)
		}
	}
	for s := int32(-1); s < 13; s++ {
		if c := o; s != o.Slot {
			c.Slot = s
			f(c)
		}
	}
	for lo := int32(-1); lo < 2; lo++ {
		c := o
		c.Heads = mesh.Heads{Lo: lo, Hi: lo + 1}
		if c != o {
			f(c)
		}
	}
}

func TestSumsAddInAnyOrder(t *testing.T) {
	p := ringByHand()
	for _, pass := range p.passes {
		a, bad := VerifyRank(p.h, p.progs[pass][0])
		b, worse := VerifyRank(p.h, p.progs[pass][1])
		if len(bad)+len(worse) > 0 {
			t.Fatal(bad, worse)
		}
		one, two := a, b
		one.Add(b)
		two.Add(a)
		if one != two {
			t.Errorf("%v: a+b = %+v, b+a = %+v", pass, one, two)
		}
		if found := CheckSums(p.h, pass, one); len(found) > 0 {
			t.Error(found)
		}
		if CheckSums(p.h, pass, a) == nil || len(CheckSums(p.h, pass, a)) == 0 {
			t.Errorf("%v: the sums of one rank of two pass", pass)
		}
		twice := a
		twice.Add(a)
		if len(CheckSums(p.h, pass, twice)) == 0 {
			t.Errorf("%v: rank 0 counted twice passes", pass)
		}
	}
	if n := binary.Size(Sums{}); n != 80 {
		t.Errorf("sums take %d bytes, want 80", n)
	}
	drop(fw, 0, 6)(p)
	at(fw, 1, 4, set(1, 0))(p)
	a, _ := VerifyRank(p.h, p.progs[fw][0])
	b, _ := VerifyRank(p.h, p.progs[fw][1])
	a.Add(b)
	found := CheckSums(p.h, fw, a)
	if len(found) != 1 || !strings.Contains(found[0].Text, "1 of 2") {
		t.Errorf("sums with a broken rank: %v", found)
	}
}

func TestCheckLiveComparesBothWays(t *testing.T) {
	h := shuffleByHand().h
	slot := func(r Role, set SetID) *Program {
		one := mesh.Heads{Hi: 1}
		return &Program{Slots: []Slot{{Role: r, Tensor: roleOf(r), Set: set, Heads: one}}}
	}
	none := &Program{}
	for _, c := range []struct {
		f, b *Program
		want string
	}{
		{slot(HeadQ, 1), slot(HeadQ, 1), ""},
		{slot(HeadQ, 1), slot(HeadQ, 2), "expects q[b h0:1] as head.q, the forward pass keeps q[a"},
		{slot(HeadKV, 1), none, "keeps head.kv, which no slot of this pass holds"},
		{none, slot(HeadOut, 1), "expects head.o, which the forward pass does not keep"},
		{slot(HomeOut, 1), none, ""},
	} {
		found := CheckLive(h, c.f, c.b)
		if c.want == "" && len(found) > 0 {
			t.Error(found)
		}
		if c.want != "" && (len(found) != 1 || !strings.Contains(found[0].Text, c.want)) {
			t.Errorf("%v, want %q", found, c.want)
		}
	}
}

// failing has no program for rank 1.
type failing struct{ *hand }

var errGone = errors.New("gone")

func (f failing) Program(pass Pass, rank int) (*Program, error) {
	if rank == 1 {
		return nil, errGone
	}
	return f.hand.Program(pass, rank)
}

func TestVerifyNeedsItsPrograms(t *testing.T) {
	_, err := Verify(failing{ringByHand()})
	if !errors.Is(err, errGone) || !strings.Contains(err.Error(), "forward program of rank 1") {
		t.Errorf("%v", err)
	}
	p := ringByHand()
	p.passes = nil
	if _, err := Verify(p); err == nil {
		t.Error("a plan without a pass is nothing to accept")
	}
}

func TestReportIsBounded(t *testing.T) {
	const ring = 32
	p := longRing(ring, 4*ring)
	for r := range ring {
		p.rewrite(fw, r, func(ops []*edit) []*edit {
			for _, e := range ops {
				e.deps = nil
			}
			return ops
		})
	}
	r, err := Verify(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Violations) != maxViolations || r.Found <= ring*maxRankViolations {
		t.Errorf("%d kept of %d found", len(r.Violations), r.Found)
	}
	perRank := map[int]int{}
	for _, v := range r.Violations {
		perRank[v.Rank]++
	}
	if perRank[0] != maxRankViolations {
		t.Errorf("%d kept of rank 0", perRank[0])
	}
	if text := r.Err().Error(); !strings.Contains(text, fmt.Sprintf("and %d more", r.Found-3)) {
		t.Error(text)
	}
}
