package safetensors

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// scanner reads the JSON text of one header (RFC 8259), once, from left to right. It keeps names,
// shapes and metadata and makes no other garbage, so that time and memory are bounded by the length
// of the text, whatever it says.
type scanner struct {
	file     string
	tensor   string // at hand, for errors
	text     []byte
	at       int
	unquoted []byte   // the last string that had escapes, without them
	others   [][]byte // keys of the entry at hand that are unknown here
	tensors  []Tensor
	index    map[string]int // of tensors
	metadata map[string]string
}

// scanHeader reads the text of a header. Tensors come in the text's order; their ranges are not
// checked here.
func scanHeader(file string, text []byte) (*scanner, error) {
	s := &scanner{file: file, text: text, index: map[string]int{}}
	if len(text) == 0 || text[0] != '{' {
		return nil, s.fail("the header starts with %.1q, not with {", text)
	}
	if !utf8.Valid(text) {
		return nil, s.fail("the header is not valid UTF-8")
	}
	if err := s.object("the header is", s.entry); err != nil {
		return nil, err
	}
	s.tensor = ""
	if s.space(); s.at < len(text) {
		return nil, s.syntax("a space, as only padding may follow the header's }")
	}
	return s, nil
}

func (s *scanner) fail(format string, args ...any) error {
	return &Error{File: s.file, Tensor: s.tensor, Problem: fmt.Sprintf(format, args...)}
}

// syntax says that the text at hand is no JSON.
func (s *scanner) syntax(want string) error {
	if s.at >= len(s.text) {
		return s.fail("the header is not valid JSON: it ends where %s belongs", want)
	}
	return s.fail("the header is not valid JSON: its byte %d is %.1q, not %s", s.at,
		s.text[s.at:], want)
}

// wrong says that the value at hand is not what it should be.
func (s *scanner) wrong(what, want string) error {
	s.space()
	begin := s.at
	if err := s.skip(); err != nil {
		return err
	}
	found := s.text[begin:s.at]
	if found[0] == '{' || found[0] == '[' {
		found = found[:1]
	}
	return s.fail("%s %.80s, not %s", what, found, want)
}

// object reads an object and calls member after each key, which reads the value; the key holds
// until the next string is read. Whether a name comes twice is for member to say.
func (s *scanner) object(what string, member func(key []byte) error) error {
	if !s.next('{') {
		return s.wrong(what, "an object")
	}
	if s.next('}') {
		return nil
	}
	for {
		key, err := s.key()
		if err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		switch {
		case s.next(','):
		case s.next('}'):
			return nil
		default:
			return s.syntax("a comma or }")
		}
	}
}

// entry reads one member of the header: a tensor or the metadata.
func (s *scanner) entry(key []byte) error {
	s.tensor = ""
	if string(key) == metadataKey {
		return s.readMetadata()
	}
	if _, ok := s.index[string(key)]; ok {
		return s.fail("the header has the name %s twice", short(string(key)))
	}
	if len(s.tensors) == MaxTensors {
		return s.fail("the header has more than %d tensors, the limit", MaxTensors)
	}
	t := Tensor{Name: string(key)}
	s.tensor = t.Name
	s.others = s.others[:0]
	const dtype, shape, offsets = 1, 2, 4
	found := 0
	err := s.object("its entry is", func(key []byte) (err error) {
		bit := 0
		switch string(key) {
		case "dtype":
			bit = dtype
		case "shape":
			bit = shape
		case "data_offsets":
			bit = offsets
		}
		if found&bit != 0 {
			return s.fail("its entry has the name %q twice", key)
		}
		found |= bit
		switch bit {
		case dtype:
			t.DType, err = s.readDType()
		case shape:
			t.Shape, err = s.readShape()
		case offsets:
			t.Begin, t.End, err = s.readOffsets()
		default: // later versions of the format may say more
			err = s.skipOther(key)
		}
		return err
	})
	if err != nil {
		return err
	}
	if found != dtype|shape|offsets {
		return s.fail("its entry lacks one of dtype, shape and data_offsets")
	}
	s.index[t.Name] = len(s.tensors)
	s.tensors = append(s.tensors, t)
	return nil
}

func (s *scanner) readMetadata() error {
	if s.metadata != nil {
		return s.fail("the header has the name %q twice", metadataKey)
	}
	s.metadata = map[string]string{}
	return s.object(metadataKey+" is", func(k []byte) error {
		if _, ok := s.metadata[string(k)]; ok {
			return s.fail("%s has the name %s twice", metadataKey, short(string(k)))
		}
		if len(s.metadata) == MaxTensors {
			return s.fail("%s has more than %d names, the limit", metadataKey, MaxTensors)
		}
		key := string(k)
		if s.space(); s.peek() != '"' {
			return s.wrong(metadataKey+" has under "+short(key), "a string")
		}
		value, err := s.str()
		s.metadata[key] = string(value)
		return err
	})
}

func (s *scanner) readDType() (string, error) {
	if s.space(); s.peek() != '"' {
		return "", s.wrong("dtype is", "a string")
	}
	v, err := s.str()
	if n := len(s.tensors); n > 0 && s.tensors[n-1].DType == string(v) {
		return s.tensors[n-1].DType, err // one string for all of a kind
	}
	return string(v), err
}

func (s *scanner) readShape() ([]int, error) {
	var dims [MaxDims]int64
	n, err := s.integers("shape", dims[:], strconv.IntSize-1)
	if err != nil {
		return nil, err
	}
	shape := make([]int, n)
	for i := range shape {
		shape[i] = int(dims[i])
	}
	return shape, nil
}

func (s *scanner) readOffsets() (begin, end int64, err error) {
	var at [2]int64
	n, err := s.integers("data_offsets", at[:], 63)
	if err == nil && n != len(at) {
		err = s.fail("data_offsets has fewer than 2 numbers: %d", at[:n])
	}
	return at[0], at[1], err
}

// skipOther passes over the value of a key that is unknown here.
func (s *scanner) skipOther(key []byte) error {
	if slices.ContainsFunc(s.others, func(k []byte) bool { return bytes.Equal(k, key) }) {
		return s.fail("its entry has the name %s twice", short(string(key)))
	}
	if len(s.others) == maxKeys {
		return s.fail("its entry has more than %d keys that are unknown here, the limit", maxKeys)
	}
	if len(s.unquoted) > 0 && len(key) > 0 && &key[0] == &s.unquoted[0] {
		key = bytes.Clone(key) // the next string with escapes takes its place
	}
	s.others = append(s.others, key)
	return s.skip()
}

// integers reads an array of whole numbers of the given bits, without sign, into dst, and says how
// many there are.
func (s *scanner) integers(what string, dst []int64, bits int) (int, error) {
	if !s.next('[') {
		return 0, s.wrong(what+" is", "an array")
	}
	if s.next(']') {
		return 0, nil
	}
	for n := 0; ; n++ {
		s.space()
		x, ok := s.whole(bits)
		if !ok {
			return 0, s.wrong(what+" holds", fmt.Sprintf("a whole number from 0 to 2^%d-1", bits))
		}
		if n == len(dst) {
			return 0, s.fail("%s has more than %d numbers", what, len(dst))
		}
		dst[n] = x
		switch {
		case s.next(','):
		case s.next(']'):
			return n + 1, nil
		default:
			return 0, s.syntax("a comma or ]")
		}
	}
}
