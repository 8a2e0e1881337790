package mesh

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sort"
)

// ValidateStarts checks the cumulative starts of packed documents: the first is 0, none falls, the
// last is the number of tokens; two equal ones are a document of no tokens.
func ValidateStarts(starts []int, tokens int) error {
	if len(starts) == 0 {
		return fmt.Errorf("document starts are missing: give 0, the start of each further "+
			"document and the number of tokens, such as 0,%d", tokens)
	}
	if starts[0] != 0 {
		return fmt.Errorf("document starts begin with %d: the first document starts at 0, so put "+
			"a 0 in front", starts[0])
	}
	for d, at := range starts[1:] {
		if at < starts[d] {
			return fmt.Errorf("document start %d (number %d) is below the one before it, %d: list "+
				"starts in rising order", at, d+1, starts[d])
		}
	}
	if last := starts[len(starts)-1]; last != tokens {
		return fmt.Errorf("document starts end with %d, there are %d tokens: the last one must be "+
			"the number of tokens, so end them with %d", last, tokens, tokens)
	}
	return nil
}

// DocPositions lists, row by row, each token's position inside its document: what rotary tables of
// packed documents are read with. Starts are cumulative (ValidateStarts) and cover the set.
func DocPositions(starts []int, set Set) []int {
	out := set.Positions()
	for r, p := range out {
		// The last document that starts at or before p: documents of no tokens start there too.
		d := sort.SearchInts(starts, p+1) - 1
		out[r] = p - starts[d]
	}
	return out
}

// join appends a run [lo,hi) to a set of runs in rising order, to its last run where they touch.
func join(set Set, lo, hi int) Set {
	if lo >= hi {
		return set
	}
	if n := len(set); n > 0 && set[n-1].Start+set[n-1].Count == lo {
		set[n-1].Count += hi - lo
		return set
	}
	return append(set, Span{Start: lo, Stride: 1, Count: hi - lo})
}

// fingerprint is 64 bits of the sha256 of numbers, in hexadecimal: it tells contents apart in the
// names of layouts.
type fingerprint []byte

func (f fingerprint) add(numbers ...int) fingerprint {
	for _, n := range numbers {
		f = binary.AppendVarint(f, int64(n))
	}
	return f
}

func (f fingerprint) String() string {
	sum := sha256.Sum256(f)
	return hex.EncodeToString(sum[:8])
}
