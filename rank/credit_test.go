package rank_test

import (
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/transport"
)

// TestEarlyCredits: a peer that is ahead gives credits of the next round, or of an epoch that this
// rank has not heard of yet. They are kept; those of older epochs are dropped and counted.
func TestEarlyCredits(t *testing.T) {
	s := script(t, send(2, 0, 1), send(3, 0, 2))
	d := newDesk(t, s)
	at := func(epoch actors.Epoch, round int32, e actors.Envelope) actors.Envelope {
		return in(epoch, round, e)
	}
	one, two := credit(2, 0, 1), credit(3, 0, 2)

	d.says(at(1, 0, one)) // before the first grant
	d.says(at(1, 2, two))
	d.says(at(2, 3, two))
	d.says(grant(0, 2), "put 0 ->2/0 t1")
	d.says(at(1, 1, two)) // the next round's, while a round runs
	d.says(at(1, 0, two), "put 1 ->3/0 t2")
	d.says(at(1, 0, sent(0)))
	d.says(at(1, 0, sent(1)), "round done, exposed 0 busy 0", "put 1 ->3/0 t2 round 1")
	if n := d.w.Stats().Dropped; n != 0 {
		t.Fatalf("%d envelopes dropped, want none", n)
	}

	// Epoch 2 begins at a round that is done here and not everywhere.
	d.says(at(2, 0, one)) // while the old one still runs
	d.says(kind(actors.Abort), "flush device", "flush link")
	d.says(at(1, 1, one)) // the aborted epoch's
	if n := d.w.Stats().Dropped; n != 1 {
		t.Fatalf("%d envelopes dropped, want 1: the credit of the aborted epoch", n)
	}
	d.says(flushedBy(actors.Device))
	d.says(flushedBy(actors.Link), "aborted at op 0, peer 2 lane 0, not done 1 round 1")
	d.says(at(2, 1, two)) // between the epochs
	d.says(at(2, 0, two))
	d.says(at(2, 0, actors.Envelope{Kind: actors.Grant, Op: 2}), "put 0 ->2/0 t1 epoch 2",
		"put 1 ->3/0 t2 epoch 2")
	if n := d.w.Stats().Dropped; n != 2 {
		t.Fatalf("%d envelopes dropped, want 2: also the kept credit of round 2 of epoch 1", n)
	}
	d.says(at(1, 0, one)) // long after
	d.says(at(2, 0, sent(0)))
	d.says(at(2, 0, sent(1)), "round done, exposed 0 busy 0 epoch 2",
		"put 1 ->3/0 t2 epoch 2 round 1")
	if n := d.w.Stats().Dropped; n != 3 {
		t.Fatalf("%d envelopes dropped, want 3", n)
	}
}

// TestOldWordsAreDropped: what device and link say of a round that is over, or of another epoch,
// changes nothing and is counted.
func TestOldWordsAreDropped(t *testing.T) {
	s := script(t, dev(plan.Attend, 0), send(2, 0, 1, 0))
	for _, e := range []actors.Envelope{
		in(1, 0, done(0)), in(1, 0, sent(1)), in(1, 2, done(0)), in(0, 1, done(0)),
		in(2, 1, done(0)), in(0, 1, credit(2, 0, 1)),
	} {
		d := newDesk(t, s)
		d.says(grant(0, 2), "launch 0 on 0")
		d.says(credit(2, 0, 1))
		d.says(done(0), "put 1 ->2/0 t1")
		d.says(sent(1), "round done, exposed 0 busy 0", "launch 0 on 0 round 1")
		d.says(in(1, 1, credit(2, 0, 1)))
		d.says(e)
		if n := d.w.Stats().Dropped; n != 1 {
			t.Errorf("%s: %d envelopes dropped, want 1", say(&e), n)
		}
		d.says(in(1, 1, done(0)), "put 1 ->2/0 t1 round 1")
	}
}

// TestOldEpochsWords: whatever device and link have to say of an epoch that was aborted, or of one
// that this rank has not been granted, changes nothing of the round that runs in the present one,
// though round and op are the same; nobody hears of it, and it is counted.
func TestOldEpochsWords(t *testing.T) {
	s := script(t, dev(plan.Attend, 0), recv(0, 0, 1), send(2, 0, 2, 0), dev(plan.Attend, 3, 1))
	for _, epoch := range []actors.Epoch{1, 3} {
		bad := arrivedIn(epoch, 0, s, 1)
		bad.B++
		for _, e := range []actors.Envelope{
			in(epoch, 0, done(0)), in(epoch, 0, sent(2)), arrivedIn(epoch, 0, s, 1), bad,
			in(epoch, 0, credit(2, 0, 2)), in(epoch, 0, credit(2, 9, 9)),
			in(epoch, 0, actors.Envelope{Kind: actors.Broken, Op: 0, Fault: actors.DeviceFault}),
			in(epoch, 0, actors.Envelope{Kind: actors.Broken, Op: 1, Fault: actors.Corrupt}),
		} {
			if e.Kind == actors.Credit && epoch == 3 {
				continue // kept: see TestEarlyCredits
			}
			d := newDesk(t, s)
			d.says(grant(0, 1), "post 1 <-0/0 t1", "launch 0 on 0")
			d.says(kind(actors.Abort), "flush device", "flush link")
			d.says(flushedBy(actors.Device))
			d.says(flushedBy(actors.Link), "aborted at op 0, peer -1 lane -1, not done 0")
			d.says(in(2, 0, actors.Envelope{Kind: actors.Grant, Op: 1}),
				"post 1 <-0/0 t1 epoch 2", "launch 0 on 0 epoch 2")
			d.says(e)
			if n := d.w.Stats().Dropped; n != 1 || len(d.out.Notes) != 0 {
				t.Errorf("%s, fault %v: %d envelopes dropped, notes %q; want 1, none", say(&e),
					e.Fault, n, d.out.Notes)
			}
			d.says(in(2, 0, credit(2, 0, 2)))
			d.says(in(2, 0, done(0)), "put 2 ->2/0 t2 epoch 2")
			d.says(arrivedIn(2, 0, s, 1), "launch 3 on 0 epoch 2")
			d.says(in(2, 0, sent(2)))
			d.says(in(2, 0, done(3)), "round done, exposed 0 busy 0 epoch 2")
		}
	}
}

