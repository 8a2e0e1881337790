package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// MaxHeaderBytes is the longest header that is read or written, the limit of the format's own
// library.
const MaxHeaderBytes = 100_000_000

// MaxDims is the longest shape that is read; numpy's own limit.
const MaxDims = 64

// metadataKey is the one key of a header that is not a tensor.
const metadataKey = "__metadata__"

// parser walks the tokens of one header. The text was found to be valid JSON beforehand, so only
// its meaning is left to check.
type parser struct {
	file     string
	tensor   string // at hand, for errors
	dec      *json.Decoder
	tensors  []Tensor
	metadata map[string]string
}

// parseHeader reads the JSON text of a header. Tensors come in the text's order.
func parseHeader(file string, text []byte) ([]Tensor, map[string]string, error) {
	p := &parser{file: file}
	if len(text) == 0 || text[0] != '{' {
		return nil, nil, p.fail("the header starts with %.1q, not with {", text)
	}
	if !utf8.Valid(text) {
		return nil, nil, p.fail("the header is not valid UTF-8")
	}
	if !json.Valid(text) {
		err := json.Unmarshal(text, new(json.RawMessage)) // again, for the reason
		return nil, nil, &Error{File: file, Problem: "the header is not valid JSON", Err: err}
	}
	p.dec = json.NewDecoder(bytes.NewReader(text))
	p.dec.UseNumber()
	if err := p.object("the header", p.entry); err != nil {
		return nil, nil, err
	}
	return p.tensors, p.metadata, nil
}

func (p *parser) fail(format string, args ...any) error {
	return &Error{File: p.file, Tensor: p.tensor, Problem: fmt.Sprintf(format, args...)}
}

// object walks one JSON object and calls member after each key, which reads the value.
func (p *parser) object(what string, member func(key string) error) error {
	tok, err := p.dec.Token()
	if err != nil || tok != json.Delim('{') {
		return p.fail("%s is %s, not an object", what, show(tok))
	}
	seen := map[string]bool{}
	for p.dec.More() {
		tok, _ := p.dec.Token()
		key, ok := tok.(string)
		if !ok {
			return p.fail("%s has the key %s, not a string", what, show(tok))
		}
		if seen[key] {
			return p.fail("%s has the name %s twice", what, short(key))
		}
		seen[key] = true
		if err := member(key); err != nil {
			return err
		}
	}
	_, err = p.dec.Token() // the closing brace
	if err != nil {
		return &Error{File: p.file, Tensor: p.tensor, Problem: what + " has no end", Err: err}
	}
	return nil
}

