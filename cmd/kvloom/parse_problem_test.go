package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

// FuzzParseDocs: what is taken cuts the tokens into documents, and reads back from its numbers.
func FuzzParseDocs(f *testing.F) {
	for _, s := range []string{"0,16,40", "0,0,8,8", "0,1K", "0", "", "0,-1", "4,5", "0,5,4",
		"0,,4", "0,1G,1G", "00,01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		starts, err := parseDocs(value)
		if err != nil {
			if exitCode(err) != exitRequest || !strings.HasPrefix(err.Error(), "--docs ") {
				t.Fatalf("%q: %v", value, err)
			}
			return
		}
		if err := mesh.ValidateStarts(starts, starts[len(starts)-1]); err != nil {
			t.Fatalf("%q is taken as %v: %v", value, starts, err)
		}
		var words []string
		for _, s := range starts {
			words = append(words, strconv.Itoa(s))
		}
		again, err := parseDocs(strings.Join(words, ","))
		if err != nil || !slices.Equal(again, starts) {
			t.Fatalf("%q is %v, and then %v, %v", value, starts, again, err)
		}
	})
}

// TestInsideDocuments: a pair is allowed when the slices allow it and both are of one document.
func TestInsideDocuments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		starts := []int{0}
		for range rapid.IntRange(1, 5).Draw(t, "documents") {
			starts = append(starts, starts[len(starts)-1]+rapid.IntRange(0, 9).Draw(t, "length"))
		}
		n := starts[len(starts)-1]
		left, right := rapid.IntRange(-1, 9).Draw(t, "left"), rapid.IntRange(-1, 9).Draw(t, "right")
		free := attn.Window(n, n, left, right)
		inside := insideDocs(free, starts)
		if err := inside.Validate(n, n); err != nil {
			t.Fatal(err)
		}
		document := func(i int) int {
			d := 0
			for starts[d+1] <= i {
				d++
			}
			return d
		}
		for i := range n {
			for j := range n {
				want := free.Allows(i, j) && document(i) == document(j)
				if inside.Allows(i, j) != want {
					t.Fatalf("%v in %v: (%d, %d) is %v", free, starts, i, j, !want)
				}
			}
		}
		if got := insideDocs(free, nil); len(got) != len(free) {
			t.Fatal("without documents a mask changes")
		}
	})
}

// TestSliceLimit: the blocks of a mask are counted before they are made.
func TestSliceLimit(t *testing.T) {
	for line, ok := range map[string]bool{
		"--tokens 64K --mask block-causal:2": true, "--tokens 1G --mask block-causal:2": false,
		"--tokens 1M --mask block-causal:16": false, "--tokens 1M --mask block-causal:17": true,
		"--tokens 1M --mask block-causal:1": true,
	} {
		if _, err := parse(t, line+" --dim 1 --heads 1"); (err == nil) != ok {
			t.Errorf("%s: %v", line, err)
		}
	}
}
