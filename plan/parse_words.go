package plan

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parser reads a plan's text line by line, each from left to right. After the first error it goes
// through the motions and finds nothing.
type parser struct {
	data []byte // lines to come
	line []byte // the present one
	at   int    // place in it
	n    int    // its number, from 1
	more bool   // there is a present line
	err  error

	plan  *Parsed
	names map[string]SetID
	args  []Operand // of the op being read
	deps  []int32
}

// next goes to the next line that says something.
func (p *parser) next() {
	for len(p.data) > 0 {
		line, rest, _ := bytes.Cut(p.data, []byte("\n"))
		p.data, p.line, p.at = rest, line, 0
		p.n++
		if len(line) > 0 && line[0] != '#' {
			p.more = true
			return
		}
	}
	p.line, p.at, p.more = nil, 0, false
	p.n++
}

// fail keeps the first error: what stands here and what was expected.
func (p *parser) fail(expected string) { p.failWords(1, expected) }

func (p *parser) failWords(n int, expected string) {
	if p.err == nil {
		p.err = fmt.Errorf("plan: line %d: %s, expected %s", p.n, p.found(n), expected)
	}
}

// limit says that the text has more of something than allowed.
func (p *parser) limit(what string, most int64) {
	if p.err == nil {
		p.err = fmt.Errorf("plan: line %d: more than the limit of %d %s", p.n, most, what)
	}
}

// found is what stands at the present place, in words: n of the line's at most.
func (p *parser) found(n int) string {
	const most = 40
	switch {
	case !p.more:
		return "the text ends"
	case p.at >= len(p.line):
		return "the line ends after " + quoted(p.line, most)
	}
	rest := p.line[p.at:]
	for i := range rest {
		if rest[i] == ' ' && i > 0 {
			if n--; n == 0 {
				rest = rest[:i]
				break
			}
		}
	}
	if p.at == 0 {
		return "found " + quoted(rest, most)
	}
	return fmt.Sprintf("found %s at column %d", quoted(rest, most), p.at+1)
}

func quoted(b []byte, most int) string {
	if len(b) > most {
		return strconv.Quote(string(b[:most])) + "..."
	}
	return strconv.Quote(string(b))
}

// has takes s if it stands here.
func (p *parser) has(s string) bool {
	if p.err != nil || !p.more || len(p.line)-p.at < len(s) ||
		string(p.line[p.at:p.at+len(s)]) != s {
		return false
	}
	p.at += len(s)
	return true
}

// expect takes s.
func (p *parser) expect(s string) {
	if !p.has(s) {
		p.failWords(1+strings.Count(strings.Trim(s, " "), " "), strconv.Quote(s))
	}
}

// end takes the end of the line and goes to the next.
func (p *parser) end() {
	switch {
	case p.err != nil:
	case p.at < len(p.line):
		p.fail("the end of the line")
	default:
		p.next()
	}
}

func (p *parser) peek() byte {
	if p.at < len(p.line) {
		return p.line[p.at]
	}
	return 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// word takes all up to a space, a bracket or the end.
func (p *parser) word() []byte {
	if p.err != nil {
		return nil
	}
	from := p.at
	for p.at < len(p.line) && !strings.ContainsRune(" []", rune(p.line[p.at])) {
		p.at++
	}
	return p.line[from:p.at]
}

// oneOf takes one of some words and gives its number.
func (p *parser) oneOf(what string, words []string) int {
	from := p.at
	w := p.word()
	for i := range words {
		if words[i] == string(w) {
			return i
		}
	}
	p.at = from
	p.fail(what + ": " + strings.Join(words, " "))
	return 0
}

// setName takes the name of a token set.
func (p *parser) setName() SetID {
	from := p.at
	id, ok := p.names[string(p.word())]
	if !ok {
		p.at = from
		p.fail("the name of a token set that a line \"set ...\" declares, or " + noneName)
	}
	return id
}

// number takes a whole number from lo to hi, without leading zeros.
func (p *parser) number(what string, lo, hi int64) int {
	if p.err != nil {
		return 0
	}
	from := p.at
	negative := lo < 0 && p.has("-")
	n, digits := int64(0), p.at
	for p.at < len(p.line) && isDigit(p.line[p.at]) && n <= math.MaxInt64/10-1 {
		n = 10*n + int64(p.line[p.at]-'0')
		p.at++
	}
	if negative {
		n = -n
	}
	if p.at == digits || p.at < len(p.line) && isDigit(p.line[p.at]) || n < lo || n > hi ||
		p.line[digits] == '0' && (negative || p.at-digits > 1) {
		p.at = from
		if lo == hi {
			p.fail(fmt.Sprintf("%s, %d", what, lo))
		} else {
			p.fail(fmt.Sprintf("%s, a number from %d to %d", what, lo, hi))
		}
	}
	return int(n)
}

// float takes a finite number in the shortest form that reads back the same.
func (p *parser) float(what string) float64 {
	from := p.at
	w := string(p.word())
	x, err := strconv.ParseFloat(w, 64)
	switch {
	case err != nil || math.IsNaN(x) || math.IsInf(x, 0):
		p.at = from
		p.fail(what + ", a finite number")
	case strconv.FormatFloat(x, 'g', -1, 64) != w:
		p.at = from
		p.fail(what + " in its shortest form, " + strconv.FormatFloat(x, 'g', -1, 64))
	}
	return x
}

// positive takes a finite number above 0.
func (p *parser) positive(what string) float64 {
	from := p.at
	x := p.float(what)
	if x <= 0 && p.err == nil {
		p.at = from
		p.fail(what + ", a finite number above 0")
	}
	return x
}
