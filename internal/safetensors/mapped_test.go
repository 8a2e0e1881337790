package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/internal/tensors"
)

// noMap is a system that maps no files.
func noMap(*os.File, int64) []byte { return nil }

// ways are the ways to open a file that this system has.
func ways() map[string]func(*os.File, int64) []byte {
	if runtime.GOOS != "linux" {
		return map[string]func(*os.File, int64) []byte{"by calls": noMap}
	}
	return map[string]func(*os.File, int64) []byte{"by calls": noMap, "mapped": mapFile}
}

// inMemory says whether x lies in the mapped file.
func inMemory[T tensors.Float](f *File, x []T) bool {
	if len(f.mem) == 0 || len(x) == 0 {
		return false
	}
	begin := uintptr(unsafe.Pointer(&f.mem[0]))
	at := uintptr(unsafe.Pointer(&x[0]))
	return at >= begin && at < begin+uintptr(len(f.mem))
}

func mustOpen(t interface{ Fatal(...any) }, path string,
	way func(*os.File, int64) []byte) *File {
	f, err := open(path, way)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// bitsOf are the bits of elements, since NaNs do not compare.
func bitsOf[T tensors.Float](x []T) []uint64 {
	bits := make([]uint64, len(x))
	for i, v := range x {
		if f, ok := any(v).(float32); ok {
			bits[i] = uint64(math.Float32bits(f)) // by way of float64 a NaN would become quiet
		} else {
			bits[i] = math.Float64bits(float64(v))
		}
	}
	return bits
}

// TestRoundTripOnDisk writes drawn bits and reads them back whole, in ranges and as views, mapped
// and not: all bits, whatever the shape and the neighbours.
func TestRoundTripOnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.st")
	rapid.Check(t, func(t *rapid.T) {
		narrow := make([]float32, rapid.IntRange(0, 70).Draw(t, "f32"))
		for i := range narrow {
			narrow[i] = math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		}
		double := make([]float64, rapid.IntRange(0, 70).Draw(t, "f64"))
		for i := range double {
			double[i] = math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		}
		half := make([]float32, rapid.IntRange(0, 5).Draw(t, "bf16"))
		for i := range half {
			half[i] = tensors.FromBF16(rapid.Uint16().Filter(func(b uint16) bool {
				return b&0x7f80 != 0x7f80 || b&0x7f == 0 // a NaN may become quiet
			}).Draw(t, "bits"))
		}
		name := rapid.StringMatching(`[a-zé"\\]{0,9}`).Draw(t, "name")
		err := Write(path, []Field{NewField(name+"1", []int{len(narrow)}, narrow),
			NewField(name+"2", []int{1, len(double)}, double),
			NewFieldAs(name+"3", tensors.BF16, []int{len(half)}, half)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range ways() {
			f := mustOpen(t, path, way)
			backAsBits(t, f, name+"1", narrow, f.mem != nil)
			backAsBits(t, f, name+"2", double, f.mem != nil)
			backAsBits(t, f, name+"3", half, false)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func backAsBits[T tensors.Float](t *rapid.T, f *File, name string, want []T, inPlace bool) {
	x, err := Read[T](f, name)
	if err != nil || !slices.Equal(bitsOf(x), bitsOf(want)) {
		t.Fatalf("%q came back as %v, %v, want %v", name, x, err, want)
	}
	lo := rapid.IntRange(0, len(want)).Draw(t, "lo")
	part := make([]T, rapid.IntRange(0, len(want)-lo).Draw(t, "n"))
	err = ReadRange(f, name, lo, part)
	if err != nil || !slices.Equal(bitsOf(part), bitsOf(want[lo:lo+len(part)])) {
		t.Fatalf("%q from %d on came back as %v, %v, want %v", name, lo, part, err, want)
	}
	x, err = View[T](f, name)
	if err != nil || !slices.Equal(bitsOf(x), bitsOf(want)) || cap(x) != len(x) && inPlace {
		t.Fatalf("%q was seen as %v (room for %d), %v, want %v", name, x, cap(x), err, want)
	}
	if inMemory(f, x) != (inPlace && len(want) > 0) {
		t.Fatalf("%q in place: %v, want %v", name, inMemory(f, x), inPlace)
	}
}

// TestViewCopies: a view is a copy where the dtype or the alignment does not fit, and never a wrong
// number.
func TestViewCopies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.st")
	for pad := range 9 {
		header := "{" + entry("a", "F32", "[2]", 0, 8) + "," + entry("b", "F64", "[1]", 8, 16) + "}"
		header += strings.Repeat(" ", (8-len(header)%8)%8+pad)
		b := file(header, 0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0, 0, 0, 0, 0, 0, 0, 0x04, 0xc0)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for way, mapFile := range ways() {
			f := mustOpen(t, path, mapFile)
			a, err := View[float32](f, "a")
			if err != nil || !slices.Equal(a, []float32{1, -2.5}) {
				t.Errorf("pad %d, %s: a is %v, %v", pad, way, a, err)
			}
			if got, want := inMemory(f, a), f.mem != nil && pad%4 == 0; got != want {
				t.Errorf("pad %d, %s: a in place: %v, want %v", pad, way, got, want)
			}
			wide, err := View[float64](f, "a")
			if err != nil || !slices.Equal(wide, []float64{1, -2.5}) || inMemory(f, wide) {
				t.Errorf("pad %d, %s: a as float64 is %v, %v", pad, way, wide, err)
			}
			d, err := View[float64](f, "b")
			if err != nil || !slices.Equal(d, []float64{-2.5}) {
				t.Errorf("pad %d, %s: b is %v, %v", pad, way, d, err)
			}
			if got, want := inMemory(f, d), f.mem != nil && pad%8 == 0; got != want {
				t.Errorf("pad %d, %s: b in place: %v, want %v", pad, way, got, want)
			}
			_, err = View[float32](f, "c")
			wantError(t, err, path, `"c"`, "not in the file")
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		words := make([]uint64, 2)
		b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 16)
		if _, ok := inPlace[float64](b[:8]); !ok {
			t.Error("aligned bytes are not taken in place")
		}
		if _, ok := inPlace[float64](b[4:12]); ok {
			t.Error("bytes at a multiple of 4 are taken for float64")
		}
	}
}

// long writes a file of one tensor x of n float32 and gives the path and where the data begin.
func long(t *testing.T, n int) (path string, data int64) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "in.st")
	if err := Write(path, []Field{NewField("x", []int{n}, make([]float32, n))}, nil); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, info.Size() - int64(4*n)
}

// TestCutWhileOpen: whoever reads a file that another cuts short gets an error, be the new end at
// the end of a page or inside one, and reads on what is left.
func TestCutWhileOpen(t *testing.T) {
	const n = 1 << 15
	for way, mapFile := range ways() {
		for _, left := range []int{0, 10, 1000, n / 2, n - 3} {
			path, data := long(t, n)
			f := mustOpen(t, path, mapFile)
			if err := os.Truncate(path, data+int64(4*left)); err != nil {
				t.Fatal(err)
			}
			_, err := Read[float32](f, "x")
			wantError(t, err, path, `"x"`, fmt.Sprint(4*n, " bytes at offset ", data))
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, %d left: %v", way, left, err)
			}
			dst := make([]float32, 2)
			if err := ReadRange(f, "x", n-2, dst); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, %d left: the last two elements were read: %v", way, left, err)
			}
			if err := ReadRange(f, "x", 0, dst[:min(2, left)]); err != nil {
				t.Errorf("%s, %d left: the first elements cannot be read: %v", way, left, err)
			}
			if _, err := View[float32](f, "x"); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, %d left: a view was given: %v", way, left, err)
			}
			if err := f.Close(); err != nil {
				t.Errorf("%s: no view was given, and closing says %v", way, err)
			}
		}
	}
}

