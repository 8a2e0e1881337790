package safetensors

import (
	"encoding/binary"
	"io"
	"runtime/debug"
	"unsafe"

	"github.com/kvloom/kvloom/internal/tensors"
)

// Close closes what Open opened and gives its memory back: views are gone then. It is an error
// when views were given and the file has been cut short meanwhile, since what was seen through
// them may be wrong. After New it does nothing.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	var err error
	if f.viewed.Swap(false) {
		err = f.reaches(int64(len(f.mem)))
	}
	mem := f.mem
	f.mem = nil
	for _, e := range [...]error{unmapFile(mem), f.file.Close()} {
		if err == nil {
			err = e
		}
	}
	if err != nil {
		return caused(f.name, "cannot be closed in good order", err)
	}
	return nil
}

// View gives all elements of a tensor as Read does, but in the file's own memory where that can
// be: the file is mapped, the tensor is of T's own dtype and lies at a multiple of its element's
// size, and the machine is little-endian. Otherwise it is a copy.
//
// A view must not be written to (that faults) nor touched after Close. If another process cuts the
// file short, what is behind the new end faults when it is touched, or reads as zeros, and Close
// says so. Where files may change, use Read.
func View[T tensors.Float](f *File, name string) ([]T, error) {
	t, d, err := f.floats(name)
	if err != nil {
		return nil, err
	}
	if f.mem != nil && d == tensors.DTypeOf[T]() {
		end := f.data + t.End
		x, ok := inPlace[T](f.mem[f.data+t.Begin : end : end])
		if ok && f.reaches(end) == nil { // else Read says what is wrong
			f.viewed.Store(true)
			return x, nil
		}
	}
	return Read[T](f, name)
}

// inPlace is b as elements, when the machine can read them where they lie.
func inPlace[T tensors.Float](b []byte) ([]T, bool) {
	size := tensors.DTypeOf[T]().Bytes()
	littleEndian := binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b) == 0 || !littleEndian || uintptr(p)%uintptr(size) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(p), len(b)/size), true
}

// reaches demands that the file still has end bytes. Mapped memory does not say: between the new
// end of a file and the end of its page it reads as zeros.
func (f *File) reaches(end int64) error {
	info, err := f.file.Stat()
	if err == nil && info.Size() < end {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// guard runs do, which reads mem and touches no other mapped memory. A fault there, the system's
// answer when a page is not backed by the file any more or its disk fails, becomes an error; by
// itself it would end the process.
func guard(mem []byte, do func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		fault, ok := cause.(interface{ Addr() uintptr })
		begin := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
		if !ok || fault.Addr()-begin >= uintptr(len(mem)) { // below begin it wraps to a large one
			panic(cause)
		}
		err = io.ErrUnexpectedEOF
	}()
	do()
	return nil
}
