package choose

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
	"pgregory.net/rapid"
)

// causal is a question about one causal sequence with everything free.
func causal(tokens int, m mesh.Mesh) Question {
	return Question{
		Spec: plan.Spec{Mesh: m, Shape: plan.Shape{
			QTokens: tokens, KTokens: tokens, QHeads: 8, KHeads: 4, Dim: 16, VDim: 16,
			ElemBytes: 4, AccBytes: 4, Scale: 0.25, Mask: attn.Causal(tokens, tokens)}},
		Free: Free{Layout: true, Scheme: true, Rotate: true},
	}
}

// packed makes the question one about documents, causal inside each.
func (q Question) packed(t interface{ Fatal(...any) }, starts ...int) Question {
	mask, err := attn.Documents(starts, func(n int) attn.Mask { return attn.Causal(n, n) })
	if err != nil {
		t.Fatal(err)
	}
	tokens := starts[len(starts)-1]
	q.Spec.Shape.QTokens, q.Spec.Shape.KTokens = tokens, tokens
	q.Spec.Shape.Mask, q.Starts = mask, starts
	return q
}

func mustChoose(t *testing.T, q Question) *Table {
	t.Helper()
	table, err := Choose(q)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// drawQuestion is a random problem on a random cluster.
func drawQuestion(t *rapid.T) Question {
	num := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	m := mesh.Mesh{Head: num("head", 1, 3), Ring: num("ring", 1, 5),
		Placement: mesh.Placement(num("placement", 0, 1))}
	q := causal(num("tokens", 1, 200), m)
	if rapid.Bool().Draw(t, "documents") {
		starts := []int{0}
		for range num("count", 1, 6) {
			starts = append(starts, starts[len(starts)-1]+num("length", 0, 60))
		}
		starts[len(starts)-1]++
		q = q.packed(t, starts...)
	} else if rapid.Bool().Draw(t, "window") {
		n := q.Spec.Shape.QTokens
		q.Spec.Shape.Mask = attn.Window(n, n, num("left", -1, 40), num("right", -1, 40))
	}
	q.Topology = Usual(m.Ranks())
	q.Topology.Flops = math.Pow(10, float64(num("flops", 8, 14)))
	q.Topology.RanksPerNode = num("node", 1, m.Ranks())
	q.Topology.Nodes = m.Ranks()
	q.Topology.Remote.LatencyNanos = int64(num("latency", 0, 20000))
	if rapid.Bool().Draw(t, "slow") {
		q.Topology.Ranks = map[int]plan.RankModel{num("rank", 0, m.Ranks()-1): {Speed: 0.5}}
	}
	if rapid.Bool().Draw(t, "forward") {
		q.Passes = []plan.Pass{plan.Forward}
	}
	return q
}

// TestBestIsLeast prices all combinations by itself: none that can be planned is below the chosen.
func TestBestIsLeast(t *testing.T) {
	words := []string{"zigzag", "contiguous", docZigzag, balanced, wholeDoc}
	rapid.Check(t, func(t *rapid.T) {
		q := drawQuestion(t)
		table, err := Choose(q)
		if err != nil {
			t.Fatal(err)
		}
		best := table.Chosen()
		if got := priceOf(t, q, best.Layout, best.Scheme, best.Ring); got != best.Nanos {
			t.Fatalf("%s takes %d ns, the table has %d", best.Name(), got, best.Nanos)
		}
		s := stripe(q.Spec.Shape.QTokens, q.Spec.Mesh.Ring)
		for _, word := range append(words, fmt.Sprintf("striped:%d", s)) {
			for _, scheme := range ringbus.Names() {
				for _, rotate := range []ringbus.Rotation{ringbus.RotateKV, ringbus.RotateQ} {
					got := priceOf(t, q, word, scheme, ringbus.Ring{Rotate: rotate})
					if got >= 0 && got < best.Nanos {
						t.Fatalf("%s %s %v takes %d ns, chosen was %s with %d", word, scheme,
							rotate, got, best.Name(), best.Nanos)
					}
				}
			}
		}
	})
}

// priceOf is what a candidate takes; -1 when it cannot be.
func priceOf(t *rapid.T, q Question, word, scheme string, ring ringbus.Ring) int64 {
	spec := q.Spec
	spec.Heads = headshuffle.AllToAll{}
	l, err := Layout(word, Sequence{&spec.Shape, spec.Mesh, q.Starts,
		Weights(q.Topology, spec.Mesh)})
	if err != nil {
		return -1
	}
	spec.Layout = l
	if spec.Ring, err = ringbus.Make(scheme, ring); err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(spec)
	if err != nil {
		return -1
	}
	e, err := plan.Cost(p, q.Topology, plan.CostOptions{Passes: q.Passes})
	if err != nil {
		return -1
	}
	return e.Nanos
}

// TestTiesGoToTheFirst: on one rank all candidates are one, and when all are the same the usual one
// is taken.
func TestTiesGoToTheFirst(t *testing.T) {
	table := mustChoose(t, causal(64, mesh.Mesh{Head: 1, Ring: 1}))
	for i := range table.Rows {
		if table.Rows[i].Refused != "" || table.Rows[i].Nanos != table.Rows[0].Nanos {
			t.Fatalf("%+v is not like the first", table.Rows[i])
		}
	}
	if name := table.Chosen().Name(); name != "zigzag ring kv" || len(table.Rows) < 10 {
		t.Errorf("chosen of %d: %s", len(table.Rows), name)
	}
	if !strings.HasSuffix(table.Why, "as fast: the first of equals is taken") {
		t.Error(table.Why)
	}
}

// TestRefusedStayInTheTable: two lanes are the ring's and pass-Q's.
func TestRefusedStayInTheTable(t *testing.T) {
	q := causal(64, mesh.Mesh{Head: 1, Ring: 4})
	q.Ring.Lanes = 2
	table := mustChoose(t, q)
	refused := map[string]bool{}
	for i := range table.Rows {
		r := &table.Rows[i]
		if r.Refused == "" {
			continue
		}
		refused[r.Scheme] = true
		if !strings.Contains(r.Refused, "lanes 2 with scheme "+r.Scheme) {
			t.Errorf("%s: %s", r.Name(), r.Refused)
		}
	}
	if want := map[string]bool{"halo": true, "allgather": true}; !cmp.Equal(refused, want) {
		t.Errorf("refused: %v", refused)
	}
	if table.Chosen().Refused != "" {
		t.Error("a refused candidate was chosen")
	}
	layouts := len(q.layouts())
	if n := table.Possible(); n != len(table.Rows)-2*layouts || n < layouts {
		t.Errorf("%d of %d candidates are possible", n, len(table.Rows))
	}
}

func TestNothingFits(t *testing.T) {
	q := causal(64, mesh.Mesh{Head: 9, Ring: 1}) // 8 query heads
	_, err := Choose(q)
	var none *Impossible
	if !errors.As(err, &none) || len(none.Rows) < 4 || none.Least() != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("choose: none of %d candidates is possible: head degree 9 is above the 8 "+
		"query heads", len(none.Rows))
	if !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "head degree 9") != 1 {
		t.Error(err)
	}
	q.Free, q.Layout, q.Scheme = Free{}, "zigzag", "ring"
	if _, err = Choose(q); !strings.HasPrefix(err.Error(), "choose: the one candidate, zigzag "+
		"ring kv, is impossible: head degree 9") {
		t.Error(err)
	}
}

