package safetensors

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// space passes over white space.
func (s *scanner) space() {
	if s.at < len(s.text) && s.text[s.at] > ' ' {
		return // short enough to be inlined, and nearly always so
	}
	s.spaces()
}

func (s *scanner) spaces() {
	at := s.at
	for at < len(s.text) {
		if c := s.text[at]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			break
		}
		at++
	}
	s.at = at
}

// peek is the byte at hand, 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// next passes over white space and, if it comes next, c.
func (s *scanner) next(c byte) bool {
	s.space()
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// key reads a name and the colon behind it. It holds until the next string is read.
func (s *scanner) key() ([]byte, error) {
	key, err := s.str()
	if err == nil && !s.next(':') {
		err = s.syntax("a colon")
	}
	return key, err
}

// str reads a string. It holds until the next one is read.
func (s *scanner) str() ([]byte, error) {
	raw, escaped, err := s.quoted()
	if !escaped || err != nil {
		return raw, err
	}
	s.unquoted = unquote(s.unquoted[:0], raw)
	return s.unquoted, nil
}

// quoted passes over a string and gives what is between the quotes, and whether that has escapes.
func (s *scanner) quoted() (raw []byte, escaped bool, err error) {
	if !s.next('"') {
		return nil, false, s.syntax("a string")
	}
	begin := s.at
	for at := begin; at < len(s.text); at++ {
		switch c := s.text[at]; {
		case c == '"':
			s.at = at + 1
			return s.text[begin:at], escaped, nil
		case c == '\\':
			escaped = true
			n := escapeBytes(s.text[at+1:])
			if n == 0 {
				s.at = min(at+1, len(s.text))
				return nil, false, s.syntax("an escape")
			}
			at += n
		case c < ' ':
			s.at = at
			return nil, false, s.syntax("a character that a string may hold")
		}
	}
	s.at = len(s.text)
	return nil, false, s.syntax("the end of a string")
}

// escapeBytes is how many bytes of an escape follow its backslash; 0 when it is none.
func escapeBytes(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if len(b) < 5 || hex4(b[1:]) < 0 {
			return 0
		}
		return 5
	}
	return 0
}

// hex4 is the number in the first four bytes, which are there; -1 when they are not hexadecimal.
func hex4(b []byte) rune {
	r := rune(0)
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unquote appends what raw, the inside of a valid string, stands for. Half of a surrogate pair
// stands for U+FFFD, as in package encoding/json.
func unquote(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'u':
			r := hex4(raw)
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				second := rune(-1)
				if bytes.HasPrefix(raw, []byte(`\u`)) {
					second = hex4(raw[2:])
				}
				if r = utf16.DecodeRune(r, second); r != utf8.RuneError {
					raw = raw[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		default: // quote, backslash, slash
			dst = append(dst, c)
		}
	}
}

// skip passes over one value of any kind and holds it to the grammar. Open brackets are kept in an
// array of fixed length, so that no text can exhaust the stack.
func (s *scanner) skip() error {
	var closing [maxDepth]byte
	depth := 0
	for {
		s.space()
		opened := byte(0)
		switch c := s.peek(); c {
		case '{', '[':
			s.at++
			opened = c + 2 // both closing brackets lie 2 behind in ASCII
		case '"':
			if _, _, err := s.quoted(); err != nil {
				return err
			}
		default:
			if err := s.plain(); err != nil {
				return err
			}
		}
		if opened != 0 && depth == maxDepth {
			return s.fail("values nest more than %d deep, the limit", maxDepth)
		}
		if opened != 0 && !s.next(opened) {
			closing[depth] = opened
			depth++
		} else {
			for depth > 0 && s.next(closing[depth-1]) {
				depth--
			}
			if depth == 0 {
				return nil
			}
			if !s.next(',') {
				return s.syntax("a comma or " + string(closing[depth-1]))
			}
		}
		if closing[depth-1] == '}' {
			if _, _, err := s.quoted(); err != nil {
				return err
			}
			if !s.next(':') {
				return s.syntax("a colon")
			}
		}
	}
}

// plain passes over true, false, null or a number.
func (s *scanner) plain() error {
	word := ""
	switch s.peek() {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	case '-':
		s.at++
	}
	switch {
	case word != "":
		if !bytes.HasPrefix(s.text[s.at:], []byte(word)) {
			return s.syntax("a value")
		}
		s.at += len(word)
		return nil
	case s.peek() == '0':
		s.at++
	case !s.digits():
		return s.syntax("a value")
	}
	if s.peek() == '.' {
		s.at++
		if !s.digits() {
			return s.syntax("a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		if !s.digits() {
			return s.syntax("a digit")
		}
	}
	return nil
}

// whole reads a whole number below 2^bits, without sign. It is false at any other value, and then
// the scanner is where it was.
func (s *scanner) whole(bits int) (int64, bool) {
	const most = 19 // digits of 2^63, and as many as surely fit 64 bits
	x, at := uint64(0), s.at
	for at < len(s.text) && s.text[at] >= '0' && s.text[at] <= '9' {
		x = 10*x + uint64(s.text[at]-'0')
		at++
	}
	n := at - s.at
	if n == 0 || n > most || n > 1 && s.text[s.at] == '0' || x>>bits != 0 {
		return 0, false
	}
	if at < len(s.text) && (s.text[at] == '.' || s.text[at]|0x20 == 'e') {
		return 0, false
	}
	s.at = at
	return int64(x), true
}

// digits passes over one or more digits, if they come next.
func (s *scanner) digits() bool {
	begin := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at > begin
}
