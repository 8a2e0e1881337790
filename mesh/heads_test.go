package mesh_test

import (
	"fmt"
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

// TestSplitHeadsTable: the splits of attention.md; a line is a head rank's query heads, then its
// KV heads.
func TestSplitHeadsTable(t *testing.T) {
	for _, tc := range []struct {
		q, kv int
		want  []string // by head rank
	}{
		{40, 8, []string{ // 5 query heads a KV head, 2.5 a rank: five KV heads are on three ranks
			"0:3 0:1", "3:6 0:2", "6:9 1:2", "9:12 1:3", "12:15 2:3", "15:18 3:4", "18:21 3:5",
			"21:24 4:5", "24:26 4:6", "26:28 5:6", "28:30 5:6", "30:32 6:7", "32:34 6:7",
			"34:36 6:8", "36:38 7:8", "38:40 7:8",
		}},
		{28, 7, []string{"0:14 0:4", "14:28 3:7"}}, // KV head 3 straddles the cut
		{12, 12, []string{"0:3 0:3", "3:6 3:6", "6:8 6:8", "8:10 8:10", "10:12 10:12"}},
		{6, 3, []string{"0:3 0:2", "3:6 1:3"}}, // KV head 1 straddles
		{8, 2, []string{"0:2 0:1", "2:4 0:1", "4:6 1:2", "6:8 1:2"}},
		{8, 1, []string{"0:1 0:1", "1:2 0:1", "2:3 0:1", "3:4 0:1", "4:5 0:1", "5:6 0:1", "6:7 0:1",
			"7:8 0:1"}},
	} {
		for h, want := range tc.want {
			q, kv := mesh.SplitHeads(tc.q, tc.kv, len(tc.want), h)
			got := fmt.Sprintf("%d:%d %d:%d", q.Lo, q.Hi, kv.Lo, kv.Hi)
			if got != want {
				t.Errorf("%d/%d over %d, head rank %d: %s, want %s", tc.q, tc.kv, len(tc.want), h,
					got, want)
			}
		}
	}
}

// checkSplit checks a split against the definition: query head i reads KV head i / (q/kv).
func checkSplit(t interface{ Fatalf(string, ...any) }, q, kv, degree int) (held int) {
	next := int32(0)
	for h := range degree {
		qs, kvs := mesh.SplitHeads(q, kv, degree, h)
		if qs.Lo != next || qs.Len() < q/degree || qs.Len() > q/degree+1 {
			t.Fatalf("%d/%d over %d: head rank %d has query heads %v after %d", q, kv, degree, h,
				qs, next)
		}
		next = qs.Hi
		need := map[int32]bool{}
		for i := qs.Lo; i < qs.Hi; i++ {
			need[i/int32(q/kv)] = true
		}
		for j := kvs.Lo; j < kvs.Hi; j++ {
			if !need[j] {
				t.Fatalf("%d/%d over %d: head rank %d holds KV head %d, which none of %v reads", q,
					kv, degree, h, j, qs)
			}
		}
		if len(need) != kvs.Len() {
			t.Fatalf("%d/%d over %d: head rank %d needs %d KV heads, has %v", q, kv, degree, h,
				len(need), kvs)
		}
		held += kvs.Len()
	}
	if next != int32(q) {
		t.Fatalf("%d/%d over %d: the query heads end at %d", q, kv, degree, next)
	}
	return held
}

// TestSplitHeadsFieldCases: [heads], with how many KV heads all head ranks hold together: over kv
// it is what KV traffic grows by, 1.14 for 28/7 over 2, 2 for 32/8 over 16, 8 for 8/1 over 8.
func TestSplitHeadsFieldCases(t *testing.T) {
	for _, tc := range []struct{ q, kv, degree, held int }{
		{40, 8, 5, 12}, {40, 8, 8, 8}, {40, 8, 16, 21}, {40, 8, 40, 40}, {8, 2, 4, 4}, {8, 2, 8, 8},
		{28, 7, 2, 8}, {12, 12, 4, 12}, {12, 12, 5, 12}, {6, 3, 2, 4}, {8, 1, 8, 8},
		{32, 8, 16, 16},
	} {
		if err := mesh.ValidateHeads(tc.q, tc.kv, tc.degree); err != nil {
			t.Errorf("%d/%d over %d is refused: %v", tc.q, tc.kv, tc.degree, err)
		}
		if held := checkSplit(t, tc.q, tc.kv, tc.degree); held != tc.held {
			t.Errorf("%d/%d over %d: %d KV heads held in all, want %d", tc.q, tc.kv, tc.degree,
				held, tc.held)
		}
	}
}

// TestSplitHeads: every query head once, in order; KV heads exactly those that are read.
func TestSplitHeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kv := rapid.IntRange(1, 12).Draw(t, "kv")
		q := kv * rapid.IntRange(1, 8).Draw(t, "group")
		degree := rapid.IntRange(1, q).Draw(t, "degree")
		if err := mesh.ValidateHeads(q, kv, degree); err != nil {
			t.Fatal(err)
		}
		checkSplit(t, q, kv, degree)
	})
}

func TestValidateHeadsRefuses(t *testing.T) {
	for _, tc := range []struct {
		q, kv, degree int
		want          string
	}{
		{8, 8, 9, "head degree 9 is above the 8 query heads"},
		{5, 5, 6, "use a head degree of at most 5"},
		{0, 1, 1, "heads 0: at least 1 query head is needed"},
		{8, 3, 1, "kv-heads 3 does not divide heads 8: use a divisor of 8, such as 2"},
		{8, 0, 1, "such as 1"},
		{8, 16, 1, "such as 8"},
		{7, 5, 1, "such as 7"},
	} {
		wantError(t, mesh.ValidateHeads(tc.q, tc.kv, tc.degree), tc.want)
	}
}

func TestHeadsWithin(t *testing.T) {
	all := mesh.Heads{Lo: 2, Hi: 6}
	for _, tc := range []struct {
		h    mesh.Heads
		want bool
	}{
		{mesh.Heads{Lo: 2, Hi: 6}, true}, {mesh.Heads{Lo: 3, Hi: 4}, true},
		{mesh.Heads{Lo: 1, Hi: 4}, false}, {mesh.Heads{Lo: 5, Hi: 7}, false},
	} {
		if got := tc.h.Within(all); got != tc.want {
			t.Errorf("%v within %v: %v", tc.h, all, got)
		}
	}
}
