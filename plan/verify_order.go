package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// graph is what waits for what in one program: dependencies, and in each lane the transfer before.
type graph struct {
	order []int32 // ops, each after all that it waits for
	place []int32 // by op: place in order
	lane  []int32 // by op: the transfer before it in its lane, -1 if none
	tick  []int32 // by op: the highest tick of what it waits for, or its own
	links []int32 // sends and receives
	last  []laneEnd

	marks []int32 // by op: the search that came by
	mark  int32
	stack []int32
	epoch int32
}

// laneEnd is the last transfer of a lane so far, in the program of that epoch.
type laneEnd struct{ epoch, op int32 }

// noTick is below every tick.
const noTick = math.MinInt32

// grow gives s n elements, of unknown content.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/2)
	}
	return s[:n]
}

// sort orders the ops and reports dependencies on no op, lanes with a tick twice, and cycles; it
// tells whether the program can be walked. Programs are mostly written in an order that will do.
func (v *verifier) sort() bool {
	g, p := &v.graph, v.prog
	n := len(p.Ops)
	g.order, g.place = grow(g.order, n), grow(g.place, n)
	g.lane, g.tick = grow(g.lane, n), grow(g.tick, n)
	if cap(g.marks) < n {
		g.marks, g.mark = make([]int32, n+n/2), 0
	}
	g.marks = g.marks[:cap(g.marks)]
	found, inOrder := v.found, true
	for i := range n {
		g.order[i], g.place[i] = int32(i), int32(i)
		for _, d := range p.Deps(i) {
			if d < 0 || int(d) >= n {
				v.fail(badOrder, int32(i), -1, "waits for op %d of %d", d, n)
			}
			inOrder = inOrder && int(d) < i
		}
	}
	inOrder = v.lanes() && inOrder
	if v.found > found {
		return false
	}
	return inOrder || v.kahn()
}

// lanes links each transfer to the one before it in its lane, and tells whether every lane lists
// its transfers in rising order. Then no sorting is needed.
func (v *verifier) lanes() bool {
	g, p := &v.graph, v.prog
	g.epoch++
	g.links = g.links[:0]
	rising := true
	if want := 2 * v.hdr.Ranks * int(NumLanes); len(g.last) < want {
		g.last = make([]laneEnd, want)
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		g.lane[i] = -1
		if !op.Kind.Link() {
			continue
		}
		g.links = append(g.links, int32(i))
		end := &g.last[laneOf(op)]
		if end.epoch == g.epoch {
			g.lane[i] = end.op
			rising = rising && p.Ops[end.op].Tick < op.Tick
		}
		*end = laneEnd{g.epoch, int32(i)}
	}
	if rising {
		return true
	}
	slices.SortStableFunc(g.links, func(a, b int32) int {
		x, y := &p.Ops[a], &p.Ops[b]
		return cmp.Or(cmp.Compare(laneOf(x), laneOf(y)), cmp.Compare(x.Tick, y.Tick))
	})
	for k, i := range g.links {
		g.lane[i] = -1
		if k == 0 {
			continue
		}
		before := g.links[k-1]
		if x, y := &p.Ops[before], &p.Ops[i]; laneOf(x) == laneOf(y) {
			g.lane[i] = before
			if x.Tick == y.Tick {
				v.fail(badDeadlock, i, before, "its lane has tick %d twice: give each transfer of "+
					"a lane a tick of its own", x.Tick)
			}
		}
	}
	return false
}

// laneOf numbers the lanes of a rank: peer, lane, direction.
func laneOf(op *Op) int { return (int(op.Peer)*int(NumLanes)+int(op.Lane))*2 + int(op.Kind-Send) }

// kahn orders the ops whatever their order in the list (Kahn 1962).
func (v *verifier) kahn() bool {
	g, p := &v.graph, v.prog
	n := len(p.Ops)
	waits, first := make([]int32, n), make([]int32, n+2)
	each := func(i int, f func(d int32)) {
		for _, d := range p.Deps(i) {
			f(d)
		}
		if d := g.lane[i]; d >= 0 {
			f(d)
		}
	}
	total := int32(0)
	for i := range n {
		each(i, func(d int32) { waits[i]++; first[d+2]++; total++ })
	}
	for i := 2; i < n+2; i++ {
		first[i] += first[i-1]
	}
	next := make([]int32, total) // ops that wait for op d lie at first[d] to first[d+1]
	for i := range n {
		each(i, func(d int32) { next[first[d+1]] = int32(i); first[d+1]++ })
	}
	g.order = g.order[:0]
	for i := range n {
		if waits[i] == 0 {
			g.order = append(g.order, int32(i))
		}
	}
	for k := 0; k < len(g.order); k++ {
		i := g.order[k]
		g.place[i] = int32(k)
		for _, w := range next[first[i]:first[i+1]] {
			if waits[w]--; waits[w] == 0 {
				g.order = append(g.order, w)
			}
		}
	}
	if len(g.order) < n {
		v.cycle(waits)
		return false
	}
	return true
}

