package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/plan"
)

// brokenPlans are the files in testdata/broken, valid plans with one edit by hand that their first
// line tells, and what Verify must say of each: kind, rank and op, and words of the text.
func brokenPlans() map[string]plan.Violation {
	return map[string]plan.Violation{
		"block_attended_twice": {Kind: "coverage", Rank: 0, Op: 5,
			Text: "is computed 2 times: rank 0 op 2, rank 0 op 5"},
		"both_wait_to_receive": {Kind: "deadlock", Rank: 0, Op: 1,
			Text: "ranks may wait for each other for ever"},
		"delta_twice_with_sink": {Kind: "coverage", Rank: 1, Op: 10,
			Text: "is given its delta 2 times: rank 1 op 0, rank 1 op 10"},
		"gradient_before_zero": {Kind: "order", Rank: 0, Op: 3,
			Text: "uses slot 5 and does not wait for the op that wrote it; the other is op 2 zero"},
		"gradient_sent_early": {Kind: "order", Rank: 2, Op: 13,
			Text: "does not wait for"},
		"gradient_sent_twice": {Kind: "slot", Rank: 0, Op: 12,
			Text: "nothing lives in slot 9 any more"},
		"never_finished": {Kind: "home", Rank: 1, Op: 6,
			Text: "slot 2 is the session's and to be kept"},
		"other_heads": {Kind: "pairing", Rank: 1, Op: 5,
			Text: "sends q[c0.1 h1:2] to rank 0, lane 3, tick 1, where op 6 of rank 0 receives " +
				"q[c0.1 h0:1]"},
		"other_tick": {Kind: "pairing", Rank: 0, Op: 1,
			Text: "rank 1 has no receive for it (its op 3 has tick 4 there)"},
		"overwritten_while_sent": {Kind: "order", Rank: 1, Op: 6,
			Text: "releases slot 3 and does not wait for an op that uses it; the other is op 4"},
		"part_merged_twice": {Kind: "slot", Rank: 1, Op: 5,
			Text: "it hands on part[b h0:2] out of slot 3, of which some is handed on already"},
		"part_never_merged": {Kind: "slot", Rank: 1, Op: 4,
			Text: "of part[b h0:2] in slot 3, 0 of 4 rows times heads are handed on"},
		"piece_missing": {Kind: "home", Rank: 0, Op: 18,
			Text: "sources are not each cell of its result once"},
		"read_before_arrival": {Kind: "order", Rank: 0, Op: 4,
			Text: "uses slot 3 and does not wait for the op that wrote it; the other is op 3 recv"},
		"rounded_sum_added_twice": {Kind: "slot", Rank: 0, Op: 7,
			Text: "it hands on dkvw[a h0:1] out of slot 7, of which some is handed on already"},
		"slot_too_small": {Kind: "slot", Rank: 1, Op: 6,
			Text: "slot 8 has 64 bytes, kv[c0 h0:1] needs 128"},
		"visit_without_rows": {Kind: "slot", Rank: 1, Op: 1,
			Text: "visit reads q, do, o and dl and writes a visit of the same rows"},
		"waits_for_itself": {Kind: "deadlock", Rank: 0, Op: 4,
			Text: "op 4 waits for op 6, op 6 waits for op 4"},
	}
}

// TestBrokenPlans: of each broken file Verify names kind, rank and op, and says what is wrong.
func TestBrokenPlans(t *testing.T) {
	want := brokenPlans()
	files, err := filepath.Glob(filepath.Join("testdata", "broken", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(want) || len(files) < 10 {
		t.Errorf("%d files, %d are expected", len(files), len(want))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.ParsePlan(text)
			if err != nil {
				t.Fatal(err)
			}
			r := mustVerify(t, p)
			for _, v := range r.Violations {
				w := want[name]
				named := fmt.Sprintf("rank %d op %d", w.Rank, w.Op)
				if v.Kind == w.Kind && v.Rank == w.Rank && v.Op == w.Op &&
					strings.Contains(v.Text, w.Text) && strings.Contains(v.Text, named) {
					return
				}
			}
			t.Errorf("want %+v of\n%s", want[name], text[:strings.IndexByte(string(text), '\n')])
			for _, v := range r.Violations {
				t.Errorf("%+v", v)
			}
		})
	}
}
