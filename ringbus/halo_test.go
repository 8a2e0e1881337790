package ringbus

import (
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"pgregory.net/rapid"
)

// rowsIn counts the rows of KV that come into each rank forward, and those of dKV backward.
func rowsIn(t testing.TB, p *plan.Plan, rank int) (kv, dkv int) {
	t.Helper()
	for _, pass := range p.Passes() {
		prog, err := p.Program(pass, rank)
		if err != nil {
			t.Fatal(err)
		}
		for i := range prog.Ops {
			if prog.Ops[i].Kind != plan.Recv {
				continue
			}
			rows := p.Header().Sets[prog.Args(i)[0].Set].Len()
			switch lane := prog.Ops[i].Lane; {
			case lane == plan.LaneKV && pass == plan.Forward:
				kv += rows
			case lane == plan.LaneDKV:
				dkv += rows
			}
		}
	}
	return kv, dkv
}

// TestHaloMovesWhatIsSeen: whatever the mask and the layout, the rows of KV that come into a rank
// are exactly those that its queries see and it does not own; under a window they are at most
// left + right for each contiguous run that it owns. The gradients of these rows go back.
func TestHaloMovesWhatIsSeen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSpec(rt)
		s.Ring, s.Mesh.Head, s.Options = Halo{}, 1, plan.Options{}
		left, right := rapid.IntRange(0, 9).Draw(rt, "left"), rapid.IntRange(0, 9).Draw(rt, "right")
		n := s.Shape.QTokens
		windowed := rapid.Bool().Draw(rt, "window")
		if windowed {
			s.Shape.Mask = attn.Window(n, n, left, right)
		}
		p, err := plan.New(s)
		if err != nil {
			rt.Fatal(err)
		}
		back := 0
		for rank := range s.Mesh.Ranks() {
			own := p.Header().Sets[p.Header().HomeQ[rank]]
			kv, dkv := rowsIn(t, p, rank)
			back += dkv
			want, owned := 0, map[int]bool{}
			for _, i := range own.Positions() {
				owned[i] = true
			}
			runs := 0
			for j := range n {
				if owned[j] && (j == 0 || !owned[j-1]) {
					runs++
				}
				if owned[j] {
					continue
				}
				for i := range owned {
					if s.Shape.Mask.Allows(i, j) {
						want++
						break
					}
				}
			}
			if kv != want {
				rt.Fatalf("rank %d of %v: %d rows come in, its queries see %d", rank, s.Layout, kv,
					want)
			}
			if windowed && kv > (left+right)*runs {
				rt.Fatalf("rank %d: %d rows come in for %d runs under window %d, %d", rank, kv,
					runs, left, right)
			}
			back -= kv
		}
		if back != 0 {
			rt.Fatalf("the rows of dKV are %d more than those of KV", back)
		}
	})
}

// TestDocumentsAtHomeDoNotTravel: one document a rank, and no scheme sends a block.
func TestDocumentsAtHomeDoNotTravel(t *testing.T) {
	const n, each = 8, 5
	starts := []int{0}
	for i := range n {
		starts = append(starts, (i+1)*each)
	}
	mask, err := attn.Documents(starts, func(tokens int) attn.Mask {
		return attn.Causal(tokens, tokens)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range Schemes() {
		for _, r := range []Ring{{}, {Rotate: RotateQ}, {Inner: 2}, {Lanes: 2}} {
			axis := scheme.New(r)
			m := mesh.Mesh{Head: 1, Ring: n}
			if axis.Validate(m) != nil {
				continue
			}
			p, err := plan.New(plan.Spec{
				Shape: plan.Shape{QTokens: n * each, KTokens: n * each, QHeads: 2, KHeads: 1,
					Dim: 4, VDim: 4, ElemBytes: 4, AccBytes: 4, Scale: 1, Mask: mask},
				Mesh: m, Layout: mesh.Contiguous, Ring: axis, Heads: headshuffle.AllToAll{},
			})
			if err != nil {
				t.Fatal(err)
			}
			for rank := range n {
				for _, pass := range p.Passes() {
					prog, err := p.Program(pass, rank)
					if err != nil {
						t.Fatal(err)
					}
					if c := plan.Count(p.Header(), prog); c.Sends != [plan.NumClasses]int{} {
						t.Errorf("%v, rank %d %v: sends %v, want none", axis, rank, pass, c.Sends)
					}
				}
			}
		}
	}
}

// TestSchemesRefuseWhatTheyDoNotHave lists what a scheme cannot do with the ring's choices, each
// with its message.
func TestSchemesRefuseWhatTheyDoNotHave(t *testing.T) {
	m := mesh.Mesh{Head: 1, Ring: 8}
	for _, name := range Names() {
		for _, tc := range []struct {
			r    Ring
			want string // by schemes without a ring; the others have it
		}{
			{Ring{Inner: 4}, "inner window 4 with scheme " + name + ": blocks do not go round"},
			{Ring{Lanes: 2}, "lanes 2 with scheme " + name + ": blocks do not go round"},
			{Ring{DKV: Local}, "dkv window local with scheme " + name + ": it has no windows"},
			{Ring{Rotate: RotateQ}, "rotate q with scheme " + name + ": keys go to the queries"},
			{Ring{Inner: 8, Lanes: 1}, ""},
		} {
			if name == "ring" || name == "passq" {
				tc.want = ""
			}
			axis, err := Make(name, tc.r)
			if err != nil {
				t.Fatal(err)
			}
			err = axis.Validate(m)
			if (err == nil) != (tc.want == "") ||
				err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s %+v: error %v, want %q", name, tc.r, err, tc.want)
			}
		}
	}
	for _, axis := range []plan.RingAxis{Ring{Rotate: RotateQ}, PassQ{}} {
		_, err := plan.New(plan.Spec{
			Shape: plan.Shape{QTokens: 8, KTokens: 8, QHeads: 1, KHeads: 1, Dim: 4, VDim: 4,
				ElemBytes: 2, AccBytes: 4, Scale: 1, Mask: attn.Full(8, 8)},
			Mesh: m, Options: plan.Options{NarrowDKV: true}, Ring: axis,
			Heads: headshuffle.AllToAll{},
		})
		if err == nil || !strings.Contains(err.Error(), "dkv-wire bf16 with") {
			t.Errorf("%v with narrow dKV: error %v", axis, err)
		}
	}
	if _, err := Make("mesh", Ring{}); err == nil ||
		!strings.Contains(err.Error(), "use ring or allgather or halo or passq") {
		t.Errorf("a scheme of no name: %v", err)
	}
	if err := (Ring{Rotate: 2}).Validate(m); err == nil {
		t.Error("a rotation of no name is accepted")
	}
}
