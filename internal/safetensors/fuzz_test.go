package safetensors

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"
)

// FuzzRead holds the reader to its invariants on any bytes: an *Error, or a file whose tensors
// tile the data and whose floats have as many elements as their shape and survive being written
// and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(file("{}"))
	f.Add(file(`{"__metadata__":{"a":"b"}}  `))
	f.Add(file("{"+entry("q", "F32", "[1,2]", 0, 8)+","+entry("n", "I8", "[3]", 8, 11)+"}",
		0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0, 1, 2, 3))
	f.Add(file("{"+entry("b", "BF16", "[1]", 8, 10)+","+entry("d", "F64", "[]", 0, 8)+"}",
		0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x80, 0x3f))
	f.Add(file("{"+entry("z", "F4", "[2,0,9]", 0, 0)+","+entry("u", "?", "[9,9]", 0, 1)+"}", 7))
	f.Add(file("{" + entry("x", "F32", "[4294967296,4294967296]", 0, 0) + "}"))
	f.Add(file(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"y":[{}]}}`, 1, 0, 0x80, 0x7f))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0x80, '{', '}'})
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := read(b)
		var e *Error
		if err != nil {
			if !errors.As(err, &e) || e.File != "in.st" || len(err.Error()) > 1000 {
				t.Fatalf("a poor error: %v", err)
			}
			return
		}
		var fields []Field
		covered := in.data
		for _, name := range in.Names() {
			d, _ := in.Tensor(name)
			covered += d.End - d.Begin
			x, err := Read[float64](in, name)
			if err != nil {
				if !errors.As(err, &e) || e.Tensor != name {
					t.Fatalf("a poor error: %v", err)
				}
				continue
			}
			if n, ok := elements(d.Shape); !ok || n != int64(len(x)) {
				t.Fatalf("%d elements for %+v", len(x), d)
			}
			dtype, _ := in.DType(name)
			fields = append(fields, NewFieldAs(name, dtype, d.Shape, x))
		}
		if covered != int64(len(b)) {
			t.Fatalf("tensors and header cover %d of %d bytes", covered, len(b))
		}
		again(t, in, fields)
	})
}

// FuzzHeader holds the scanner to package encoding/json: the same texts pass, and say the same.
func FuzzHeader(f *testing.F) {
	for _, c := range slices.Concat(poorHeaders(), poorTensors()) {
		if len(c.b) > 8 {
			f.Add(c.b[8:])
		}
	}
	f.Add([]byte(`{"\ud83d\ude00\b\f\n\r\t\"\\\/":{` +
		`"x":[{},[],{"":-0.1e+2,"b":[true,false,null]}],` +
		`"dtype":"\u0046\ud800","data_offsets":[0,18446744073709551615],"shape":[]}}`))
	f.Add([]byte(`{"__metadata__":{"a":"\u00e9\uDC00\ud800\u0041","":""}, "é" : { } }` + "\n\t\r "))
	f.Fuzz(func(t *testing.T, text []byte) { sameAsSlow(t, text) })
}

// sameAsSlow reads a header both ways.
func sameAsSlow(t interface{ Fatalf(string, ...any) }, text []byte) {
	fast, err := scanHeader("in.st", text)
	want, slowErr := slowHeader(text)
	if (err == nil) != (slowErr == nil) {
		t.Fatalf("%q: the scanner says %v, encoding/json %v", text, err, slowErr)
	}
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || e.File != "in.st" || len(err.Error()) > 1000 {
			t.Fatalf("a poor error: %v", err)
		}
		return
	}
	same := func(a, b Tensor) bool {
		return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape) &&
			a.Begin == b.Begin && a.End == b.End && fast.index[a.Name] < len(fast.tensors) &&
			fast.tensors[fast.index[a.Name]].Name == a.Name
	}
	if !slices.EqualFunc(fast.tensors, want.tensors, same) ||
		!maps.Equal(fast.metadata, want.metadata) {
		t.Fatalf("%q: the scanner says %+v %q, encoding/json %+v %q", text, fast.tensors,
			fast.metadata, want.tensors, want.metadata)
	}
}

// again writes the fields and reads them back.
func again(t *testing.T, in *File, fields []Field) {
	var b bytes.Buffer
	if err := Encode(&b, "out.st", fields, in.Metadata()); err != nil {
		t.Fatal(err)
	}
	out := mustRead(t, b.Bytes())
	for _, f := range fields {
		was, err := Read[float64](in, f.name)
		is, err2 := Read[float64](out, f.name)
		same := func(a, b float64) bool { return a == b || a != a && b != b }
		if err != nil || err2 != nil || !slices.EqualFunc(was, is, same) {
			t.Fatalf("%q was %v, %v and is %v, %v", f.name, was, err, is, err2)
		}
	}
}