// entry reads one member of the header: a tensor or the metadata.
func (p *parser) entry(key string) error {
	if key == metadataKey {
		p.metadata = map[string]string{}
		return p.object(metadataKey, func(k string) error {
			tok, _ := p.dec.Token()
			v, ok := tok.(string)
			if !ok {
				return p.fail("%s has %s for %s, not a string", metadataKey, show(tok), short(k))
			}
			p.metadata[k] = v
			return nil
		})
	}
	p.tensor = key
	t := Tensor{Name: key}
	var offsets []int64
	found := 0
	err := p.object("its entry", func(k string) (err error) {
		switch k {
		case "dtype":
			found++
			tok, _ := p.dec.Token()
			var ok bool
			if t.DType, ok = tok.(string); !ok {
				err = p.fail("dtype is %s, not a string", show(tok))
			}
		case "shape":
			found++
			t.Shape, err = integers[int](p, "shape", MaxDims, strconv.IntSize-1)
		case "data_offsets":
			found++
			offsets, err = integers[int64](p, "data_offsets", 2, 63)
		default: // later versions of the format may say more
			err = p.skip()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case found != 3:
		return p.fail("its entry lacks one of dtype, shape and data_offsets")
	case len(offsets) != 2:
		return p.fail("data_offsets has fewer than 2 numbers: %d", offsets)
	}
	t.Begin, t.End = offsets[0], offsets[1]
	p.tensors = append(p.tensors, t)
	p.tensor = ""
	return nil
}

// integers reads an array of at most most whole numbers of the given bits, without sign.
func integers[N int | int64](p *parser, what string, most, bits int) ([]N, error) {
	tok, _ := p.dec.Token()
	if tok != json.Delim('[') {
		return nil, p.fail("%s is %s, not an array", what, show(tok))
	}
	list := []N{}
	for p.dec.More() {
		tok, _ := p.dec.Token()
		number, ok := tok.(json.Number)
		n, err := strconv.ParseUint(string(number), 10, bits)
		if !ok || err != nil {
			return nil, p.fail("%s holds %s, not a whole number from 0 to 2^%d-1", what,
				show(tok), bits)
		}
		if len(list) == most {
			return nil, p.fail("%s has more than %d numbers", what, most)
		}
		list = append(list, N(n))
	}
	_, _ = p.dec.Token() // the closing bracket; the text is valid JSON
	return list, nil
}

// skip passes over one value of any kind. Depth is counted, not stacked.
func (p *parser) skip() error {
	for depth := 0; ; {
		tok, err := p.dec.Token()
		if err != nil {
			return &Error{File: p.file, Tensor: p.tensor, Problem: "its entry has no end", Err: err}
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// show prints a token for a message.
func show(tok json.Token) string {
	switch v := tok.(type) {
	case nil:
		return "null"
	case string:
		return short(v)
	case json.Number:
		return fmt.Sprintf("%.80s", string(v))
	}
	return fmt.Sprint(tok)
}

// showShape prints a shape for a message, the first dimensions of a long one.
func showShape(shape []int) string {
	const limit = 8
	if len(shape) <= limit {
		return fmt.Sprint(shape)
	}
	return fmt.Sprintf("%v... (%d dimensions)", shape[:limit], len(shape))
}

// checkTensors proves invariants 1 and 2 of the package comment for tensors over dataBytes bytes.
func checkTensors(file string, tensors []Tensor, dataBytes int64) error {
	for i := range tensors {
		if problem := checkTensor(&tensors[i], dataBytes); problem != "" {
			return &Error{File: file, Tensor: tensors[i].Name, Problem: problem}
		}
	}
	order := make([]*Tensor, len(tensors))
	for i := range tensors {
		order[i] = &tensors[i]
	}
	slices.SortStableFunc(order, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
	})
	end, last := int64(0), "the start of the data"
	for _, t := range order {
		if t.Begin < end {
			return &Error{File: file, Tensor: t.Name, Problem: fmt.Sprintf(
				"its bytes [%d,%d) overlap those of %s, which end at %d", t.Begin, t.End, last,
				end)}
		}
		if t.Begin > end {
			return &Error{File: file, Tensor: t.Name, Problem: fmt.Sprintf(
				"a hole of %d bytes lies between %s and its first byte %d", t.Begin-end, last,
				t.Begin)}
		}
		end, last = t.End, short(t.Name)
	}
	if end != dataBytes {
		return &Error{File: file, Problem: fmt.Sprintf(
			"%d bytes follow %s, which no tensor holds", dataBytes-end, last)}
	}
	return nil
}

// checkTensor checks one tensor by itself and says what is wrong with it, if anything.
func checkTensor(t *Tensor, dataBytes int64) string {
	if t.Begin > t.End {
		return fmt.Sprintf("data_offsets [%d,%d] run backwards", t.Begin, t.End)
	}
	if t.End > dataBytes {
		return fmt.Sprintf("data_offsets [%d,%d] reach past the %d data bytes of the file, which "+
			"was cut short or is damaged", t.Begin, t.End, dataBytes)
	}
	bits := dtypeBits(t.DType)
	if bits == 0 {
		return ""
	}
	n, ok := elements(t.Shape)
	if !ok || n > math.MaxInt64/bits {
		return "shape " + showShape(t.Shape) + " has more elements than any file holds"
	}
	if n*bits%8 != 0 || n*bits/8 != t.End-t.Begin {
		return fmt.Sprintf("%d elements of %s, shape %s, do not fill data_offsets [%d,%d], "+
			"%d bytes", n, t.DType, showShape(t.Shape), t.Begin, t.End, t.End-t.Begin)
	}
	return ""
}

// elements is the product of a shape; false when it overflows. An empty dimension makes it 0
// whatever the others are; a shape without dimensions is one element.
func elements(shape []int) (int64, bool) {
	if slices.Contains(shape, 0) {
		return 0, true
	}
	n := int64(1)
	for _, d := range shape {
		if int64(d) > math.MaxInt64/n {
			return 0, false
		}
		n *= int64(d)
	}
	return n, true
}

// dtypeBits is the size of one element of the format's dtypes; 0 for others.
func dtypeBits(dtype string) int64 {
	switch dtype {
	case "F4":
		return 4
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return 8
	case "U16", "I16", "F16", "BF16":
		return 16
	case "U32", "I32", "F32":
		return 32
	case "U64", "I64", "F64", "C64":
		return 64
	}
	return 0
}
