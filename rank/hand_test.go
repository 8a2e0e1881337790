package rank_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/transport"
)

// self is the rank under test; its peers are whatever a program names.
const (
	self     = 1
	deadline = actors.Time(1000)
	planHash = 0xabc
	runName  = 0x5e551017
)

// dev is a device op, send and recv are transfers, rel is a release; after are the ops waited for.
func dev(k plan.Kind, tick int32, after ...int32) line {
	return line{op: plan.Op{Kind: k, Peer: -1, Tick: tick}, after: after}
}

func send(peer, lane, tick int32, after ...int32) line {
	return line{op: plan.Op{Kind: plan.Send, Peer: peer, Lane: lane, Tick: tick}, after: after}
}

func recv(peer, lane, tick int32, after ...int32) line {
	return line{op: plan.Op{Kind: plan.Recv, Peer: peer, Lane: lane, Tick: tick}, after: after}
}

func rel(tick int32, after ...int32) line { return dev(plan.Release, tick, after...) }

type line struct {
	op    plan.Op
	after []int32
}

// script makes a program of hand-written lines. What the ops touch does not matter to a worker, so
// op i has one operand, slot i.
func script(t testing.TB, lines ...line) *rank.Script {
	t.Helper()
	h := &plan.Header{
		Ranks: 4, Sets: []mesh.Set{nil, {{Start: 0, Stride: 1, Count: 8}}},
		Names: []string{"none", "c0"},
	}
	p := &plan.Program{Rank: self}
	for i, l := range lines {
		p.Slots = append(p.Slots, plan.Slot{})
		arg := plan.Operand{Slot: int32(i), Set: 1, Heads: mesh.Heads{Hi: 2}, Tensor: plan.KV}
		p.Append(l.op, []plan.Operand{arg}, l.after)
	}
	s, err := rank.Compile(h, p, planHash)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// book gives round r the script r mod len.
type book []*rank.Script

func (b book) Script(_, round int32) *rank.Script {
	if round < 0 || len(b) == 0 || round >= bookEnd {
		return nil
	}
	return b[int(round)%len(b)]
}

// bookEnd is the first round that no book here has.
const bookEnd = 1 << 20

func (b book) State(round int32) int32 { return stateOf(round) }

func stateOf(round int32) int32 { return 5 + round%3 }

func (b book) Holds(_, from, to int32) uint64 { return uint64(from)<<32 | uint64(to) }

// desk is a worker stepped by hand.
type desk struct {
	t   testing.TB
	w   *rank.Worker
	b   book
	out actors.Outbox
	now actors.Time
}

func newDesk(t testing.TB, b ...*rank.Script) *desk {
	return &desk{t: t, b: b, w: rank.New(rank.Config{
		Rank: self, Run: runName, Incarnation: 7, Book: book(b), Deadline: deadline})}
}

// says steps the worker and compares what it says, in order, with want: lines of text, see say.
func (d *desk) says(in actors.Envelope, want ...string) {
	d.t.Helper()
	if got := d.step(in); !slices.Equal(got, want) {
		d.t.Fatalf("after %s the worker says\n  %s\nwant\n  %s", say(&in),
			strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (d *desk) step(in actors.Envelope) []string {
	d.out.Reset()
	d.w.Step(d.now, in, &d.out)
	var got []string
	for i := range d.out.Mail {
		e := &d.out.Mail[i]
		if e.From != (actors.Addr{Role: actors.Rank, Rank: self}) {
			d.t.Fatalf("%s comes from %v, want rank %d", say(e), e.From, self)
		}
		if e.To.Role != actors.Scheduler && e.To.Rank != self {
			d.t.Fatalf("%s goes to %v: a rank speaks to its own device and link", say(e), e.To)
		}
		got = append(got, say(e))
	}
	return got
}

// noted fails unless a note of the last step holds every part.
func (d *desk) noted(parts ...string) {
	d.t.Helper()
	all := strings.Join(d.out.Notes, "\n")
	for _, p := range parts {
		if !strings.Contains(all, p) {
			d.t.Errorf("notes %q do not tell %q", all, p)
		}
	}
}

// say is an envelope as a line. Epoch 1 and round 0, in which most tests are, are left out.
func say(e *actors.Envelope) string {
	s := ""
	switch e.Kind {
	case actors.Launch:
		s = fmt.Sprintf("launch %d on %d", e.Op, e.Stream)
		if e.N > 0 {
			s += fmt.Sprintf(" after %v", e.After[:e.N])
		}
	case actors.Post:
		s = fmt.Sprintf("post %d <-%d/%d t%d", e.Op, e.Peer, e.Lane, e.Tick)
	case actors.Put:
		s = fmt.Sprintf("put %d ->%d/%d t%d", e.Op, e.Peer, e.Lane, e.Tick)
	case actors.Credit:
		s = fmt.Sprintf("credit of %d/%d t%d", e.Peer, e.Lane, e.Tick)
	case actors.Late:
		s = fmt.Sprintf("late op %d: %v, peer %d lane %d", e.Op, e.Fault, e.Peer, e.Lane)
	case actors.Aborted:
		s = fmt.Sprintf("aborted at op %d, peer %d lane %d, not done %d", e.Op, e.Peer, e.Lane, e.A)
	case actors.RoundDone:
		s = fmt.Sprintf("round done, exposed %d busy %d", e.A, e.B)
	case actors.Hello:
		return fmt.Sprintf("hello %d", e.A)
	case actors.Confirm:
		s = fmt.Sprintf("confirm %x", e.A)
	default:
		s = words(e.Kind)
		if e.Kind == actors.Flush || e.Kind == actors.Flushed || e.Kind == actors.Ping {
			s += " " + strings.Fields(e.To.String())[0]
		}
	}
	if e.Epoch != 1 {
		s += fmt.Sprintf(" epoch %d", e.Epoch)
	}
	if e.Round != 0 {
		s += fmt.Sprintf(" round %d", e.Round)
	}
	return s
}

func words(k actors.Kind) string {
	switch k {
	case actors.Grant:
		return "grant"
	case actors.Abort:
		return "abort"
	case actors.Stop:
		return "stop"
	case actors.Stopped:
		return "stopped"
	case actors.Flush:
		return "flush"
	case actors.Flushed:
		return "flushed"
	case actors.Done:
		return "done"
	case actors.Sent:
		return "sent"
	case actors.Arrived:
		return "arrived"
	case actors.Timer:
		return "timer"
	case actors.Ping:
		return "ping"
	case actors.Pong:
		return "pong"
	}
	return fmt.Sprintf("kind %d", k)
}

// What the worker hears. All are of epoch 1, round 0 unless changed by in.

func in(epoch actors.Epoch, round int32, e actors.Envelope) actors.Envelope {
	e.Epoch, e.Round = epoch, round
	return e
}

func grant(from, to int32) actors.Envelope {
	return in(1, from, actors.Envelope{Kind: actors.Grant, Op: to})
}

func done(op int32) actors.Envelope {
	return in(1, 0, actors.Envelope{Kind: actors.Done, Op: op})
}

func took(op int32, nanos, flops uint64) actors.Envelope {
	return in(1, 0, actors.Envelope{Kind: actors.Done, Op: op, A: nanos, B: flops})
}

func sent(op int32) actors.Envelope {
	return in(1, 0, actors.Envelope{Kind: actors.Sent, Op: op})
}

func credit(peer, lane, tick int32) actors.Envelope {
	return in(1, 0, actors.Envelope{Kind: actors.Credit, Peer: peer, Lane: lane, Tick: tick})
}

func flushedBy(r actors.Role) actors.Envelope {
	return in(1, 0, actors.Envelope{
		Kind: actors.Flushed, From: actors.Addr{Role: r, Rank: self},
		To: actors.Addr{Role: actors.Rank, Rank: self}})
}

func kind(k actors.Kind) actors.Envelope { return in(1, 0, actors.Envelope{Kind: k}) }

// arrived is the block that receive op of s waits for, with the header that the plan wants.
func arrived(s *rank.Script, op int32) actors.Envelope { return arrivedIn(1, 0, s, op) }

func arrivedIn(epoch actors.Epoch, round int32, s *rank.Script, op int32) actors.Envelope {
	e := actors.Envelope{Kind: actors.Arrived, Op: op, Peer: s.Program.Ops[op].Peer}
	headerOf(epoch, round, s, op).Stamp(&e)
	return e
}

// headerOf is what the block of a transfer must say of itself.
func headerOf(epoch actors.Epoch, round int32, s *rank.Script, op int32) transport.Header {
	o, a := s.Program.Ops[op], s.Program.Args(int(op))[0]
	return transport.Header{
		Run: runName, Epoch: epoch, Round: round, Pass: uint8(s.Program.Pass),
		State: stateOf(round), Lane: o.Lane, Tick: o.Tick, Tensor: uint8(a.Tensor),
		HeadLo: a.Heads.Lo, HeadHi: a.Heads.Hi, SetHash: s.Header.SetHash(a.Set), Plan: planHash,
	}
}
