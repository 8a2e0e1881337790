package plan_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/kvloom/kvloom/plan"
)

// The life of an op in the judge. A release is over as soon as it begins.
const (
	waiting uint8 = iota
	startable
	running
	over
)

// world is one pass being run in one order.
type world struct {
	j      *judge
	p      *judgePass
	o      order
	rng    *rand.Rand
	needs  []int32
	state  []uint8
	events []int32 // ops that may start, device ops that may end, sends whose transfer may end
	over   int
	mem    [][]slotMem // by rank and slot
	done   tally       // what was computed, over all ranks
	shares []int       // of the sink's gradient, by row and head of queries
	home   *session
	digest uint64
}

// run executes all passes in one order. The digest stands for the order of all additions.
func (j *judge) run(o order) (digest uint64, err error) {
	home := j.newSession()
	rng := rand.New(rand.NewPCG(o.seed, 1))
	for i := range j.passes {
		p := &j.passes[i]
		w := &world{j: j, p: p, o: o, rng: rng, home: home, done: j.newTally()}
		w.shares = make([]int, j.q.n*j.hdr.QHeads)
		if err := w.run(); err != nil {
			return 0, err
		}
		digest = mix(digest, w.digest)
	}
	return digest, nil
}

func (w *world) run() error {
	if err := w.open(); err != nil {
		return err
	}
	n := len(w.p.ops)
	w.needs, w.state = make([]int32, n), make([]uint8, n)
	for id := range w.p.ops {
		w.needs[id] = w.p.ops[id].needs
		if w.needs[id] == 0 {
			w.wake(int32(id))
		}
	}
	for len(w.events) > 0 {
		i := w.pick()
		id := w.events[i]
		last := len(w.events) - 1
		w.events[i] = w.events[last]
		w.events = w.events[:last]
		var err error
		if w.state[id] == startable {
			err = w.start(id)
		} else {
			err = w.end(id)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.p.name(&w.p.ops[id]), err)
		}
	}
	if w.over < n {
		return w.hang()
	}
	return w.close()
}

// wake makes an op startable.
func (w *world) wake(id int32) {
	w.state[id] = startable
	w.events = append(w.events, id)
}

// satisfied counts down what an op waits for.
func (w *world) satisfied(id int32) {
	w.needs[id]--
	if w.needs[id] == 0 {
		w.wake(id)
	}
}

// start begins an op. A receive that has started is the credit of its send, and only the send
// says when the transfer may end.
func (w *world) start(id int32) error {
	op := &w.p.ops[id]
	w.state[id] = running
	if op.kind == plan.Release {
		if err := w.release(op); err != nil {
			return err
		}
		w.finish(id)
		return nil
	}
	for i := range op.args {
		if err := w.touch(op, i); err != nil {
			return err
		}
	}
	if op.kind != plan.Recv {
		w.events = append(w.events, id)
	} else if op.mate >= 0 {
		w.satisfied(op.mate)
	}
	return nil
}

// end completes a device op, or both ends of a transfer.
func (w *world) end(id int32) error {
	op := &w.p.ops[id]
	if op.kind == plan.Send {
		if err := w.arrive(op, &w.p.ops[op.mate]); err != nil {
			return err
		}
		w.let(&w.p.ops[op.mate])
		w.let(op)
		w.finish(op.mate)
	} else {
		if err := w.compute(op); err != nil {
			return err
		}
		w.let(op)
	}
	w.finish(id)
	return nil
}

// finish declares an op over.
func (w *world) finish(id int32) {
	w.state[id] = over
	w.over++
	for _, next := range w.p.ops[id].after {
		w.satisfied(next)
	}
}

// isLate tells whether event id is the one to hold back. The end of a receive is its send's.
func (w *world) isLate(id int32) bool {
	l := w.o.late
	if l == nil || l.pass != w.p.pass || w.o.atEnd != (w.state[id] == running) {
		return false
	}
	if l.rank >= len(w.p.base) {
		return false
	}
	late := w.p.base[l.rank] + int32(l.op)
	return id == late || w.o.atEnd && w.p.ops[id].mate == late
}

// pick chooses the next event: by chance, by a random rank of all events, by a random rank of the
// ranks, or starting whatever can start before anything ends, so that accesses overlap.
func (w *world) pick() int {
	best, bestKey := -1, uint64(0)
	for i, id := range w.events {
		if len(w.events) > 1 && w.isLate(id) {
			continue
		}
		key := uint64(0)
		switch w.o.seed >> 7 % 4 {
		case 0:
			key = w.rng.Uint64() | 1
		case 1:
			key = mix(w.o.seed, uint64(id)*4+uint64(w.state[id])) | 1
		case 2:
			key = mix(w.o.seed, uint64(w.p.ops[id].rank))>>8<<8 | w.rng.Uint64()>>56 | 1
		case 3:
			key = w.rng.Uint64()>>1 | 1
			if w.state[id] == startable {
				key |= 1 << 63
			}
		}
		if key > bestKey {
			best, bestKey = i, key
		}
	}
	return best
}

// hang says what never came over.
func (w *world) hang() error {
	for id := range w.p.ops {
		if w.state[id] == running || w.state[id] == waiting && w.blocked(int32(id)) {
			return fmt.Errorf("%s never ends: the ranks hang with %d of %d ops over",
				w.p.name(&w.p.ops[id]), w.over, len(w.p.ops))
		}
	}
	return fmt.Errorf("%s: the ranks hang with %d of %d ops over, waiting in a circle", w.p.pass,
		w.over, len(w.p.ops))
}

// blocked tells whether an op waits only for its other end.
func (w *world) blocked(id int32) bool {
	return w.p.ops[id].kind == plan.Send && w.needs[id] == 1
}

// mix is a hash of a sequence: h of what came before, x the next.
func mix(h, x uint64) uint64 {
	h = (h ^ x) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}
