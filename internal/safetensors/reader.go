package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kvloom/kvloom/internal/tensors"
)

// chunkBytes is how much of a tensor is in hand as bytes while it is read or written.
const chunkBytes = 256 << 10

// Tensor says what a file holds under a name. Its bytes are [Begin, End) of the data, counted
// from the first byte after the header.
type Tensor struct {
	Name       string
	DType      string // as the file spells it: F32, BF16, I64, ...
	Shape      []int  // row-major; empty for a single number
	Begin, End int64
}

// File is a checked safetensors file, open for reading.
type File struct {
	name     string
	r        io.ReaderAt
	file     *os.File // r, when Open opened it; nil when the caller owns r
	mem      []byte   // the whole file as memory; nil when it is read through r
	viewed   atomic.Bool
	data     int64    // offset of the first data byte
	tensors  []Tensor // in the header's order
	index    map[string]int
	metadata map[string]string
}

// Open opens and checks the file at path, which must be a regular file, and maps it into memory
// where the system can. The caller closes it.
func Open(path string) (*File, error) { return open(path, mapFile) }

// open is Open with a way to map a file, which gives nil where there is none.
func open(path string, mapFile func(r *os.File, size int64) []byte) (*File, error) {
	r, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	f, err := New(r, size, path)
	if err != nil {
		_ = r.Close() // opened for reading: nothing can be lost
		return nil, err
	}
	f.file, f.mem = r, mapFile(r, size)
	return f, nil
}

func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path) // before os.Open, which would wait for ever on a named pipe
	if err == nil && info.Mode().IsRegular() {
		var r *os.File
		if r, err = os.Open(path); err == nil {
			info, err = r.Stat() // another file may have taken the path in between
			if err == nil && info.Mode().IsRegular() {
				return r, info.Size(), nil
			}
			_ = r.Close()
		}
	}
	if err != nil {
		return nil, 0, caused(path, "cannot be read", err)
	}
	return nil, 0, &Error{File: path, Problem: fmt.Sprintf("is not a regular file but %v",
		info.Mode())}
}

// New checks the size bytes of r as a file; name stands for it in errors. The caller keeps r.
func New(r io.ReaderAt, size int64, name string) (*File, error) {
	f := &File{name: name, r: r}
	if size < 8 {
		return nil, &Error{File: name, Problem: fmt.Sprintf(
			"has %d bytes, fewer than the 8 of the header's length: not a safetensors file", size)}
	}
	var length [8]byte
	if err := readFull(r, length[:], 0); err != nil {
		return nil, caused(name, "the header's length cannot be read", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeaderBytes {
		return nil, &Error{File: name, Problem: fmt.Sprintf("the header is said to have %d bytes, "+
			"over the limit of %d: not a safetensors file, or a damaged one", n, MaxHeaderBytes)}
	}
	if int64(n) > size-8 {
		return nil, &Error{File: name, Problem: fmt.Sprintf("the header is said to have %d bytes, "+
			"but only %d follow: the file was cut short or is damaged", n, size-8)}
	}
	text := make([]byte, n)
	if err := readFull(r, text, 8); err != nil {
		return nil, caused(name, "the header cannot be read", err)
	}
	s, err := scanHeader(name, text)
	if err != nil {
		return nil, err
	}
	f.tensors, f.index, f.metadata, f.data = s.tensors, s.index, s.metadata, 8+int64(n)
	if err := checkTensors(name, f.tensors, size-f.data); err != nil {
		return nil, err
	}
	return f, nil
}

// Names lists the tensors in the header's order.
func (f *File) Names() []string {
	names := make([]string, len(f.tensors))
	for i := range f.tensors {
		names[i] = f.tensors[i].Name
	}
	return names
}

// Tensor describes the tensor called name; false when there is none. The shape is the caller's.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, false
	}
	t := f.tensors[i]
	t.Shape = slices.Clone(t.Shape)
	return t, true
}

