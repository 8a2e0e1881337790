package main

import (
	"math"
	"strconv"
	"strings"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// maxSlicesFile is the most bytes of a file of mask slices: room for MaxMaskSlices lines.
const maxSlicesFile = 8 << 20

// parseDocs reads the cumulative starts of packed documents.
func parseDocs(value string) ([]int, error) {
	var starts []int
	for word := range strings.SplitSeq(value, ",") {
		n, err := parseSize(word)
		if err != nil || n > plan.MaxTokens {
			return nil, badValue("docs", value, "the start %s is not a whole number from 0 to %d: "+
				"use cumulative starts such as 0,16,40", show(word), plan.MaxTokens)
		}
		starts = append(starts, int(n))
	}
	if len(starts) < 2 {
		return nil, badValue("docs", value, "is one number: give 0, the start of each further "+
			"document and the number of tokens, such as 0,16,40")
	}
	last := starts[len(starts)-1]
	if err := mesh.ValidateStarts(starts, last); err != nil {
		return nil, badValue("docs", value, "%s", strings.TrimPrefix(err.Error(), "document "))
	}
	if last == 0 {
		return nil, badValue("docs", value, "has no token: the last number is that of all tokens, "+
			"at least 1")
	}
	return starts, nil
}

// parseCap reads the soft cap of logits.
func parseCap(value string, f32 bool) (float64, error) {
	x, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil || strings.ContainsAny(value, "xX_"):
		return 0, badValue("softcap", value, "is not a decimal number: use one such as 50")
	case !(x > 0) || math.IsInf(x, 0):
		return 0, badValue("softcap", value, "is no cap: use a finite number above 0, such as 50, "+
			"or leave --softcap out")
	case f32 && (x > math.MaxFloat32 || x < minNormalF32):
		return 0, badValue("softcap", value, "is beyond f32: use %.3g to %.3g, or --dtype f64",
			minNormalF32, math.MaxFloat32)
	}
	return x, nil
}

// minNormalF32 is the least positive float32 with all its digits.
const minNormalF32 = 0x1p-126

// readMask reads which keys a query sees, when the tokens are known.
func (r *request) readMask(f *attendFlags) (err error) {
	if f.set.Changed("slices") {
		return r.readSlices(f)
	}
	r.maskName = f.mask
	inner, err := attn.ParseMask(f.mask)
	if err != nil {
		return badMask(f.mask, err)
	}
	if err := r.fewSlices(f); err != nil {
		return err
	}
	if r.docs == nil {
		r.mask = inner(r.tokens)
		return nil
	}
	if r.mask, err = attn.Documents(r.docs, inner); err != nil {
		return badValue("docs", f.docs, "%s", strings.TrimPrefix(err.Error(), "attn: "))
	}
	return nil
}

// badMask is what ParseMask says, behind the flag.
func badMask(word string, err error) error {
	text := strings.TrimPrefix(err.Error(), "attn: mask "+strconv.Quote(word))
	text = strings.TrimLeft(text, ": ")
	return badValue("mask", word, "%s", strings.Replace(text, "unknown: write", "unknown: use", 1))
}

// fewSlices refuses a mask of more slices than a plan has: each block of block-causal is one, and
// each document.
func (r *request) fewSlices(f *attendFlags) error {
	docs := max(len(r.docs)-1, 1)
	if docs >= plan.MaxMaskSlices {
		return badValue("docs", f.docs, "has %d documents: use fewer than %d", docs,
			plan.MaxMaskSlices)
	}
	number, blocks := strings.CutPrefix(f.mask, "block-causal:")
	n, err := parseSize(number)
	if !blocks || err != nil || n < 2 {
		return nil // a slice or two a document, or refused by its parser
	}
	if count := r.tokens/int(n) + docs; count > plan.MaxMaskSlices {
		return badValue("mask", f.mask, "makes about %d blocks, the limit is %d: use blocks of at "+
			"least %d", count, plan.MaxMaskSlices, r.tokens/(plan.MaxMaskSlices-docs)+1)
	}
	return nil
}

// readSlices reads a mask of the user's own; documents cut it.
func (r *request) readSlices(f *attendFlags) error {
	if f.set.Changed("mask") {
		return badValue("slices", f.slices, "says which keys a query sees, and so does --mask %s: "+
			"leave one of them out", show(f.mask))
	}
	if f.slices == "" {
		return badValue("slices", "", "needs the path of a text file")
	}
	tokens := r.tokens
	told := f.set.Changed("tokens") || r.docs != nil || r.in != nil
	if !told {
		tokens = plan.MaxTokens
	}
	text, err := readLimited(f.slices, maxSlicesFile)
	if err == nil {
		r.mask, err = attn.ParseSlices(text, tokens, tokens)
	}
	if err != nil {
		return badValue("slices", f.slices, "%s",
			shortQuotes(strings.TrimPrefix(err.Error(), "attn: ")))
	}
	r.maskName = "slices"
	if err := r.someSlices(f, ""); err != nil {
		return err
	}
	if end := endOf(r.mask); !told && end != r.tokens {
		return badValue("slices", f.slices, "does not say how many tokens there are: add --tokens "+
			"%d, its largest end, or more", end)
	}
	if r.docs == nil {
		return nil
	}
	r.mask = insideDocs(r.mask, r.docs)
	return r.someSlices(f, " inside the documents of --docs")
}

// someSlices refuses a mask of no slices, of too many, and one that allows nothing: more likely a
// mistake than a wish.
func (r *request) someSlices(f *attendFlags, where string) error {
	switch n := len(r.mask); {
	case n > plan.MaxMaskSlices:
		return badValue("slices", f.slices, "has %d slices%s, the limit is %d: put neighbours "+
			"together, or use --mask and --docs", n, where, plan.MaxMaskSlices)
	case n == 0:
		return badValue("slices", f.slices, "has no slice%s, so no query sees a key: add a line "+
			"such as 0 %d 0 %[2]d causal", where, r.tokens)
	case r.mask.TotalPairs() == 0:
		return badValue("slices", f.slices, "has slices that allow no pair%s, so no query sees a "+
			"key: add a line such as 0 %d 0 %[2]d causal", where, r.tokens)
	}
	return nil
}

// endOf is the number of tokens that a mask's slices reach to.
func endOf(m attn.Mask) int {
	end := 0
	for _, s := range m {
		end = max(end, s.Q1, s.K1)
	}
	return end
}

// shortQuotes is a message with what it quotes cut where it is long.
func shortQuotes(text string) string {
	var b strings.Builder
	for text != "" {
		plain, _, _ := strings.Cut(text, `"`)
		b.WriteString(plain)
		text = text[len(plain):]
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			b.WriteString(text)
			break
		}
		text = text[len(quoted):]
		if word, err := strconv.Unquote(quoted); err == nil && len(word) > shown {
			quoted = show(word)
		}
		b.WriteString(quoted)
	}
	return b.String()
}

// insideDocs is what a mask allows inside documents.
func insideDocs(m attn.Mask, starts []int) attn.Mask {
	if starts == nil {
		return m
	}
	var out attn.Mask
	for _, s := range m {
		for d, lo := range starts[:len(starts)-1] {
			hi := starts[d+1]
			part := s
			part.Q0, part.Q1 = max(s.Q0, lo), min(s.Q1, hi)
			part.K0, part.K1 = max(s.K0, lo), min(s.K1, hi)
			if part.Q0 < part.Q1 && part.K0 < part.K1 {
				out = append(out, part)
			}
		}
	}
	return out
}
