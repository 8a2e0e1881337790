package sim

import (
	"slices"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"pgregory.net/rapid"
)

// TestQueueOrder compares the queue with a list sorted by time, then by making: whatever is pushed
// between the pops, also at times whose buckets recent has forgotten.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type item struct {
			at actors.Time
			n  uint64
		}
		var q queue
		var want []item
		now, made := actors.Time(0), uint64(0)
		// Times a multiple of stride apart often share a place in recent.
		stride := rapid.SampledFrom([]actors.Time{1, 4096, 6765}).Draw(t, "stride")
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "push") > 0 {
				at := now + stride*actors.Time(rapid.IntRange(0, 40).Draw(t, "after"))
				made++
				q.push(at, delivery, &actors.Envelope{A: made})
				i, _ := slices.BinarySearchFunc(want, at+1, func(x item, at actors.Time) int {
					return int(x.at - at)
				})
				want = slices.Insert(want, i, item{at, made})
			} else if len(want) > 0 {
				var e event
				now = q.pop(&e)
				if now != want[0].at || e.env.A != want[0].n {
					t.Fatalf("event %d at %d, want %v", e.env.A, now, want[0])
				}
				want = want[1:]
			}
			if q.len() != len(want) {
				t.Fatalf("%d events are left, want %d", q.len(), len(want))
			}
		}
	})
}

// TestQueueForgets: with more times in hand than recent has room for, equal times meet in several
// buckets, in order, and their memory is used again.
func TestQueueForgets(t *testing.T) {
	var q queue
	const times, turns = 3 * recentTimes, 4
	for turn := range uint64(turns) {
		for at := range actors.Time(times) {
			q.push(at, delivery, &actors.Envelope{A: turn})
		}
	}
	if len(q.buckets) <= times {
		t.Errorf("%d buckets for %d times: none was forgotten, the test shows nothing",
			len(q.buckets), times)
	}
	for i := range times * turns {
		var e event
		if at := q.pop(&e); at != actors.Time(i/turns) || e.env.A != uint64(i%turns) {
			t.Fatalf("pop %d gives turn %d at %d", i, e.env.A, at)
		}
	}
	events, buckets := len(q.events), len(q.buckets)
	for range 10 * times {
		q.push(times, alarm, &actors.Envelope{})
		var e event
		q.pop(&e)
	}
	if len(q.events) != events || len(q.buckets) != buckets {
		t.Errorf("%d events, %d buckets grew to %d, %d", events, buckets, len(q.events),
			len(q.buckets))
	}
}