// TestCutWhileViewed: a view cannot know, but the fault can be caught and Close tells.
func TestCutWhileViewed(t *testing.T) {
	const n = 1 << 15
	path, data := long(t, n)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.mem == nil {
		t.Skip("files are not mapped here")
	}
	x, err := View[float32](f, "x")
	if err != nil || !inMemory(f, x) {
		t.Fatal("no view in place: ", err)
	}
	if err := os.Truncate(path, data); err != nil {
		t.Fatal(err)
	}
	if !faults(func() float32 { return x[n-1] }) {
		t.Error("an element behind the end of the file could be read")
	}
	wantError(t, f.Close(), path, "closed", io.ErrUnexpectedEOF.Error())
	wantError(t, f.Close(), path, "closed") // twice
	_, err = Read[float32](f, "x")
	wantError(t, err, path)
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("reading a closed file: %v", err)
	}
}

func TestViewCannotBeWritten(t *testing.T) {
	path, _ := long(t, 8)
	f := mustOpen(t, path, mapFile)
	x, err := View[float32](f, "x")
	if err != nil {
		t.Fatal(err)
	}
	if inMemory(f, x) && !faults(func() float32 { x[0] = 1; return 0 }) {
		t.Error("the file's memory can be written to")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func faults(do func() float32) (yes bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { yes = recover() != nil }()
	do()
	return false
}

// TestGuardPassesOn: only faults on the file's memory become errors.
func TestGuardPassesOn(t *testing.T) {
	const n = 1 << 20 // too large for a stack, which may move
	mem := make([]byte, n)
	begin := uintptr(unsafe.Pointer(&mem[0]))
	for _, cause := range []any{"a string", fault(0), fault(begin - 1), fault(begin + n)} {
		got := func() (got any) {
			defer func() { got = recover() }()
			_ = guard(mem, func() { panic(cause) })
			return nil
		}()
		if got != cause {
			t.Errorf("panic %v came out as %v", cause, got)
		}
	}
	inside := fault(begin + n - 1)
	if err := guard(mem, func() { panic(inside) }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a fault inside gives %v", err)
	}
}

// fault is what the runtime panics with at an address.
type fault uintptr

func (f fault) Addr() uintptr { return uintptr(f) }

func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "in.st")
	const n = 4 << 20
	x := tensors.Draw[float32](1, "x", n)
	if err := Write(path, []Field{NewField("x", []int{n}, x)}, nil); err != nil {
		b.Fatal(err)
	}
	for way, mapFile := range ways() {
		b.Run("read "+way, func(b *testing.B) {
			f := mustOpen(b, path, mapFile)
			defer f.Close()
			b.SetBytes(4 * n)
			b.ReportAllocs()
			dst := make([]float32, n)
			for b.Loop() {
				if err := ReadRange(f, "x", 0, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("open and view "+way, func(b *testing.B) {
			b.SetBytes(4 * n)
			b.ReportAllocs()
			for b.Loop() {
				f := mustOpen(b, path, mapFile)
				v, err := View[float32](f, "x")
				if err != nil || v[n-1] != x[n-1] || f.Close() != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
