package sim

import "github.com/kvloom/kvloom/actors"

// what is the kind of an event.
type what uint8

const (
	delivery    what = iota // env reaches env.To
	opOver                  // the op of env on env.Stream of device rank is done
	blockOver               // the block of env (a Put) is at the receiver
	alarm                   // env.To's alarm of generation until rings
	pauseBegins             // rank is deaf until
	pauseEnds               // rank hears what it has missed
)

// String is the kind's name in traces.
func (w what) String() string {
	return [...]string{"deliver", "op", "block", "alarm", "pause", "resume"}[w]
}

type event struct {
	at    actors.Time
	seq   uint64
	until actors.Time
	env   actors.Envelope
	rank  int32
	what  what
}

// heap is the events to come, earliest first, in the order of their making when times are equal.
// Keys and bodies are apart, so that sifting moves 24 bytes, not an envelope.
type heap struct {
	keys   []key
	bodies []event
	free   []int32
	seq    uint64
}

type key struct {
	at   actors.Time
	seq  uint64
	body int32
}

func (k key) before(o key) bool { return k.at < o.at || (k.at == o.at && k.seq < o.seq) }

func (h *heap) len() int { return len(h.keys) }

func (h *heap) push(e event) {
	h.seq++
	e.seq = h.seq
	b := int32(len(h.bodies))
	if n := len(h.free); n > 0 {
		b = h.free[n-1]
		h.free = h.free[:n-1]
		h.bodies[b] = e
	} else {
		h.bodies = append(h.bodies, e)
	}
	h.keys = append(h.keys, key{at: e.at, seq: e.seq, body: b})
	for i := len(h.keys) - 1; i > 0; {
		up := (i - 1) / 4
		if !h.keys[i].before(h.keys[up]) {
			return
		}
		h.keys[i], h.keys[up] = h.keys[up], h.keys[i]
		i = up
	}
}

func (h *heap) pop() event {
	top := h.keys[0].body
	n := len(h.keys) - 1
	h.keys[0] = h.keys[n]
	h.keys = h.keys[:n]
	for i := 0; ; {
		least := i
		for c := 4*i + 1; c <= 4*i+4 && c < n; c++ {
			if h.keys[c].before(h.keys[least]) {
				least = c
			}
		}
		if least == i {
			break
		}
		h.keys[i], h.keys[least] = h.keys[least], h.keys[i]
		i = least
	}
	h.free = append(h.free, top)
	return h.bodies[top]
}

// random is SplitMix64: small, seeded, the same everywhere.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) below(n actors.Time) actors.Time {
	return actors.Time(r.next() % uint64(n))
}
