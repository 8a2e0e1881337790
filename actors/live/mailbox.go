package live

import (
	"runtime"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvloom/kvloom/actors"
)

// UrgentLimit is the most envelopes that wait on an urgent lane.
const UrgentLimit = 1 << 16

// mailbox is a bounded protoactor mailbox of envelopes by value. A post never blocks. The host
// posts to it directly: on protoactor's own way each envelope would be boxed on the heap.
type mailbox struct {
	limit int

	mu        sync.Mutex
	system    []any // protoactor's own messages, served before all
	urgent    ring
	normal    ring
	pushed    uint64 // to the normal lane, ever
	popped    uint64
	alarm     actors.Time // Never: none is set
	due       bool        // the alarm has fired
	dueAfter  uint64      // it is served when popped has reached this
	started   bool
	running   bool // a goroutine drains the box
	suspended bool
	closed    bool // takes no mail any more
	ended     bool // the actor has stopped

	invoker    actor.MessageInvoker
	dispatcher actor.Dispatcher
	drain      func() // m.process, bound once
	onPanic    func(reason any)
	onForeign  func(message any)
	current    actors.Envelope // being served; touched by the draining goroutine only
	done       chan struct{}   // closed when the last goroutine has left
}

var _ actor.Mailbox = (*mailbox)(nil)

func newMailbox(limit int, onPanic, onForeign func(any)) *mailbox {
	m := &mailbox{
		limit: limit, alarm: actors.Never, onPanic: onPanic, onForeign: onForeign,
		done: make(chan struct{}),
	}
	m.drain = m.process
	return m
}

// verdict is what became of a post.
type verdict uint8

const (
	posted verdict = iota
	full
	shut
)

// urgent tells which kinds overtake.
func urgent(k actors.Kind) bool {
	switch k {
	case actors.Abort, actors.Stop, actors.Down, actors.Ping:
		return true
	}
	return false
}

// post queues an envelope and wakes the actor.
func (m *mailbox) post(e *actors.Envelope) verdict {
	m.mu.Lock()
	switch {
	case m.closed:
		m.mu.Unlock()
		return shut
	case urgent(e.Kind):
		if m.urgent.n == UrgentLimit {
			m.mu.Unlock()
			return full
		}
		m.urgent.push(e, UrgentLimit)
	default:
		if m.normal.n == m.limit {
			m.mu.Unlock()
			return full
		}
		m.normal.push(e, m.limit)
		m.pushed++
	}
	m.wakeAndUnlock()
	return posted
}

// grow raises the limit of the normal lane; it never lowers it.
func (m *mailbox) grow(limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = max(m.limit, limit)
}

// wakeAndUnlock ends a change of the box: it starts a goroutine to drain it, unless one does.
func (m *mailbox) wakeAndUnlock() {
	start := m.started && !m.running
	m.running = m.running || start
	m.mu.Unlock()
	if start {
		m.dispatcher.Schedule(m.drain)
	}
}

// setAlarm replaces the alarm; what fired before and was not served is forgotten.
func (m *mailbox) setAlarm(at actors.Time) {
	m.mu.Lock()
	m.alarm, m.due = at, false
	m.mu.Unlock()
}

// fire is called by the timer. It gives how much too early that was: positive for a timer that was
// set anew while its old call was on the way.
func (m *mailbox) fire(now actors.Time) (early actors.Time) {
	m.mu.Lock()
	if m.closed || m.alarm == actors.Never {
		m.mu.Unlock()
		return 0
	}
	if now < m.alarm {
		early = m.alarm - now
		m.mu.Unlock()
		return early
	}
	m.alarm, m.due, m.dueAfter = actors.Never, true, m.pushed
	m.wakeAndUnlock()
	return 0
}

// close refuses mail from now on, and gives the number of envelopes that are lost.
func (m *mailbox) close() (lost int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.due, m.alarm = true, false, actors.Never
	lost = m.urgent.n + m.normal.n
	m.urgent, m.normal = ring{}, ring{}
	return lost
}

// end says that the actor has stopped; the goroutine that drains the box leaves for good.
func (m *mailbox) end() {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
}

// PostUserMessage hands a message that comes by protoactor's own way to the cell.
func (m *mailbox) PostUserMessage(message any) { m.onForeign(message) }

// PostSystemMessage takes a message of protoactor's.
func (m *mailbox) PostSystemMessage(message any) {
	m.mu.Lock()
	m.system = append(m.system, message)
	m.wakeAndUnlock()
}

// RegisterHandlers is called once, before Start.
func (m *mailbox) RegisterHandlers(invoker actor.MessageInvoker, dispatcher actor.Dispatcher) {
	m.invoker, m.dispatcher = invoker, dispatcher
}

// Start lets the box be drained: what came before waits until now.
func (m *mailbox) Start() {
	m.mu.Lock()
	m.started = true
	m.wakeAndUnlock()
}

// UserMessageCount is the number of envelopes that wait.
func (m *mailbox) UserMessageCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.urgent.n + m.normal.n
}

// process drains the box until it is empty.
func (m *mailbox) process() {
	for m.run() {
	}
}

// run serves messages until there are none, or one panics; then it must be called again.
func (m *mailbox) run() (again bool) {
	var message any
	turn := m.dispatcher.Throughput()
	defer func() {
		if r := recover(); r != nil {
			again = true
			m.onPanic(r)
			m.invoker.EscalateFailure(r, message)
		}
	}()
	for i := 1; ; i++ {
		if i%turn == 0 {
			runtime.Gosched()
		}
		var system bool
		message, system = m.next()
		switch {
		case message == nil:
			return false
		case system:
			m.invoker.InvokeSystemMessage(message)
		default:
			m.invoker.InvokeUserMessage(message)
		}
	}
}

// next takes what is to be served next, nil when the goroutine shall leave.
func (m *mailbox) next() (message any, system bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.system) > 0 {
		message = m.system[0]
		m.system = m.system[1:]
		switch message.(type) {
		case *actor.SuspendMailbox:
			m.suspended = true
		case *actor.ResumeMailbox:
			m.suspended = false
		default:
			return message, true
		}
	}
	switch {
	case m.suspended:
	case m.urgent.n > 0:
		m.urgent.pop(&m.current)
		return &m.current, false
	case m.due && m.popped >= m.dueAfter:
		m.due = false
		m.current = actors.Envelope{Kind: actors.Timer}
		return &m.current, false
	case m.normal.n > 0:
		m.normal.pop(&m.current)
		m.popped++
		return &m.current, false
	}
	m.running = false
	if m.ended {
		m.started = false
		close(m.done)
	}
	return nil, false
}

// ring is a queue of envelopes that grows to its limit and keeps its memory.
type ring struct {
	buf     []actors.Envelope
	head, n int
}

func (r *ring) push(e *actors.Envelope, limit int) {
	if r.n == len(r.buf) {
		grown := make([]actors.Envelope, min(max(2*len(r.buf), 8), limit))
		k := copy(grown, r.buf[r.head:])
		copy(grown[k:], r.buf[:r.head])
		r.buf, r.head = grown, 0
	}
	at := r.head + r.n
	if at >= len(r.buf) {
		at -= len(r.buf)
	}
	r.buf[at] = *e
	r.n++
}

func (r *ring) pop(e *actors.Envelope) {
	*e = r.buf[r.head]
	r.head++
	if r.head == len(r.buf) {
		r.head = 0
	}
	r.n--
}