// TestReasonsOnceEach: two lanes are refused by two schemes, and memory by all others, whose least
// need is named.
func TestReasonsOnceEach(t *testing.T) {
	q := causal(64, mesh.Mesh{Head: 1, Ring: 4})
	q.Ring.Lanes = 2
	all := mustChoose(t, q)
	least := int64(math.MaxInt64)
	for i := range all.Rows {
		if r := &all.Rows[i]; r.Refused == "" {
			least = min(least, r.PeakBytes)
		}
	}
	q.RankMemory = 10
	_, err := Choose(q)
	var none *Impossible
	if !errors.As(err, &none) {
		t.Fatal(err)
	}
	names := 0
	for _, r := range none.Reasons() {
		names += len(r.Names)
		if strings.Count(err.Error(), r.Text) != 1 {
			t.Errorf("%q is there %d times", r.Text, strings.Count(err.Error(), r.Text))
		}
	}
	if len(none.Reasons()) != 3 || names != len(all.Rows) || none.Least().PeakBytes != least {
		t.Errorf("%d reasons of %d candidates, the least need %d, want %d: %v",
			len(none.Reasons()), names, none.Least().PeakBytes, least, err)
	}
	if !strings.Contains(err.Error(), ": a rank holds at least "+bytesText(least)) ||
		!strings.Contains(err.Error(), "its memory is 10 B; ") {
		t.Error(err)
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 528384: "516.0 KiB", 3 << 20: "3.0 MiB",
		5 << 40: "5.0 TiB", 5 << 50: "5120.0 TiB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// TestMemoryLimit: an all-gather holds all keys, a ring two blocks.
func TestMemoryLimit(t *testing.T) {
	q := causal(4096, mesh.Mesh{Head: 1, Ring: 16})
	q.Free = Free{Scheme: true}
	q.Layout = "zigzag"
	q.Topology = Usual(16)
	q.Topology.Remote.LatencyNanos, q.Topology.Local.LatencyNanos = 50000, 50000
	free := mustChoose(t, q)
	if free.Chosen().Scheme != "allgather" {
		t.Fatalf("without a limit %s is chosen: this test needs another problem", free.Why)
	}
	q.RankMemory = free.Chosen().PeakBytes - 1
	tight := mustChoose(t, q)
	for i := range tight.Rows {
		r := &tight.Rows[i]
		over := r.PeakBytes > q.RankMemory
		if over != strings.Contains(r.Refused, "its memory is") {
			t.Errorf("%s holds %d of %d: %q", r.Name(), r.PeakBytes, q.RankMemory, r.Refused)
		}
	}
	if c := tight.Chosen(); c.Scheme == "allgather" || c.Nanos < free.Chosen().Nanos {
		t.Errorf("chosen under the limit: %s, %d ns", c.Name(), c.Nanos)
	}
	q.RankMemory = 1
	if _, err := Choose(q); err == nil {
		t.Error("a plan fits into one byte")
	}
}

// TestPricingIsBounded: where not all candidates can be priced none is chosen, since the best might
// be one of those left out; one candidate alone is always priced.
func TestPricingIsBounded(t *testing.T) {
	q := causal(64, mesh.Mesh{Head: 1, Ring: 4})
	all := mustChoose(t, q)
	q.MaxOps = all.Possible() * q.ops()
	if again := mustChoose(t, q); again.Chosen().Name() != all.Chosen().Name() {
		t.Errorf("with room for all: %s, want %s", again.Chosen().Name(), all.Chosen().Name())
	}
	for _, room := range []int{1, all.Possible() - 1} {
		q.MaxOps = room * q.ops()
		_, err := Choose(q)
		if err == nil || !strings.Contains(err.Error(), "name a layout, a scheme or a rotation") {
			t.Errorf("with room for %d of %d: %v", room, all.Possible(), err)
		}
	}
	q.MaxOps, q.Free, q.Layout, q.Scheme = 1, Free{}, "zigzag", "ring"
	if one := mustChoose(t, q); len(one.Rows) != 1 {
		t.Errorf("%d rows", len(one.Rows))
	}
}

func TestFixedStaysFixed(t *testing.T) {
	for _, free := range []Free{{Layout: true}, {Scheme: true}, {Rotate: true}, {}} {
		q := causal(96, mesh.Mesh{Head: 2, Ring: 3}).packed(t, 0, 40, 40, 96)
		q.Free, q.Layout, q.Scheme, q.Ring = free, wholeDoc, "ring", ringbus.Ring{Lanes: 2}
		for _, r := range mustChoose(t, q).Rows {
			if !free.Layout && r.Layout != wholeDoc || !free.Scheme && r.Scheme != "ring" ||
				!free.Rotate && r.Scheme == "ring" && r.Rotate != "kv" || r.Ring.Lanes != 2 {
				t.Errorf("%+v: %s %+v", free, r.Name(), r.Ring)
			}
		}
	}
}

func TestSameQuestionSameTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := drawQuestion(t)
		a, err := Choose(q)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Choose(q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a.Rows {
			x, y := a.Rows[i], b.Rows[i]
			if x.Spec.Layout != nil && x.Spec.Layout.String() != y.Spec.Layout.String() {
				t.Fatalf("%s is dealt in two ways", x.Name())
			}
			x.Spec, y.Spec = plan.Spec{}, plan.Spec{}
			if d := cmp.Diff(x, y); d != "" {
				t.Fatal(d)
			}
		}
		if a.Why != b.Why || a.Best != b.Best {
			t.Fatalf("%q, then %q", a.Why, b.Why)
		}
	})
}

