package live

import (
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/actors"
)

// take serves one message without an actor.
func take(m *mailbox) (actors.Envelope, bool) {
	message, _ := m.next()
	if e, ok := message.(*actors.Envelope); ok {
		return *e, true
	}
	return actors.Envelope{}, false
}

func ofKind(k actors.Kind, op int32) *actors.Envelope { return &actors.Envelope{Kind: k, Op: op} }

func TestMailboxServesAlarmAfterWhatHadCome(t *testing.T) {
	m := newMailbox(8, nil, nil)
	m.setAlarm(100)
	m.post(ofKind(actors.Done, 1))
	m.post(ofKind(actors.Done, 2))
	if early := m.fire(100); early != 0 {
		t.Fatalf("fire in time was %d early", early)
	}
	m.post(ofKind(actors.Done, 3))
	m.post(ofKind(actors.Abort, 4))
	want := []actors.Kind{actors.Abort, actors.Done, actors.Done, actors.Timer, actors.Done}
	for i, k := range want {
		if e, ok := take(m); !ok || e.Kind != k {
			t.Fatalf("message %d: got kind %d (%v), want %d", i, e.Kind, ok, k)
		}
	}
	if e, ok := take(m); ok {
		t.Fatalf("one message too many: %+v", e)
	}
}

func TestMailboxForgetsStaleAlarms(t *testing.T) {
	cases := []struct {
		name string
		do   func(m *mailbox)
		want int
	}{
		{"fired", func(m *mailbox) { m.setAlarm(5); m.fire(5) }, 1},
		{"fired twice", func(m *mailbox) { m.setAlarm(5); m.fire(5); m.fire(6) }, 1},
		{"cleared after it fired", func(m *mailbox) {
			m.setAlarm(5)
			m.fire(5)
			m.setAlarm(actors.Never)
		}, 0},
		{"set anew after it fired", func(m *mailbox) {
			m.setAlarm(5)
			m.fire(5)
			m.setAlarm(9)
		}, 0},
		{"old call comes after it was set anew", func(m *mailbox) {
			m.setAlarm(5)
			m.setAlarm(9)
			m.fire(6)
		}, 0},
		{"old call comes after it was cleared", func(m *mailbox) {
			m.setAlarm(5)
			m.setAlarm(actors.Never)
			m.fire(6)
		}, 0},
		{"old call and the real one", func(m *mailbox) {
			m.setAlarm(5)
			m.setAlarm(9)
			m.fire(6)
			m.fire(9)
		}, 1},
		{"closed", func(m *mailbox) { m.setAlarm(5); m.fire(5); m.close(); m.fire(7) }, 0},
	}
	for _, c := range cases {
		m := newMailbox(8, nil, nil)
		c.do(m)
		got := 0
		for e, ok := take(m); ok; e, ok = take(m) {
			if e.Kind == actors.Timer {
				got++
			}
		}
		if got != c.want {
			t.Errorf("%s: %d timers delivered, want %d", c.name, got, c.want)
		}
	}
	m := newMailbox(8, nil, nil)
	m.setAlarm(9)
	if early := m.fire(6); early != 3 {
		t.Errorf("fire at 6 for an alarm at 9 was %d early, want 3", early)
	}
}

func TestMailboxServesOnlySystemWhenSuspended(t *testing.T) {
	m := newMailbox(8, nil, nil)
	m.post(ofKind(actors.Done, 1))
	m.PostSystemMessage(&actor.SuspendMailbox{})
	if e, ok := take(m); ok {
		t.Fatalf("suspended box served %+v", e)
	}
	m.PostSystemMessage(&actor.ResumeMailbox{})
	if e, ok := take(m); !ok || e.Op != 1 {
		t.Fatalf("resumed box served %+v (%v), want op 1", e, ok)
	}
}

// TestMailboxIsTwoQueues compares with two plain slices: order in each lane, urgent first, limits.
func TestMailboxIsTwoQueues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		m := newMailbox(limit, nil, nil)
		var lanes [2][]int32 // urgent, normal
		for i := range int32(rapid.IntRange(0, 200).Draw(t, "steps")) {
			switch rapid.IntRange(0, 2).Draw(t, "do") {
			case 0:
				lanes[0] = append(lanes[0], i)
				if v := m.post(ofKind(actors.Ping, i)); v != posted {
					t.Fatalf("urgent post: verdict %d", v)
				}
			case 1:
				want := posted
				if len(lanes[1]) == limit {
					want = full
				} else {
					lanes[1] = append(lanes[1], i)
				}
				if v := m.post(ofKind(actors.Done, i)); v != want {
					t.Fatalf("post with %d of %d: verdict %d, want %d", len(lanes[1]), limit, v,
						want)
				}
			case 2:
				lane := &lanes[0]
				if len(*lane) == 0 {
					lane = &lanes[1]
				}
				e, ok := take(m)
				if ok != (len(*lane) > 0) || (ok && e.Op != (*lane)[0]) {
					t.Fatalf("took %d (%v), want the first of %v", e.Op, ok, *lane)
				}
				if ok {
					*lane = (*lane)[1:]
				}
			}
			if n := m.UserMessageCount(); n != len(lanes[0])+len(lanes[1]) {
				t.Fatalf("box holds %d envelopes, want %d", n, len(lanes[0])+len(lanes[1]))
			}
		}
		if lost := m.close(); lost != len(lanes[0])+len(lanes[1]) {
			t.Fatalf("close lost %d, want %d", lost, len(lanes[0])+len(lanes[1]))
		}
		if v := m.post(ofKind(actors.Done, 0)); v != shut {
			t.Fatalf("post to a closed box: verdict %d", v)
		}
	})
}

func TestUrgentLaneIsBounded(t *testing.T) {
	m := newMailbox(1, nil, nil)
	for i := range UrgentLimit {
		if v := m.post(ofKind(actors.Ping, int32(i))); v != posted {
			t.Fatalf("post %d: verdict %d", i, v)
		}
	}
	if v := m.post(ofKind(actors.Ping, 0)); v != full {
		t.Fatalf("post beyond the limit: verdict %d, want full", v)
	}
}

func TestMachinesAreActors(t *testing.T) {
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan actors.Envelope, 16)
	watch := machine(func(in actors.Envelope) { got <- in })
	self := actors.Addr{Role: actors.Rank, Rank: 3}
	for _, a := range []actors.Addr{{Role: actors.Scheduler}, self} {
		if err := h.Spawn(a, watch, 7, 4); err != nil {
			t.Fatal(err)
		}
		<-got // Start
	}
	pid := h.system.NewLocalPID("rank 3, incarnation 7, actor 2")
	if _, ok := h.system.ProcessRegistry.Get(pid); !ok {
		t.Fatal("protoactor does not know the machine's actor")
	}
	h.system.Root.Send(pid, &actors.Envelope{Kind: actors.Done, Op: 5})
	if e := <-got; e.Op != 5 || e.To != self {
		t.Fatalf("by PID came %+v", e)
	}
	h.system.Root.Send(pid, "no envelope")
	if n := h.Dropped(); n != 1 {
		t.Fatalf("dropped %d, want 1: the message that is no envelope", n)
	}
	h.system.Root.Stop(pid)
	if e := <-got; e.Kind != actors.Down || e.From != self || e.A != 7 {
		t.Fatalf("after a stop through protoactor came %+v, want Down of incarnation 7", e)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

type machine func(in actors.Envelope)

func (f machine) Step(_ actors.Time, in actors.Envelope, _ *actors.Outbox) { f(in) }
