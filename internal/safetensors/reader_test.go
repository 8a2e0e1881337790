package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// file puts a header and data together as they lie on disk.
func file(header string, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func read(b []byte) (*File, error) {
	return New(bytes.NewReader(b), int64(len(b)), "in.st")
}

// entry is the JSON of one tensor.
func entry(name, dtype, shape string, begin, end int) string {
	return fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape,
		begin, end)
}

func mustRead(t *testing.T, b []byte) *File {
	t.Helper()
	f, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestReadByHand(t *testing.T) {
	header := `{"b":{"data_offsets":[2,10],"shape":[2,1],"dtype":"F32","more":[{"x":[1]},null]},` +
		`"__metadata__":{"scale":"0.25","":"é"},` + entry("a", "BF16", "[]", 0, 2) + `,` +
		entry("d", "F64", "[1]", 10, 18) + `,` + entry("none", "F32", "[3,0]", 10, 10) + "}   "
	f := mustRead(t, file(header, 0x20, 0xc0, 0, 0, 0x80, 0x3f, 1, 0, 0x80, 0x7f,
		0, 0, 0, 0, 0, 0, 0x04, 0xc0))
	if got, want := f.Names(), []string{"b", "a", "d", "none"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	m := f.Metadata()
	if len(m) != 2 || m["scale"] != "0.25" || m[""] != "é" {
		t.Errorf("metadata %q", m)
	}
	m["scale"] = "changed"
	b, ok := f.Tensor("b")
	if !ok || b.DType != "F32" || !slices.Equal(b.Shape, []int{2, 1}) || b.Begin != 2 ||
		b.End != 10 {
		t.Errorf("b is %+v, %v", b, ok)
	}
	b.Shape[0] = 9
	if again, _ := f.Tensor("b"); again.Shape[0] != 2 || f.Metadata()["scale"] != "0.25" {
		t.Error("a caller changed the file's own description")
	}
	x, err := Read[float32](f, "b")
	if err != nil || x[0] != 1 || math.Float32bits(x[1]) != 0x7f800001 {
		t.Errorf("b holds %v, %v", x, err)
	}
	for name, want := range map[string][]float64{"a": {-2.5}, "d": {-2.5}, "none": {}} {
		if got, err := Read[float64](f, name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s holds %v, %v; want %v", name, got, err, want)
		}
	}
	if got, err := Read[float32](f, "d"); err != nil || !slices.Equal(got, []float32{-2.5}) {
		t.Errorf("d as float32 is %v, %v", got, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadOtherDTypes(t *testing.T) {
	f := mustRead(t, file("{"+entry("docs", "I32", "[2]", 0, 8)+","+
		entry("half", "F6_E3M2", "[4]", 8, 11)+","+entry("new", "F3", "[7,7,7]", 11, 12)+","+
		entry("q", "F32", "[1]", 12, 16)+"}", make([]byte, 16)...))
	if got, err := Read[float32](f, "q"); err != nil || len(got) != 1 {
		t.Errorf("q: %v, %v", got, err)
	}
	for _, name := range []string{"docs", "half", "new"} {
		d, _ := f.Tensor(name)
		_, err := f.DType(name)
		wantError(t, err, "in.st", name, d.DType, "F32, BF16 or F64")
		_, err = Read[float32](f, name)
		wantError(t, err, "in.st", name, d.DType)
	}
	_, err := Read[float32](f, "k")
	wantError(t, err, "in.st", "k", `not in the file, which holds "docs", "half", "new", "q"`)
	if _, ok := f.Tensor("k"); ok {
		t.Error("k was found")
	}
}

// wantError demands an *Error whose text holds every part.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("error is %v, want an *Error with %q", err, parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q lacks %q", err, p)
		}
	}
}

// refusal is a file that is no file, and what the error must say besides the file's name.
type refusal struct {
	what string
	b    []byte
	want []string
}

// x is the JSON of a tensor x of F32.
func x(shape string, begin, end int) string { return entry("x", "F32", shape, begin, end) }

// poorHeaders are wrong before the shapes and ranges of tensors are looked at.
func poorHeaders() []refusal {
	key := `"dtype":"F32","shape":[1],"data_offsets":[0,4]`
	huge := binary.LittleEndian.AppendUint64(nil, MaxHeaderBytes+1)
	return []refusal{
		{"empty", nil, []string{"0 bytes"}},
		{"seven bytes", make([]byte, 7), []string{"7 bytes"}},
		{"header over the limit", huge, []string{"100000001", "limit of 100000000"}},
		{"header of 2^63", []byte{0, 0, 0, 0, 0, 0, 0, 0x80}, []string{"9223372036854775808"}},
		{"header cut", file("{}")[:9], []string{"2 bytes", "only 1"}},
		{"no header", file(""), []string{"starts with"}},
		{"space first", file(" {}"), []string{`" "`}},
		{"array", file("[]"), []string{`"["`}},
		{"not UTF-8", file("{\"a\xff\":1}"), []string{"UTF-8"}},
		{"no end", file("{"), []string{"JSON"}},
		{"two objects", file("{}{}"), []string{"JSON"}},
		{"zero padding", file("{}\x00"), []string{"JSON"}},
		{"comma", file("{,}"), []string{"JSON"}},
		{"name twice", file("{" + x("[0]", 0, 0) + "," + x("[0]", 0, 0) + "}"),
			[]string{`"x" twice`}},
		{"name twice, escaped", file("{" + x("[0]", 0, 0) + `,"\u0078":1}`),
			[]string{`"x" twice`}},
		{"key twice", file(`{"x":{"dtype":"F32",`+key+`}}`, 0, 0, 0, 0),
			[]string{`tensor "x"`, `"dtype" twice`}},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`), []string{"twice"}},
		{"metadata key twice", file(`{"__metadata__":{"a":"","a":""}}`), []string{`"a" twice`}},
		{"metadata number", file(`{"__metadata__":{"a":17}}`), []string{"17", `"a"`}},
		{"metadata array", file(`{"__metadata__":[]}`), []string{"["}},
		{"entry null", file(`{"x":null}`), []string{`tensor "x"`, "null"}},
		{"no offsets", file(`{"x":{"dtype":"F32","shape":[1]}}`), []string{`"x"`, "lacks"}},
		{"dtype number", file(`{"x":{"dtype":32}}`), []string{`"x"`, "32"}},
		{"shape object", file(`{"x":{"shape":{}}}`), []string{`"x"`, "shape", "{"}},
	}
}

// poorTensors are well-formed JSON about tensors that cannot be.
func poorTensors() []refusal {
	return []refusal{
		{"shape below 0", file("{" + x("[-1]", 0, 4) + "}"), []string{`"x"`, "shape", "-1"}},
		{"shape fraction", file("{" + x("[1.0]", 0, 4) + "}"), []string{`"x"`, "1.0"}},
		{"shape exponent", file("{" + x("[1e0]", 0, 4) + "}"), []string{`"x"`, "1e0"}},
		{"shape string", file("{" + x(`["1"]`, 0, 4) + "}"), []string{`"x"`, `"1"`}},
		{"shape nested", file("{" + x(`[[1]]`, 0, 4) + "}"), []string{`"x"`, "["}},
		{"shape of 2^63", file("{" + x("[9223372036854775808]", 0, 4) + "}"),
			[]string{`"x"`, "9223372036854775808"}},
		{"shape overflow", file("{" + x("[4294967296,4294967296]", 0, 0) + "}"),
			[]string{`"x"`, "4294967296", "more elements"}},
		{"bytes overflow", file("{" + x("[4611686018427387904]", 0, 0) + "}"),
			[]string{`"x"`, "4611686018427387904", "more elements"}},
		{"one offset", file(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[4]}}`),
			[]string{`"x"`, "fewer than 2", "[4]"}},
		{"three offsets", file(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}`),
			[]string{`"x"`, "data_offsets", "more than 2"}},
		{"65 dimensions", file("{"+x("[1"+strings.Repeat(",1", 64)+"]", 0, 4)+"}", 0, 0, 0, 0),
			[]string{`"x"`, "shape", "more than 64"}},
		{"backwards", file("{"+x("[1]", 4, 0)+"}", 0, 0, 0, 0), []string{`"x"`, "[4,0]"}},
		{"cut short", file("{"+x("[2]", 0, 8)+"}", 0, 0, 0, 0),
			[]string{`"x"`, "[0,8]", "4 data"}},
		{"too long a range", file("{"+x("[1]", 0, 5)+"}", 0, 0, 0, 0, 0),
			[]string{`"x"`, "[1]", "F32", "[0,5]"}},
		{"half a byte", file("{"+entry("x", "F4", "[3]", 0, 1)+"}", 0), []string{`"x"`, "F4"}},
		{"hole at the start", file("{"+x("[1]", 1, 5)+"}", 0, 0, 0, 0, 0),
			[]string{`"x"`, "hole of 1 bytes"}},
		{"hole between", file("{"+x("[1]", 0, 4)+","+entry("y", "U8", "[1]", 5, 6)+"}",
			0, 0, 0, 0, 0, 0), []string{`"y"`, "hole of 1", `"x"`}},
		{"overlap", file("{"+x("[1]", 0, 4)+","+entry("y", "U8", "[2]", 3, 5)+"}",
			0, 0, 0, 0, 0), []string{`"y"`, "[3,5)", `"x"`, "end at 4"}},
		{"overlap by an unknown dtype", file("{"+x("[1]", 0, 4)+","+
			entry("y", "Z", "[2]", 3, 5)+"}", 0, 0, 0, 0, 0), []string{`"y"`, "overlap"}},
		{"empty one inside", file("{"+x("[1]", 0, 4)+","+entry("y", "U8", "[0]", 2, 2)+"}",
			0, 0, 0, 0), []string{`"y"`, "overlap"}},
		{"bytes over", file("{"+x("[1]", 0, 4)+"}", 0, 0, 0, 0, 0),
			[]string{"1 bytes follow", `"x"`}},
		{"bytes over and no tensor", file("{}", 0), []string{"1 bytes follow"}},
		{"a long name", file(`{"` + strings.Repeat("n", 5000) + `":7}`), []string{"5000 bytes"}},
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range slices.Concat(poorHeaders(), poorTensors()) {
		t.Run(c.what, func(t *testing.T) {
			f, err := read(c.b)
			if err == nil {
				t.Fatalf("was read: %+v", f)
			}
			wantError(t, err, append(c.want, "in.st")...)
			if len(err.Error()) > 400 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestCutAnywhere: a file that lost its end is never taken for a whole one.
func TestCutAnywhere(t *testing.T) {
	whole := file("{"+entry("x", "F32", "[2]", 0, 8)+"}", make([]byte, 8)...)
	mustRead(t, whole)
	for n := range whole {
		if _, err := read(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes were taken for a file", n, len(whole))
		}
	}
}

func TestReadRange(t *testing.T) {
	const n = 3*chunkBytes/8 + 11
	data := make([]float64, n)
	for i := range data {
		data[i] = float64(i)
	}
	var b bytes.Buffer
	if err := Encode(&b, "x", []Field{NewField("x", []int{n}, data)}, nil); err != nil {
		t.Fatal(err)
	}
	f := mustRead(t, b.Bytes())
	for _, r := range [][2]int{{0, n}, {0, 0}, {n, 0}, {n - 1, 1}, {7, 2*chunkBytes/8 + 1}} {
		dst := make([]float64, r[1])
		if err := ReadRange(f, "x", r[0], dst); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(dst, data[r[0]:r[0]+r[1]]) {
			t.Errorf("%d elements from %d on are wrong", r[1], r[0])
		}
	}
	for _, r := range [][2]int{{-1, 1}, {n, 1}, {n + 1, 0}, {0, n + 1}, {math.MaxInt, 2}} {
		dst := make([]float64, r[1])
		wantError(t, ReadRange(f, "x", r[0], dst), "in.st", "x", fmt.Sprint(r[0]), fmt.Sprint(n))
	}
}

// failing gives an error, or too few bytes, from offset on.
type failing struct {
	io.ReaderAt
	offset int64
	err    error
}

func (f failing) ReadAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) > f.offset {
		return max(0, int(f.offset-off)), f.err
	}
	return f.ReaderAt.ReadAt(b, off)
}

func TestReaderFails(t *testing.T) {
	b := file("{"+entry("x", "F32", "[2]", 0, 8)+"}", make([]byte, 8)...)
	for _, cause := range []error{fs.ErrPermission, io.EOF, nil} {
		for offset := range int64(len(b)) {
			r := failing{bytes.NewReader(b), offset, cause}
			f, err := New(r, int64(len(b)), "in.st")
			if err == nil {
				_, err = Read[float32](f, "x")
				wantError(t, err, `"x"`, "8 bytes at offset")
			}
			wantError(t, err, "in.st")
			want := cause
			if cause == nil || errors.Is(cause, io.EOF) {
				want = io.ErrUnexpectedEOF
			}
			if !errors.Is(err, want) {
				t.Errorf("offset %d: error %v is not %v", offset, err, want)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.st")
	_, err := Open(missing)
	wantError(t, err, missing)
	if !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), missing) != 1 {
		t.Errorf("a missing file gives %v", err)
	}
	_, err = Open(dir)
	wantError(t, err, dir, "not a regular file")
	bad := filepath.Join(dir, "bad.st")
	if err := os.WriteFile(bad, []byte("not at all a tensor file"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(bad)
	wantError(t, err, bad, "limit")
}