// TestWhy: documents that lie on one rank each need no link; contiguous ranks of a causal mask do
// unequal work.
func TestWhy(t *testing.T) {
	q := causal(0, mesh.Mesh{Head: 1, Ring: 4}).packed(t, 0, 1000, 2000, 3000, 4000)
	q.Free, q.Scheme = Free{Layout: true}, "ring"
	table := mustChoose(t, q)
	if !strings.HasPrefix(table.Why, "layout "+table.Chosen().Layout+": ") ||
		!strings.Contains(table.Why, "; next layout ") {
		t.Error(table.Why)
	}
	if s := table.Chosen().SentBytes; s != 0 {
		t.Errorf("%s sends %d bytes", table.Why, s)
	}
	q = causal(4096, mesh.Mesh{Head: 1, Ring: 4})
	q.Topology = Usual(4)
	q.Topology.Flops = 1e9
	two := &Table{Rows: []Row{*mustOne(t, q, "zigzag"), *mustOne(t, q, "contiguous")}}
	if why := two.why(Free{Layout: true}); !strings.Contains(why, "; next layout contiguous ") ||
		!strings.HasSuffix(why, ": rank 3 computes 1.75 times the mean") {
		t.Error(why)
	}
}

// mustOne is the row of a layout with the plain ring.
func mustOne(t *testing.T, q Question, layout string) *Row {
	t.Helper()
	q.Free, q.Layout, q.Scheme = Free{}, layout, "ring"
	return mustChoose(t, q).Chosen()
}