// Metadata is a copy of the file's metadata, nil when it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// DType is the element type of the tensor called name, if kvloom computes with it: F32, F64 or
// BF16. It is an error when there is no such tensor or it is of another dtype.
func (f *File) DType(name string) (tensors.DType, error) {
	_, d, err := f.floats(name)
	return d, err
}

// floats finds a tensor whose elements can be read as floats.
func (f *File) floats(name string) (*Tensor, tensors.DType, error) {
	i, ok := f.index[name]
	if !ok {
		return nil, 0, &Error{File: f.name, Tensor: name, Problem: "is not in the file, which " +
			f.holds()}
	}
	t := &f.tensors[i]
	switch t.DType {
	case "F32":
		return t, tensors.F32, nil
	case "F64":
		return t, tensors.F64, nil
	case "BF16":
		return t, tensors.BF16, nil
	}
	return nil, 0, &Error{File: f.name, Tensor: name, Problem: "dtype " + short(t.DType) +
		" cannot be read here; store it as F32, BF16 or F64"}
}

// holds names some tensors of the file for a message.
func (f *File) holds() string {
	const limit = 8
	if len(f.tensors) == 0 {
		return "holds no tensors"
	}
	var some []string
	for i := range f.tensors[:min(limit, len(f.tensors))] {
		some = append(some, short(f.tensors[i].Name))
	}
	s := "holds " + strings.Join(some, ", ")
	if more := len(f.tensors) - len(some); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// Read gives all elements of a tensor of dtype F32, F64 or BF16, row-major. F64 into a float32
// is rounded to nearest; every other conversion is exact.
func Read[T tensors.Float](f *File, name string) ([]T, error) {
	t, d, err := f.floats(name)
	if err != nil {
		return nil, err
	}
	dst := make([]T, (t.End-t.Begin)/int64(d.Bytes()))
	if err := ReadRange(f, name, 0, dst); err != nil {
		return nil, err
	}
	return dst, nil
}

// ReadRange sets dst to elements first .. first+len(dst)-1 of a tensor, in row-major order over
// the whole of it, converted as Read does. So a rank reads its own rows only. It is an error when
// the range is not inside the tensor; dst is then unchanged.
func ReadRange[T tensors.Float](f *File, name string, first int, dst []T) error {
	t, d, err := f.floats(name)
	if err != nil {
		return err
	}
	size := d.Bytes()
	n := (t.End - t.Begin) / int64(size)
	if first < 0 || int64(first) > n || int64(len(dst)) > n-int64(first) {
		return &Error{File: f.name, Tensor: name, Problem: fmt.Sprintf(
			"%d elements from %d on were asked for, but it has %d", len(dst), first, n)}
	}
	off := f.data + t.Begin + int64(first)*int64(size)
	if err := fill(f, dst, d, off); err != nil {
		e := caused(f.name, fmt.Sprintf("%d bytes at offset %d cannot be read", len(dst)*size, off),
			err)
		e.Tensor = name
		return e
	}
	return nil
}

// fill decodes the elements at an offset of the file.
func fill[T tensors.Float](f *File, dst []T, d tensors.DType, off int64) error {
	size := d.Bytes()
	if f.mem != nil {
		end := off + int64(len(dst))*int64(size)
		err := guard(f.mem, func() { tensors.Decode(dst, d, f.mem[off:end]) })
		if err == nil {
			err = f.reaches(end)
		}
		return err
	}
	buf := make([]byte, min(chunkBytes, len(dst)*size))
	for len(dst) > 0 {
		m := min(len(dst), chunkBytes/size)
		if err := readFull(f.r, buf[:m*size], off); err != nil {
			return err
		}
		tensors.Decode(dst[:m], d, buf[:m*size])
		dst, off = dst[m:], off+int64(m*size)
	}
	return nil
}

// readFull fills b from off. A reader may say io.EOF together with the last bytes.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}
