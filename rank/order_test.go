package rank_test

import (
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
)

// step is what the worker hears and what it must say to that.
type step struct {
	in   actors.Envelope
	says []string
}

func hears(in actors.Envelope, says ...string) step { return step{in, says} }

// TestOrder steps small programs by hand: what is queued, posted and put when, and nothing else.
// Streams: 0 compute (attend, zero), 1 in (accumulate, unpack), 2 out (pack).
func TestOrder(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []line
		steps []step
	}{
		{"no more than the depth is queued on a stream, each stream for itself",
			[]line{
				dev(plan.Attend, 0), dev(plan.Attend, 1), dev(plan.Attend, 2), dev(plan.Attend, 3),
				dev(plan.Pack, 0), dev(plan.Accumulate, 0),
			},
			[]step{
				hears(grant(0, 1), "launch 0 on 0", "launch 1 on 0", "launch 5 on 1",
					"launch 4 on 2"),
				hears(done(0), "launch 2 on 0"),
				hears(done(5)),
				hears(done(1), "launch 3 on 0"),
			}},
		{"lowest tick first, then lowest number",
			[]line{
				dev(plan.Attend, 5), dev(plan.Attend, 3), dev(plan.Attend, 9), dev(plan.Attend, 3),
				dev(plan.Attend, 1), dev(plan.Attend, 1),
			},
			[]step{
				hears(grant(0, 1), "launch 4 on 0", "launch 5 on 0"),
				hears(done(4), "launch 1 on 0"),
				hears(done(5), "launch 3 on 0"),
				hears(done(1), "launch 0 on 0"),
				hears(done(3), "launch 2 on 0"),
			}},
		{"an op that becomes ready late goes before ready ops of higher ticks",
			[]line{
				recv(0, 0, 1), dev(plan.Attend, 2), dev(plan.Attend, 3), dev(plan.Attend, 4),
				dev(plan.Attend, 0, 0),
			},
			[]step{
				hears(grant(0, 1), "post 0 <-0/0 t1", "launch 1 on 0", "launch 2 on 0"),
				hears(arrived(script(t, recv(0, 0, 1)), 0)),
				hears(done(1), "launch 4 on 0"),
				hears(done(2), "launch 3 on 0"),
			}},
		{"a device op follows a device op at its launch, a link op and a release when it is over",
			[]line{
				dev(plan.Attend, 0), dev(plan.Attend, 1, 0), send(2, 0, 2, 0), rel(1, 0),
				recv(0, 0, 3, 3),
			},
			[]step{
				hears(grant(0, 1), "launch 0 on 0", "launch 1 on 0"),
				hears(credit(2, 0, 2)),
				hears(done(0), "put 2 ->2/0 t2", "post 4 <-0/0 t3"),
			}},
		{"a device op follows a transfer and a release when they are over",
			[]line{
				recv(0, 0, 1), rel(1, 0), dev(plan.Attend, 1, 0), dev(plan.Zero, 1, 1),
			},
			[]step{
				hears(grant(0, 1), "post 0 <-0/0 t1"),
				hears(arrived(script(t, recv(0, 0, 1)), 0), "launch 2 on 0", "launch 3 on 0"),
			}},
		{"each dependency counts once: launched or over, not both, and events only once",
			[]line{
				dev(plan.Attend, 0), dev(plan.Pack, 0), recv(0, 0, 1), dev(plan.Attend, 1, 0, 1, 2),
			},
			[]step{
				hears(grant(0, 1), "post 2 <-0/0 t1", "launch 0 on 0", "launch 1 on 2"),
				hears(done(0)), hears(done(0)), hears(done(1)),
				hears(arrived(script(t, rel(0), rel(0), recv(0, 0, 1)), 2), "launch 3 on 0"),
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(t, script(t, tc.lines...))
			for _, s := range tc.steps {
				d.says(s.in, s.says...)
			}
		})
	}
}

// TestEvents: a launch lists the unfinished ops of other streams that it waits for.
func TestEvents(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []line
		steps []step
	}{
		{"other streams only, and only unfinished ones",
			[]line{
				dev(plan.Pack, 0), dev(plan.Accumulate, 0), dev(plan.Attend, 0),
				dev(plan.Attend, 1, 0, 1, 2), dev(plan.Attend, 2, 0, 1),
			},
			[]step{
				hears(grant(0, 1), "launch 2 on 0", "launch 1 on 1", "launch 0 on 2",
					"launch 3 on 0 after [0 1]"),
				hears(done(2), "launch 4 on 0 after [0 1]"),
			}},
		{"a finished one is left out",
			[]line{
				dev(plan.Attend, 0), dev(plan.Attend, 0), dev(plan.Pack, 0),
				dev(plan.Accumulate, 0), dev(plan.Attend, 1, 2, 3),
			},
			[]step{
				hears(grant(0, 1), "launch 0 on 0", "launch 1 on 0", "launch 3 on 1",
					"launch 2 on 2"),
				hears(done(2)),
				hears(done(0), "launch 4 on 0 after [3]"),
			}},
		{"three at most: an op with more waits until some are done, and what comes after it too",
			[]line{
				dev(plan.Pack, 0), dev(plan.Pack, 1), dev(plan.Accumulate, 0), dev(plan.Unpack, 1),
				dev(plan.Attend, 2, 0, 1, 2, 3), dev(plan.Attend, 3),
			},
			[]step{
				hears(grant(0, 1), "launch 5 on 0", "launch 2 on 1", "launch 3 on 1",
					"launch 0 on 2", "launch 1 on 2"),
				hears(done(5)),
				hears(done(1), "launch 4 on 0 after [0 2 3]"),
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(t, script(t, tc.lines...))
			for _, s := range tc.steps {
				d.says(s.in, s.says...)
			}
		})
	}
}