// cycle names ops that wait for one another: from any op left over, what it waits for and is left
// over too, until one comes again.
func (v *verifier) cycle(waits []int32) {
	g, p := &v.graph, v.prog
	at := int32(slices.IndexFunc(waits, func(n int32) bool { return n > 0 }))
	step := make(map[int32]int)
	var path []int32
	for {
		if k, again := step[at]; again {
			path = path[k:]
			break
		}
		step[at] = len(path)
		path = append(path, at)
		next := g.lane[at]
		for _, d := range p.Deps(int(at)) {
			if waits[d] > 0 {
				next = d
			}
		}
		at = next
	}
	var b strings.Builder
	b.WriteString("waits for itself")
	for k, i := range append(path[1:], path[0]) {
		if k == 8 && len(path) > 9 {
			fmt.Fprintf(&b, ", and so on over %d ops", len(path))
			break
		}
		how := "waits for"
		if !slices.Contains(p.Deps(int(path[k])), i) {
			how = "comes in its lane after"
		}
		fmt.Fprintf(&b, ", op %d %s op %d", path[k], how, i)
	}
	other := int32(-1)
	if len(path) > 1 {
		other = path[1]
	}
	v.fail(badDeadlock, path[0], other, "%s", b.String())
}

// tick keeps rule 2: a transfer has a higher tick than any that it waits for.
func (v *verifier) tick(i int32) {
	g, p := &v.graph, v.prog
	most, whose := int32(noTick), int32(-1)
	for _, d := range p.Deps(int(i)) {
		if t := g.tick[d]; t > most {
			most, whose = t, d
		}
	}
	if op := &p.Ops[i]; op.Kind.Link() {
		if most >= op.Tick {
			v.fail(badDeadlock, i, v.transferBehind(whose), "its tick %d is not above tick %d, "+
				"for which it waits: ranks may wait for each other for ever", op.Tick, most)
		}
		most = op.Tick
	}
	g.tick[i] = most
}

// transferBehind is the transfer that gives op i its tick.
func (v *verifier) transferBehind(i int32) int32 {
	for i >= 0 && !v.prog.Ops[i].Kind.Link() {
		deps := v.prog.Deps(int(i))
		tick := v.graph.tick
		k := slices.IndexFunc(deps, func(d int32) bool { return tick[d] == tick[i] })
		if k < 0 {
			return i
		}
		i = deps[k]
	}
	return i
}

// after tells whether op b starts only when op a is over.
func (v *verifier) after(a, b int32) bool {
	g := &v.graph
	if g.place[a] >= g.place[b] {
		return false
	}
	if g.lane[b] == a {
		return true
	}
	for _, d := range v.prog.Deps(int(b)) {
		if d == a {
			return true
		}
	}
	return v.search(a, b)
}

// search walks back from b, not beyond a's place.
func (v *verifier) search(a, b int32) bool {
	g, p := &v.graph, v.prog
	floor := g.place[a]
	if g.mark == math.MaxInt32 {
		clear(g.marks)
		g.mark = 0
	}
	g.mark++
	g.stack = append(g.stack[:0], b)
	for len(g.stack) > 0 {
		at := g.stack[len(g.stack)-1]
		g.stack = g.stack[:len(g.stack)-1]
		if d := g.lane[at]; d >= 0 && g.place[d] >= floor && g.marks[d] != g.mark {
			if d == a {
				return true
			}
			g.marks[d] = g.mark
			g.stack = append(g.stack, d)
		}
		for _, d := range p.Deps(int(at)) {
			if d == a {
				return true
			}
			if g.place[d] > floor && g.marks[d] != g.mark {
				g.marks[d] = g.mark
				g.stack = append(g.stack, d)
			}
		}
	}
	return false
}