// TestUnplannedCredit: a credit for which the program has no send is another plan's.
func TestUnplannedCredit(t *testing.T) {
	for name, e := range map[string]actors.Envelope{
		"tick": credit(2, 0, 3), "lane": credit(2, 1, 1), "peer": credit(3, 0, 1),
		"direction": credit(0, 0, 1),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, script(t, send(2, 0, 1), send(2, 0, 4), recv(0, 0, 1)))
			d.says(grant(0, 1), "post 2 <-0/0 t1")
			d.says(e, "late op -1: plan mismatch, peer -1 lane -1")
			d.noted("rank 1 got a credit", "sends nothing")
			early := newDesk(t, script(t, send(2, 0, 1), send(2, 0, 4), recv(0, 0, 1)))
			early.says(e)
			early.says(grant(0, 1), "late op -1: plan mismatch, peer -1 lane -1", "post 2 <-0/0 t1")
		})
	}
}

// TestHeaders: each field of a block's header is compared; a mismatch is reported with both sides
// and the op, and the op is not over.
func TestHeaders(t *testing.T) {
	for field, change := range map[string]func(*transport.Header){
		"run 00000001":            func(h *transport.Header) { h.Run = 1 },
		"pass 1":                  func(h *transport.Header) { h.Pass = 1 },
		"state 6":                 func(h *transport.Header) { h.State = 6 },
		"lane 5":                  func(h *transport.Header) { h.Lane = 5 },
		"tick 9":                  func(h *transport.Header) { h.Tick = 9 },
		"tensor 7":                func(h *transport.Header) { h.Tensor = 7 },
		"heads 1:2":               func(h *transport.Header) { h.HeadLo = 1 },
		"heads 0:9":               func(h *transport.Header) { h.HeadHi = 9 },
		"tokens 0000000000000bad": func(h *transport.Header) { h.SetHash = 0xbad },
		"plan 0000000000000bad":   func(h *transport.Header) { h.Plan = 0xbad },
	} {
		t.Run(field, func(t *testing.T) {
			d := newDesk(t, script(t, recv(0, 2, 1), dev(plan.Attend, 1, 0)))
			d.says(grant(0, 1), "post 0 <-0/2 t1")
			good := arrived(d.b[0], 0)
			bad := good
			h := transport.HeaderOf(&good)
			change(&h)
			h.Stamp(&bad)
			d.says(bad, "late op 0: corrupt block, peer 0 lane 2")
			d.noted("rank 1, op 0 recv", "wanted", "came", field,
				headerOf(1, 0, d.b[0], 0).String())
			d.says(good, "launch 1 on 0")
		})
	}
	d := newDesk(t, script(t, recv(0, 2, 1), dev(plan.Attend, 0)))
	for _, op := range []int32{-1, 1, 2} {
		e := arrived(d.b[0], 0)
		e.Op = op
		d = newDesk(t, d.b[0])
		d.says(grant(0, 1), "post 0 <-0/2 t1", "launch 1 on 0")
		d.says(e, "late op -1: corrupt block, peer -1 lane -1")
		d.noted("which is no receive")
	}
}

// TestHeaderOfPut: a put and a post carry the header that the other end will compare: that of their
// own run, epoch, round, pass and state.
func TestHeaderOfPut(t *testing.T) {
	s := script(t, send(2, 3, 4), recv(0, 1, 2))
	s.Program.Pass = plan.Backward
	d := newDesk(t, s)
	for k, at := range []struct {
		epoch actors.Epoch
		round int32
	}{{6, 5}, {6, 6}, {7, 6}} {
		d.step(in(at.epoch, at.round, actors.Envelope{Kind: actors.Grant, Op: at.round + 1}))
		post := d.out.Mail[len(d.out.Mail)-1]
		d.step(in(at.epoch, at.round, credit(2, 3, 4)))
		for op, e := range []actors.Envelope{d.out.Mail[0], post} {
			got, want := transport.HeaderOf(&e), headerOf(at.epoch, at.round, s, int32(op))
			if got != want {
				t.Errorf("grant %d: op %d says\n  %v\nwant\n  %v", k, op, got, want)
			}
		}
		d.step(in(at.epoch, at.round, sent(0)))
		d.step(arrivedIn(at.epoch, at.round, s, 1))
	}
	if n := d.w.Stats().Rounds; n != 3 {
		t.Errorf("%d rounds are done, want 3", n)
	}
}

// TestBroken: what device or link could not do is reported as it is, once each.
func TestBroken(t *testing.T) {
	d := newDesk(t, script(t, dev(plan.Attend, 0), recv(0, 0, 1)))
	d.says(grant(0, 1), "post 1 <-0/0 t1", "launch 0 on 0")
	d.says(in(1, 0, actors.Envelope{Kind: actors.Broken, Op: 0, Fault: actors.DeviceFault}),
		"late op 0: device fault, peer -1 lane -1")
	d.says(in(1, 0, actors.Envelope{Kind: actors.Broken, Op: 1, Fault: actors.LinkFault}),
		"late op 1: link fault, peer 0 lane 0")
}
