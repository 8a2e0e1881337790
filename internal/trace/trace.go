package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Track names a row of the picture: a process and a thread of it, both numbered from 1 on.
type Track struct{ Process, Thread int }

// Arg is one named value of a slice: a text, or a whole number when Text is empty.
type Arg struct {
	Name   string
	Text   string
	Number int64
}

// Writer writes one trace. Its zero value is not usable; see New.
type Writer struct {
	to     *bufio.Writer
	line   []byte
	lines  int
	free   map[Track]int64 // when the track's last slice ends
	err    error
	closed bool
	torn   bool // the last line is not whole
}

// errClosed says that a trace is written to after its end.
var errClosed = errors.New("trace: written to after Close")

// ErrOverlap says that two slices of one track overlap.
var ErrOverlap = errors.New("trace: slices of one track overlap")

// New begins a trace.
func New(w io.Writer) *Writer {
	t := &Writer{to: bufio.NewWriterSize(w, 1<<16), free: map[Track]int64{}}
	t.put([]byte(`{"displayTimeUnit":"ns","traceEvents":[`))
	return t
}

// Process names a process; order sorts the processes, lowest first.
func (t *Writer) Process(process int, name string, order int) {
	t.meta("process_name", Track{Process: process}, func() { t.text("name", name) })
	t.meta("process_sort_index", Track{Process: process}, func() { t.number("sort_index", order) })
}

// Track names a track; in its process tracks are sorted by thread number.
func (t *Writer) Track(at Track, name string) {
	t.meta("thread_name", at, func() { t.text("name", name) })
	t.meta("thread_sort_index", at, func() { t.number("sort_index", at.Thread) })
}

// Slice draws what happened on a track from begin for nanos nanoseconds.
func (t *Writer) Slice(at Track, name string, begin, nanos int64, args ...Arg) {
	if t.err != nil {
		return
	}
	if free, ok := t.free[at]; nanos < 0 || (ok && begin < free) {
		t.err = fmt.Errorf("%w: %q on process %d thread %d begins at %d ns for %d ns, the one "+
			"before "+
			"ends at %d ns", ErrOverlap, name, at.Process, at.Thread, begin, nanos, free)
		return
	}
	t.free[at] = begin + nanos
	t.open("X", at)
	t.micros("ts", begin)
	t.micros("dur", nanos)
	t.text("name", name)
	t.line = append(t.line, `,"args":{`...)
	for _, a := range args {
		if a.Text != "" {
			t.text(a.Name, a.Text)
		} else {
			t.key(a.Name)
			t.line = strconv.AppendInt(t.line, a.Number, 10)
		}
	}
	t.line = append(t.line, "}}"...)
	t.write()
}

// Close ends the trace and gives the first error there was. It may be called twice.
func (t *Writer) Close() error {
	if !t.closed && !t.torn {
		t.put([]byte("\n]}\n"))
	}
	if err := t.to.Flush(); t.err == nil {
		t.err = err
	}
	t.closed = true
	return t.err
}

// meta writes a line that names something.
func (t *Writer) meta(kind string, at Track, args func()) {
	if t.err != nil {
		return
	}
	t.open("M", at)
	t.text("name", kind)
	t.line = append(t.line, `,"args":{`...)
	args()
	t.line = append(t.line, "}}"...)
	t.write()
}

// open begins a line.
func (t *Writer) open(phase string, at Track) {
	t.line = t.line[:0]
	if t.lines > 0 {
		t.line = append(t.line, ',')
	}
	t.line = append(t.line, "\n{\"ph\":\""...)
	t.line = append(t.line, phase...)
	t.line = append(t.line, '"')
	t.number("pid", at.Process)
	if at.Thread > 0 {
		t.number("tid", at.Thread)
	}
}

// key writes the name of a value, after a comma unless it is the first of its object.
func (t *Writer) key(name string) {
	if t.line[len(t.line)-1] != '{' {
		t.line = append(t.line, ',')
	}
	t.quote(name)
	t.line = append(t.line, ':')
}

func (t *Writer) number(name string, n int) {
	t.key(name)
	t.line = strconv.AppendInt(t.line, int64(n), 10)
}

func (t *Writer) text(name, value string) {
	t.key(name)
	t.quote(value)
}

// micros writes nanoseconds as microseconds with three decimals.
func (t *Writer) micros(name string, nanos int64) {
	t.key(name)
	if nanos < 0 {
		t.line = append(t.line, '-')
	}
	whole, rest := nanos/1000, nanos%1000
	t.line = strconv.AppendUint(t.line, uint64(max(whole, -whole)), 10)
	t.line = append(t.line, '.')
	rest = max(rest, -rest)
	t.line = append(t.line, byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}

// quote writes a JSON string. Plain ASCII, which nearly all names are, goes as it is.
func (t *Writer) quote(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, err := json.Marshal(s)
			if err != nil && t.err == nil {
				t.err = err
			}
			t.line = append(t.line, text...)
			return
		}
	}
	t.line = append(t.line, '"')
	t.line = append(t.line, s...)
	t.line = append(t.line, '"')
}

// write ends a line.
func (t *Writer) write() {
	if t.err != nil {
		return
	}
	if t.closed {
		t.err = errClosed
		return
	}
	t.lines++
	t.put(t.line)
}

// put writes what must be whole.
func (t *Writer) put(text []byte) {
	if _, err := t.to.Write(text); err != nil && !t.torn {
		t.torn, t.err = true, errors.Join(t.err, err)
	}
}
