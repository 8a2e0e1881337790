package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/internal/tensors"
)

func encoded(t *testing.T, fields []Field, metadata map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Encode(&b, "out.st", fields, metadata); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestEncodeGolden(t *testing.T) {
	got := encoded(t, []Field{
		NewFieldAs("b", tensors.BF16, []int{1}, []float32{1}),
		NewField("z", []int{2, 1}, []float32{1, -2.5}),
		NewField("a\n", nil, []float32{0}),
		NewField("lse", []int{1, 0}, []float64{}),
	}, map[string]string{"y": "2", "x": "<1>"})
	header := `{"__metadata__":{"x":"\u003c1\u003e","y":"2"},` +
		`"lse":{"dtype":"F64","shape":[1,0],"data_offsets":[0,0]},` +
		`"a\n":{"dtype":"F32","shape":[],"data_offsets":[0,4]},` +
		`"z":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},` +
		`"b":{"dtype":"BF16","shape":[1],"data_offsets":[12,14]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	want := file(header, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0, 0x80, 0x3f)
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if got := encoded(t, nil, nil); !bytes.Equal(got, file("{}      ")) {
		t.Errorf("no tensors give %q", got)
	}
	if f := mustRead(t, got); f.Metadata()["x"] != "<1>" {
		t.Errorf("metadata came back as %q", f.Metadata())
	}
}

// TestRoundTrip writes drawn tensors in two orders, wants the same bytes, and reads them back.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringN(0, 12, -1).Filter(func(s string) bool {
			return s != metadataKey && strings.ToValidUTF8(s, "") == s
		}), 0, 6, rapid.ID).Draw(t, "names")
		var fields []Field
		want := map[string][]float64{}
		for _, name := range names {
			shape := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 4).Draw(t, "shape")
			n, _ := elements(shape)
			x := rapid.SliceOfN(rapid.Float64(), int(n), int(n)).Draw(t, "x")
			narrow := make([]float32, n)
			for i := range x {
				narrow[i] = float32(x[i])
			}
			switch rapid.SampledFrom([]tensors.DType{tensors.F32, tensors.F64, tensors.BF16}).
				Draw(t, "dtype") {
			case tensors.F32:
				fields = append(fields, NewField(name, shape, narrow))
				x = widened(narrow)
			case tensors.F64:
				fields = append(fields, NewField(name, shape, x))
			case tensors.BF16:
				fields = append(fields, NewFieldAs(name, tensors.BF16, shape, x))
				tensors.RoundBF16(narrow)
				x = widened(narrow)
			}
			want[name] = x
		}
		meta := map[string]string{"k": rapid.StringMatching(`[a-z"\\]*`).Draw(t, "meta")}
		var one, two bytes.Buffer
		err := Encode(&one, "out.st", fields, meta)
		slices.Reverse(fields)
		if err2 := Encode(&two, "out.st", fields, meta); err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Fatal("the bytes depend on the order of the fields")
		}
		checkRoundTrip(t, one.Bytes(), want, meta)
	})
}

func widened(x []float32) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = float64(x[i])
	}
	return y
}

func checkRoundTrip(t *rapid.T, b []byte, want map[string][]float64, meta map[string]string) {
	f, err := New(bytes.NewReader(b), int64(len(b)), "out.st")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Names()) != len(want) || f.Metadata()["k"] != meta["k"] || f.data%8 != 0 {
		t.Fatalf("names %q, metadata %q, data at %d", f.Names(), f.Metadata(), f.data)
	}
	for name, x := range want {
		got, err := Read[float64](f, name)
		if err != nil || !slices.Equal(got, x) {
			t.Fatalf("%q came back as %v, %v; want %v", name, got, err, x)
		}
		d, _ := f.DType(name)
		if at, _ := f.Tensor(name); at.Begin%int64(d.Bytes()) != 0 {
			t.Fatalf("%q of %v is not aligned: [%d,%d)", name, d, at.Begin, at.End)
		}
	}
}

