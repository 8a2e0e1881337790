package kvloom

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// traced runs a forward and a backward round and gives what was told of them.
func traced(t *testing.T, cfg Config) (*Session[float32], []TraceEvent) {
	t.Helper()
	var told []TraceEvent
	cfg.Trace = func(e TraceEvent) { told = append(told, e) } // the race detector watches
	s := open(t, cfg)
	if err := s.Run(t.Context(), forwardBackward...); err != nil {
		t.Fatal(err)
	}
	return s, told
}

// track is where an event is drawn: a stream of a rank, or a way between two.
func (e *TraceEvent) track() string {
	if e.Stream == "" {
		return fmt.Sprintf("%d->%d", e.Rank, e.Peer)
	}
	return fmt.Sprintf("%d %s", e.Rank, e.Stream)
}

// disjoint wants times in order, and no two events of a track at the same time.
func disjoint(t *testing.T, told []TraceEvent) {
	t.Helper()
	told = slices.Clone(told)
	slices.SortStableFunc(told, func(a, b TraceEvent) int { return cmp.Compare(a.Begin, b.Begin) })
	free := map[string]time.Duration{}
	for _, e := range told {
		if e.Asked > e.Begin || e.Begin > e.End || e.End > e.Over || e.Asked <= 0 {
			t.Errorf("times out of order: %+v", e)
		}
		if e.Begin < free[e.track()] {
			t.Errorf("%s is busy until %v: %+v", e.track(), free[e.track()], e)
		}
		free[e.track()] = e.End
	}
}

// TestTraceTellsAll: every device op and every block of both programs of every rank is told of
// once, with its text, and the bytes are those that the links counted.
func TestTraceTellsAll(t *testing.T) {
	for _, m := range []mesh.Mesh{{Head: 1, Ring: 1}, {Head: 1, Ring: 4}, {Head: 2, Ring: 3}} {
		s, told := traced(t, testConfig(m))
		disjoint(t, told)
		seen := map[string]int{}
		bytes := make([]int64, m.Ranks())
		for _, e := range told {
			seen[fmt.Sprint(e.Pass, e.Rank, e.Op)]++
			if e.Name == "" || (e.Stream == "") != (e.Peer >= 0) || e.Round != int(e.Pass) ||
				(e.Stream == "") != (e.Bytes > 0) {
				t.Errorf("%+v", e)
			}
			bytes[e.Rank] += e.Bytes
		}
		want := 0
		for r := range m.Ranks() {
			for _, pass := range []plan.Pass{plan.Forward, plan.Backward} {
				p, err := s.Plan(0).Program(pass, r)
				if err != nil {
					t.Fatal(err)
				}
				for i := range p.Ops {
					if k := p.Ops[i].Kind; k == plan.Recv || k == plan.Release {
						continue
					}
					want++
					text := string(p.AppendOp(nil, s.Plan(0).Header(), i))
					if n := seen[fmt.Sprint(pass, r, text)]; n != 1 {
						t.Errorf("%v rank %d %s is told of %d times", pass, r, text, n)
					}
				}
			}
			sent := int64(0)
			for _, n := range s.Figures(0, r).Bytes {
				sent += n
			}
			if bytes[r] != sent {
				t.Errorf("rank %d: %d bytes were told, its links counted %d", r, bytes[r], sent)
			}
		}
		if len(told) != want {
			t.Errorf("%d events, want %d", len(told), want)
		}
	}
}

// TestTraceOfPacedLinks: an op and a block take their modelled time, and a block that waits for its
// way says so. (A timer that fires late holds a way for longer, and the next block is on time
// again: so a block's time counts from when it was put.)
func TestTraceOfPacedLinks(t *testing.T) {
	const hop, op = 20 * time.Millisecond, time.Millisecond
	cfg := testConfig(mesh.Mesh{Head: 1, Ring: 2})
	cfg.Pace = &Pace{
		Op:   func(_, _, _ int32) time.Duration { return op },
		Link: func(_, _, _, _, _ int32) time.Duration { return hop },
	}
	_, told := traced(t, cfg)
	disjoint(t, told)
	waited := false
	for _, e := range told {
		least := op
		if e.Stream == "" {
			least = hop
			waited = waited || e.Begin > e.Asked
		}
		if took := e.End - e.Asked; took < least {
			t.Errorf("takes %v, its pace is %v: %+v", took, least, e)
		}
	}
	if !waited { // dKV is put while KV is on the way
		t.Error("no block waited for its way: the test shows nothing")
	}
}