// TestWideLaunch: the op with too many events holds back the rest of its stream, whose ticks are
// higher, but no other stream.
func TestWideLaunch(t *testing.T) {
	d := newDesk(t, script(t,
		dev(plan.Pack, 0), dev(plan.Pack, 0), dev(plan.Unpack, 0), dev(plan.Unpack, 0),
		recv(0, 0, 1), dev(plan.Attend, 2, 0, 1, 2, 3, 4), dev(plan.Attend, 3, 4),
		dev(plan.Pack, 3, 4),
	))
	block := arrived(d.b[0], 4)
	d.says(grant(0, 1), "post 4 <-0/0 t1", "launch 2 on 1", "launch 3 on 1", "launch 0 on 2",
		"launch 1 on 2")
	d.says(block)
	d.says(done(2), "launch 5 on 0 after [0 1 3]", "launch 6 on 0")
	d.says(done(0), "launch 7 on 2")
}

// TestTransfers: a receive is posted when its slot is free; a send is put only when it is ready and
// has the very credit of its receive; lanes keep their order and do not block one another.
func TestTransfers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []line
		steps []step
	}{
		{"a credit before the block is there, and the block before the credit",
			[]line{
				dev(plan.Pack, 0), send(2, 0, 1, 0), dev(plan.Pack, 0), send(3, 0, 1, 2),
			},
			[]step{
				hears(grant(0, 1), "launch 0 on 2", "launch 2 on 2"),
				hears(credit(2, 0, 1)),
				hears(done(0), "put 1 ->2/0 t1"),
				hears(done(2)),
				hears(credit(3, 0, 1), "put 3 ->3/0 t1"),
			}},
		{"the credit of another tick, lane or peer opens nothing else",
			[]line{
				send(2, 0, 1), send(2, 0, 5), send(2, 1, 1), send(3, 0, 1),
			},
			[]step{
				hears(grant(0, 1)),
				hears(credit(2, 0, 5)),
				hears(credit(2, 1, 1), "put 2 ->2/1 t1"),
				hears(credit(3, 0, 1), "put 3 ->3/0 t1"),
				hears(credit(2, 0, 1), "put 0 ->2/0 t1", "put 1 ->2/0 t5"),
			}},
		{"sends of a lane go in rising ticks, whatever is ready and whatever has credit",
			[]line{
				recv(0, 0, 1), send(2, 0, 9), send(2, 0, 4, 0), send(2, 1, 7),
			},
			[]step{
				hears(grant(0, 1), "post 0 <-0/0 t1"),
				hears(credit(2, 0, 9)), hears(credit(2, 0, 4)),
				hears(credit(2, 1, 7), "put 3 ->2/1 t7"),
				hears(arrived(script(t, recv(0, 0, 1)), 0), "put 2 ->2/0 t4", "put 1 ->2/0 t9"),
			}},
		{"receives of a lane go in rising ticks",
			[]line{
				dev(plan.Attend, 0), recv(0, 0, 2), recv(0, 0, 1, 0), recv(0, 1, 3), recv(3, 0, 4),
			},
			[]step{
				hears(grant(0, 1), "post 3 <-0/1 t3", "post 4 <-3/0 t4", "launch 0 on 0"),
				hears(done(0), "post 2 <-0/0 t1", "post 1 <-0/0 t2"),
			}},
		{"a slot is free when its release is: all its users are over",
			[]line{
				recv(0, 0, 1), dev(plan.Attend, 1, 0), send(2, 0, 2, 0), rel(2, 1, 2),
				recv(0, 0, 3, 3),
			},
			[]step{
				hears(grant(0, 1), "post 0 <-0/0 t1"),
				hears(arrived(script(t, recv(0, 0, 1)), 0), "launch 1 on 0"),
				hears(credit(2, 0, 2), "put 2 ->2/0 t2"),
				hears(done(1)),
				hears(sent(2), "post 4 <-0/0 t3"),
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(t, script(t, tc.lines...))
			for _, s := range tc.steps {
				d.says(s.in, s.says...)
			}
		})
	}
}

// TestDepth is the worker's own limit, when given.
func TestDepth(t *testing.T) {
	s := script(t, dev(plan.Attend, 0), dev(plan.Attend, 1), dev(plan.Attend, 2))
	for depth, want := range [][]string{
		{"launch 0 on 0", "launch 1 on 0"}, // the default
		{"launch 0 on 0"},
		{"launch 0 on 0", "launch 1 on 0"},
		{"launch 0 on 0", "launch 1 on 0", "launch 2 on 0"},
	} {
		d := newDesk(t, s)
		d.w = rank.New(rank.Config{Rank: self, Book: d.b, Deadline: deadline, Depth: depth})
		d.says(grant(0, 1), want...)
	}
}

// TestCompileRefuses a dependency that is not in the program.
func TestCompileRefuses(t *testing.T) {
	for _, dep := range []int32{-1, 1, 7} {
		p := &plan.Program{Rank: 3}
		p.Append(plan.Op{Kind: plan.Attend}, make([]plan.Operand, 1), []int32{dep})
		if _, err := rank.Compile(&plan.Header{}, p, 0); err == nil {
			t.Errorf("a dependency on op %d of a program of 1 op is accepted", dep)
		}
	}
}