func TestDigestIsThatOfTheFile(t *testing.T) {
	x := tensors.Draw[float32](1, "out", chunkBytes/2+3)
	b := encoded(t, []Field{NewField("out", []int{len(x)}, x)}, nil)
	back, err := Read[float32](mustRead(t, b), "out")
	if err != nil || tensors.Digest(back) != tensors.Digest(x) {
		t.Errorf("the digest changed on the way through a file (%v)", err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	x := []float32{1, 2}
	for _, c := range []struct {
		what   string
		fields []Field
		meta   map[string]string
		want   string
	}{
		{"shape", []Field{NewField("q", []int{3}, x)}, nil, "[3] does not hold 2"},
		{"scalar", []Field{NewField("q", nil, x)}, nil, "does not hold 2"},
		{"below 0", []Field{NewField("q", []int{-1, -2}, x)}, nil, "below 0"},
		{"overflow", []Field{NewField("q", []int{math.MaxInt, 2}, x)}, nil, "does not hold 2"},
		{"dimensions", []Field{NewField("q", make([]int, 65), x)}, nil, "65 dimensions"},
		{"twice", []Field{NewField("q", []int{2}, x), NewFieldAs("q", tensors.F64, []int{2}, x)},
			nil, "two fields"},
		{"reserved", []Field{NewField(metadataKey, []int{2}, x)}, nil, "reserved"},
		{"not UTF-8", []Field{NewField("\xff", []int{2}, x)}, nil, "UTF-8"},
		{"zero field", []Field{{}}, nil, "NewField"},
		{"dtype", []Field{NewFieldAs("q", tensors.DType(9), []int{2}, x)}, nil, "dtype(9)"},
		{"metadata", nil, map[string]string{"k": "\xff"}, "UTF-8"},
	} {
		t.Run(c.what, func(t *testing.T) {
			var b bytes.Buffer
			wantError(t, Encode(&b, "out.st", c.fields, c.meta), "out.st", c.want)
			if b.Len() != 0 {
				t.Errorf("%d bytes were written", b.Len())
			}
		})
	}
}

func TestHeaderLimit(t *testing.T) {
	many := make([]Field, MaxTensors+1)
	wantError(t, Encode(io.Discard, "out.st", many, nil), "262145 tensors", "limit of 262144")
	if err := Encode(io.Discard, "out.st", many[1:], nil); err == nil {
		t.Error("fields without names were written")
	} else if strings.Contains(err.Error(), "262144") {
		t.Errorf("as many as the limit: %v", err)
	}
	if err := checkHeaderBytes("out.st", MaxHeaderBytes); err != nil {
		t.Error(err)
	}
	wantError(t, checkHeaderBytes("out.st", MaxHeaderBytes+8), "out.st", "100000008", "100000000")
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.st")
	for _, x := range [][]float32{{1, 2}, {3}} { // the second in place of the first
		fields := []Field{NewField("out", []int{len(x)}, x)}
		if err := Write(path, fields, nil); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Read[float32](f, "out"); err != nil || !slices.Equal(got, x) {
			t.Errorf("read %v, %v; want %v", got, err, x)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		wantFolder(t, path, "out.st")
	}
	wantError(t, Write(path, []Field{NewField("out", nil, []float32{1, 2})}, nil), path)
	if f, err := Open(path); err != nil || len(f.Names()) != 1 || f.Close() != nil {
		t.Errorf("a refused write harmed the file: %v", err)
	}
}

// wantFolder demands the exact names in the folder of path.
func wantFolder(t *testing.T, path string, names ...string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, names) {
		t.Errorf("the folder holds %q, want %q", got, names)
	}
}

// TestWriteFailsHalfway: when the data cannot be had, the old file stays and nothing else.
func TestWriteFailsHalfway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.st")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	tmp, err := createTemp(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := tmp.Close(); err != nil {
		t.Fatal(err)
	}
	big := NewField("out", []int{chunkBytes}, make([]float32, chunkBytes))
	header, order, err := layOut(path, []Field{big}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := commit(tmp, path, header, order); err == nil {
		t.Fatal("writing to a closed file succeeded")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("the old file holds %q, %v", b, err)
	}
	wantFolder(t, path, "out.st")
}

func TestWriteToWrongPlaces(t *testing.T) {
	dir := t.TempDir()
	wantError(t, Write(dir, nil, nil), dir, "not a regular file")
	nowhere := filepath.Join(dir, "missing", "out.st")
	err := Write(nowhere, nil, nil)
	wantError(t, err, nowhere)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v does not say that the folder is missing", err)
	}
	if _, err := os.Stat(os.DevNull); err == nil {
		wantError(t, Write(os.DevNull, nil, nil), os.DevNull, "not a regular file")
	}
	target, link := filepath.Join(dir, "target.st"), filepath.Join(dir, "a-link.st")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if err := Write(link, nil, nil); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(target); err != nil || len(b) != 16 {
		t.Errorf("the link's target holds %q, %v", b, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is no link any more: %v, %v", info, err)
	}
	wantFolder(t, target, "a-link.st", "target.st")
}

// TestWriteThroughBadLinks wants the path that was given in the error, whatever it leads to.
func TestWriteThroughBadLinks(t *testing.T) {
	dir := t.TempDir()
	for name, target := range map[string]string{
		"dangling.st": filepath.Join(dir, "missing.st"), "loop.st": "loop.st", "folder.st": dir,
	} {
		link := filepath.Join(dir, name)
		if err := os.Symlink(target, link); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
		wantError(t, Write(link, nil, nil), link, "cannot be written")
	}
	long := filepath.Join(dir, strings.Repeat("n", 300))
	wantError(t, Write(long, nil, nil), long, "cannot be written")
	wantFolder(t, long, "dangling.st", "folder.st", "loop.st")
}

func TestHeaderIsPadded(t *testing.T) {
	for n := range 9 {
		b := encoded(t, []Field{NewField(strings.Repeat("n", n), []int{1}, []float32{1})}, nil)
		if h := binary.LittleEndian.Uint64(b); h%8 != 0 || uint64(len(b)) != 8+h+4 {
			t.Errorf("a name of %d bytes gives a header of %d and a file of %d", n, h, len(b))
		}
	}
}
