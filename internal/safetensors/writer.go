package safetensors

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kvloom/kvloom/internal/tensors"
)

// Field is one tensor to be written. Make it with NewField or NewFieldAs.
type Field struct {
	name   string
	dtype  tensors.DType
	shape  []int
	count  int
	encode func(dst []byte, lo, hi int) []byte // appends elements lo..hi-1
}

// NewField is a tensor of T's own dtype, F32 or F64. Shape and data are not copied.
func NewField[T tensors.Float](name string, shape []int, data []T) Field {
	return NewFieldAs(name, tensors.DTypeOf[T](), shape, data)
}

// NewFieldAs is a tensor of dtype d, to which data are rounded when they are written.
func NewFieldAs[T tensors.Float](name string, d tensors.DType, shape []int, data []T) Field {
	return Field{name: name, dtype: d, shape: shape, count: len(data),
		encode: func(dst []byte, lo, hi int) []byte {
			return tensors.Append(dst, d, data[lo:hi])
		}}
}

// Write writes a file of the fields and the metadata at path, in place of what is there. It
// writes a temporary file in the same folder, syncs it to disk and renames it; after an error
// the path is as it was and the temporary file is gone. A path that is not a regular file, such
// as a device, is refused; a symbolic link is followed.
func Write(path string, fields []Field, metadata map[string]string) error {
	header, order, err := layOut(path, fields, metadata)
	if err != nil {
		return err
	}
	target, err := resolve(path)
	if err != nil {
		return err
	}
	tmp, err := createTemp(target)
	if err != nil {
		return caused(path, "cannot be written: no file can be made in its folder", err)
	}
	if err := commit(tmp, target, header, order); err != nil {
		return caused(path, "cannot be written", err)
	}
	return nil
}

// commit fills tmp, makes it durable and gives it the name target; on failure it removes it.
func commit(tmp *os.File, target string, header []byte, fields []Field) error {
	err := emit(tmp, header, fields)
	if err == nil {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), target)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(tmp.Name()))
	}
	return err
}

// Encode writes the bytes of a file to w; name stands for it in errors.
func Encode(w io.Writer, name string, fields []Field, metadata map[string]string) error {
	header, order, err := layOut(name, fields, metadata)
	if err != nil {
		return err
	}
	if err := emit(w, header, order); err != nil {
		return caused(name, "cannot be written", err)
	}
	return nil
}

// layOut checks the fields, puts them in file order and gives the header: length, JSON, padding.
func layOut(file string, fields []Field, meta map[string]string) ([]byte, []Field, error) {
	if n := max(len(fields), len(meta)); n > MaxTensors {
		return nil, nil, &Error{File: file, Problem: fmt.Sprintf("it would hold %d tensors or "+
			"keys of metadata, over the limit of %d, and no reader would take it", n, MaxTensors)}
	}
	order := slices.Clone(fields)
	slices.SortStableFunc(order, func(a, b Field) int {
		return cmp.Or(cmp.Compare(b.dtype.Bytes(), a.dtype.Bytes()), cmp.Compare(a.name, b.name))
	})
	header := append(make([]byte, 8), '{')
	if len(meta) > 0 {
		header = append(header, quoted(metadataKey)+":{"...)
		for i, k := range slices.Sorted(maps.Keys(meta)) {
			if !utf8.ValidString(k) || !utf8.ValidString(meta[k]) {
				return nil, nil, &Error{File: file, Problem: fmt.Sprintf(
					"metadata %s: %s is not valid UTF-8", short(k), short(meta[k]))}
			}
			header = append(header, comma(i)+quoted(k)+":"+quoted(meta[k])...)
		}
		header = append(header, '}')
	}
	seen := map[string]bool{}
	end := int64(0)
	for _, f := range order {
		if problem := f.check(seen[f.name]); problem != "" {
			return nil, nil, &Error{File: file, Tensor: f.name, Problem: problem}
		}
		seen[f.name] = true
		begin := end
		end += int64(f.count) * int64(f.dtype.Bytes())
		header = append(header, comma(len(header)-9)+quoted(f.name)...)
		header = append(header, fmt.Sprintf(`:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}`,
			strings.ToUpper(f.dtype.String()), joined(f.shape), begin, end)...)
	}
	header = append(header, '}')
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	n := len(header) - 8
	binary.LittleEndian.PutUint64(header, uint64(n))
	return header, order, checkHeaderBytes(file, n)
}

// checkHeaderBytes refuses to write a header that no reader would take.
func checkHeaderBytes(file string, n int) error {
	if n > MaxHeaderBytes {
		return &Error{File: file, Problem: fmt.Sprintf("its header would have %d bytes, over the "+
			"limit of %d; write fewer tensors or less metadata", n, MaxHeaderBytes)}
	}
	return nil
}

// check says what is wrong with a field, if anything.
func (f *Field) check(seen bool) string {
	n, ok := elements(f.shape)
	switch {
	case f.dtype.Bytes() == 0 || f.encode == nil:
		return fmt.Sprintf("%v is no dtype; make fields with NewField", f.dtype)
	case f.name == metadataKey:
		return "the name is reserved for the metadata"
	case !utf8.ValidString(f.name):
		return "the name is not valid UTF-8"
	case seen:
		return "two fields have this name"
	case slices.ContainsFunc(f.shape, func(d int) bool { return d < 0 }):
		return "shape " + showShape(f.shape) + " has a dimension below 0"
	case len(f.shape) > MaxDims:
		return fmt.Sprintf("shape has %d dimensions, over the limit of %d", len(f.shape), MaxDims)
	case !ok || n != int64(f.count):
		return fmt.Sprintf("shape %s does not hold %d elements", showShape(f.shape), f.count)
	}
	return ""
}

func comma(before int) string {
	if before > 0 {
		return ","
	}
	return ""
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // no string fails to marshal
	}
	return string(b)
}

func joined(shape []int) string {
	parts := make([]string, len(shape))
	for i, d := range shape {
		parts[i] = strconv.Itoa(d)
	}
	return strings.Join(parts, ",")
}

// emit writes header and data, a chunk at a time.
func emit(w io.Writer, header []byte, fields []Field) error {
	out := bufio.NewWriterSize(w, chunkBytes)
	if _, err := out.Write(header); err != nil {
		return err
	}
	buf := make([]byte, 0, chunkBytes)
	for _, f := range fields {
		step := chunkBytes / f.dtype.Bytes()
		for lo := 0; lo < f.count; lo += step {
			if _, err := out.Write(f.encode(buf, lo, min(lo+step, f.count))); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// resolve follows a link at path and refuses what is no regular file: renaming onto a device
// would replace the device.
func resolve(path string) (string, error) {
	target := path
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if target, err = filepath.EvalSymlinks(path); err == nil {
			info, err = os.Lstat(target)
		}
	}
	if err != nil {
		return "", caused(path, "cannot be written", err)
	}
	if !info.Mode().IsRegular() {
		return "", &Error{File: path, Problem: fmt.Sprintf(
			"cannot be written: it is not a regular file but %v", info.Mode())}
	}
	return target, nil
}

// createTemp makes a new file beside target, with the permissions any new file gets (those of
// os.CreateTemp would hide the result from the user's group).
func createTemp(target string) (*os.File, error) {
	dir, base := filepath.Split(target)
	const tries = 100
	var err error
	for i := range tries {
		name := fmt.Sprintf("%s.%.50s.%d.%d.tmp", dir, base, os.Getpid(), i)
		var f *os.File
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	return nil, err
}
