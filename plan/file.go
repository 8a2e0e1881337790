package plan

import (
	"fmt"
	"io"
	"strconv"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// textVersion is the first line of a plan's text.
const textVersion = "kvloom plan 1"

// noneName is the name of the empty set, number 0, which no line declares.
const noneName = "none"

// AppendPlan adds the whole plan as one text: the header, then the programs of all ranks, pass by
// pass. ParsePlan reads it back; docs/plans.md has the grammar.
//
//	kvloom plan 1
//	shape tokens 8 8 heads 2 1 dim 4 4 bytes 4 4 scale 0.5
//	mask q 0:8 k 0:8 k-q -inf:0
//	set c0 0:2 6:8
//	home 0 q c0 k c0
//	passes forward backward
//
//	rank 0 forward
//	...
func AppendPlan(dst []byte, src Source) ([]byte, error) {
	w := appender{dst}
	err := WritePlan(&w, src)
	return w.out, err
}

type appender struct{ out []byte }

// Write adds p.
func (a *appender) Write(p []byte) (int, error) {
	a.out = append(a.out, p...)
	return len(p), nil
}

// WritePlan writes the text of AppendPlan program by program, so that a large plan never exists
// whole.
func WritePlan(w io.Writer, src Source) error {
	h := src.Header()
	if err := nameable(h); err != nil {
		return err
	}
	buf := appendHeader(nil, h, src.Passes())
	for _, pass := range src.Passes() {
		for rank := range h.Ranks {
			if _, err := w.Write(buf); err != nil {
				return fmt.Errorf("plan: the text cannot be written: %w", err)
			}
			p, err := programOf(src, pass, rank)
			if err != nil {
				return err
			}
			buf = p.AppendText(append(buf[:0], '\n'), h)
		}
	}
	if _, err := w.Write(buf); err != nil {
		return fmt.Errorf("plan: the text cannot be written: %w", err)
	}
	return nil
}

// nameable refuses headers whose sets have no names that a text can tell apart.
func nameable(h *Header) error {
	if len(h.Names) != len(h.Sets) {
		return fmt.Errorf("plan: %d names for %d token sets: name each", len(h.Names), len(h.Sets))
	}
	seen := map[string]bool{}
	for i, name := range h.Names {
		switch {
		case i == 0 && name != noneName:
			return fmt.Errorf("plan: token set 0 is named %q: call it %s", name, noneName)
		case !isName(name) || seen[name]:
			return fmt.Errorf("plan: token set %d is named %q: use another name of letters, "+
				"digits, dots, dashes and underscores, at most %d", i, name, MaxNameBytes)
		}
		seen[name] = true
	}
	return nil
}

// isName tells whether s may name a token set.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' ||
			c == '_' || c == '-') {
			return false
		}
	}
	return s != "" && len(s) <= MaxNameBytes
}

func appendHeader(out []byte, h *Header, passes []Pass) []byte {
	out = fmt.Appendf(out, "%s\nshape tokens %d %d heads %d %d dim %d %d bytes %d %d scale ",
		textVersion, h.QTokens, h.KTokens, h.QHeads, h.KHeads, h.Dim, h.VDim, h.ElemBytes,
		h.AccBytes)
	out = strconv.AppendFloat(out, h.Scale, 'g', -1, 64)
	if h.SoftCap != 0 {
		out = strconv.AppendFloat(append(out, " softcap "...), h.SoftCap, 'g', -1, 64)
	}
	if h.Sink {
		out = append(out, " sink"...)
	}
	out = append(out, '\n')
	for _, s := range h.Mask {
		out = fmt.Appendf(out, "mask q %d:%d k %d:%d k-q %s:%s\n", s.Q0, s.Q1, s.K0, s.K1,
			offsetText(s.Lo), offsetText(s.Hi))
	}
	for i, set := range h.Sets[1:] {
		out = append(append(out, "set "...), h.Names[i+1]...)
		for _, p := range set {
			out = appendSpan(append(out, ' '), p)
		}
		out = append(out, '\n')
	}
	for r := range h.Ranks {
		out = fmt.Appendf(out, "home %d q %s k %s\n", r, nameOf(h.Names, int(h.HomeQ[r])),
			nameOf(h.Names, int(h.HomeK[r])))
	}
	out = append(out, "passes"...)
	for _, pass := range passes {
		out = append(append(out, ' '), pass.String()...)
	}
	return append(out, '\n')
}

// offsetText is a diagonal offset of a mask slice.
func offsetText(n int) string {
	switch n {
	case attn.Unbounded:
		return "inf"
	case -attn.Unbounded:
		return "-inf"
	}
	return strconv.Itoa(n)
}

// appendSpan writes lo:hi, positions lo to hi-1, and for strides other than 1 lo:hi:stride.
func appendSpan(out []byte, p mesh.Span) []byte {
	out = strconv.AppendInt(out, int64(p.Start), 10)
	out = append(out, ':')
	out = strconv.AppendInt(out, int64(p.Last())+1, 10)
	if p.Stride != 1 {
		out = append(out, ':')
		out = strconv.AppendInt(out, int64(p.Stride), 10)
	}
	return out
}
