package attn

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// sliceLine is what a line of a file of slices holds, for errors.
const sliceLine = "q0 q1 k0 k1 full|causal|inverse-causal|band:LO,HI"

// ParseSlices reads a mask of q queries and k keys from the text of a file, one slice a line, in
// any order; it comes back in order of the queries. From # on a line is a comment.
//
//	# q0 q1 k0 k1 kind        queries [q0,q1) see, of keys [k0,k1),
//	0  8  0  8  causal        those with j <= i
//	8 16  0  4  full          all
//	8 16  4 16  band:-2,0     those with -2 <= j-i <= 0; -inf and inf are no limit
//	0  4  8 16  inverse-causal  those with j >= i
//
// i and j are positions in the whole sequence, not in the rectangle. An error names the line, what
// is wrong there and what to write; two lines that share a pair are wrong.
func ParseSlices(text []byte, q, k int) (Mask, error) {
	if err := Mask(nil).Validate(q, k); err != nil {
		return nil, err
	}
	type numbered struct {
		Slice
		line int
	}
	var read []numbered
	line := 0
	for raw := range bytes.Lines(text) {
		line++
		raw, _, _ = bytes.Cut(raw, []byte("#"))
		words := strings.Fields(string(raw))
		if len(words) == 0 {
			continue
		}
		s, err := parseSlice(words)
		if err == nil {
			err = s.validate(q, k)
		}
		if err != nil {
			return nil, fmt.Errorf("attn: line %d, %q: %w", line, strings.Join(words, " "), err)
		}
		read = append(read, numbered{s, line})
	}
	slices.SortStableFunc(read, func(a, b numbered) int {
		return cmp.Or(cmp.Compare(a.Q0, b.Q0), cmp.Compare(a.K0, b.K0))
	})
	var m Mask
	for _, r := range read {
		m = append(m, r.Slice)
	}
	if a, b, shared := m.shared(); shared {
		a, b := read[a], read[b]
		return nil, fmt.Errorf("attn: lines %d (%v) and %d (%v) share pairs: make them disjoint",
			min(a.line, b.line), a.Slice, max(a.line, b.line), b.Slice)
	}
	return m, nil
}

// parseSlice reads the words of one line.
func parseSlice(words []string) (s Slice, err error) {
	if len(words) != 5 {
		return s, fmt.Errorf("it has %d words, a slice has 5: %s", len(words), sliceLine)
	}
	for n, to := range []*int{&s.Q0, &s.Q1, &s.K0, &s.K1} {
		if *to, err = strconv.Atoi(words[n]); err != nil {
			return s, fmt.Errorf("%q must be a whole number: %s", words[n], sliceLine)
		}
	}
	s.Lo, s.Hi = -Unbounded, Unbounded
	switch kind := words[4]; kind {
	case "full":
	case "causal":
		s.Hi = 0
	case "inverse-causal":
		s.Lo = 0
	default:
		limits, isBand := strings.CutPrefix(kind, "band:")
		lo, hi, isPair := strings.Cut(limits, ",")
		var okLo, okHi bool
		if s.Lo, okLo = parseLimit(lo, "-inf", -Unbounded); isBand && isPair && okLo {
			s.Hi, okHi = parseLimit(hi, "inf", Unbounded)
		}
		if !okHi {
			return s, fmt.Errorf("%q must be full, causal, inverse-causal or band:LO,HI with "+
				"whole numbers of %d at most, or -inf and inf", kind, MaxTokens)
		}
	}
	return s, nil
}

// parseLimit reads one side of a band: a whole number, or the word that stands for no limit.
func parseLimit(text, word string, unlimited int) (limit int, ok bool) {
	if text == word {
		return unlimited, true
	}
	limit, err := strconv.Atoi(text)
	return limit, err == nil && -MaxTokens <= limit && limit <= MaxTokens
}
