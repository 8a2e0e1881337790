package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"
)

// slow reads headers by package encoding/json, the twin that the scanner is held against. It says
// only whether a header will do.
type slow struct {
	dec      *json.Decoder
	tensors  []Tensor
	metadata map[string]string
}

var errSlow = errors.New("the header will not do")

func slowHeader(text []byte) (*slow, error) {
	if len(text) == 0 || text[0] != '{' || !utf8.Valid(text) || !json.Valid(text) {
		return nil, errSlow
	}
	s := &slow{dec: json.NewDecoder(bytes.NewReader(text))}
	s.dec.UseNumber()
	return s, s.object(s.entry)
}

// token is the next token; the text is valid, so only the end of it is an error.
func (s *slow) token() json.Token {
	tok, err := s.dec.Token()
	if err != nil && !errors.Is(err, io.EOF) {
		panic(err)
	}
	return tok
}

func (s *slow) object(member func(key string) error) error {
	if s.token() != json.Delim('{') {
		return errSlow
	}
	seen := map[string]bool{}
	for s.dec.More() {
		key := s.token().(string)
		if seen[key] {
			return errSlow
		}
		seen[key] = true
		if err := member(key); err != nil {
			return err
		}
	}
	s.token()
	return nil
}

func (s *slow) entry(key string) error {
	if key == metadataKey {
		s.metadata = map[string]string{}
		return s.object(func(k string) error {
			v, ok := s.token().(string)
			if !ok || len(s.metadata) == MaxTensors {
				return errSlow
			}
			s.metadata[k] = v
			return nil
		})
	}
	t := Tensor{Name: key}
	var offsets []int64
	known, others := 0, 0
	err := s.object(func(k string) (err error) {
		known++
		switch k {
		case "dtype":
			var ok bool
			if t.DType, ok = s.token().(string); !ok {
				err = errSlow
			}
		case "shape":
			var shape []int64
			shape, err = s.integers(MaxDims, strconv.IntSize-1)
			for _, d := range shape {
				t.Shape = append(t.Shape, int(d))
			}
		case "data_offsets":
			offsets, err = s.integers(2, 63)
		default:
			known--
			if others++; others > maxKeys || s.depth() > maxDepth {
				err = errSlow
			}
		}
		return err
	})
	if err != nil || known != 3 || len(offsets) != 2 || len(s.tensors) == MaxTensors {
		return errSlow
	}
	t.Begin, t.End = offsets[0], offsets[1]
	s.tensors = append(s.tensors, t)
	return nil
}

func (s *slow) integers(most, bits int) ([]int64, error) {
	if s.token() != json.Delim('[') {
		return nil, errSlow
	}
	var list []int64
	for s.dec.More() {
		number, ok := s.token().(json.Number)
		n, err := strconv.ParseUint(string(number), 10, bits)
		if !ok || err != nil || len(list) == most {
			return nil, errSlow
		}
		list = append(list, int64(n))
	}
	s.token()
	return list, nil
}

// depth passes over one value and says how deep it nests.
func (s *slow) depth() int {
	deepest := 0
	for depth := 0; ; {
		switch s.token() {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if deepest = max(deepest, depth); depth == 0 {
			return deepest
		}
	}
}
