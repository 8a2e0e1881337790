package trace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/internal/trace"
	"pgregory.net/rapid"
)

// event is a line of a trace, decoded.
type event struct {
	Phase   string `json:"ph"`
	Process int    `json:"pid"`
	Thread  int    `json:"tid"`
	Name    string
	Ts, Dur json.Number
	Args    map[string]any
}

func decode(t interface{ Fatalf(string, ...any) }, text []byte) []event {
	var file struct {
		DisplayTimeUnit string
		TraceEvents     []event
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || file.DisplayTimeUnit != "ns" {
		t.Fatalf("not one trace: %v, %s", err, text)
	}
	return file.TraceEvents
}

// TestGolden is the whole form, as Perfetto reads it.
func TestGolden(t *testing.T) {
	var out bytes.Buffer
	w := trace.New(&out)
	w.Process(1, "rank 0", 1)
	w.Track(trace.Track{Process: 1, Thread: 2}, "in")
	w.Slice(trace.Track{Process: 1, Thread: 2}, "recv", 1500, 12, trace.Arg{Name: "bytes",
		Number: 96},
		trace.Arg{Name: "op", Text: "4 recv wq[c1.0 h2:4]@s0 <-2/0 t1"})
	w.Slice(trace.Track{Process: 1, Thread: 2}, "zero", 1512, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want := `{"displayTimeUnit":"ns","traceEvents":[
{"ph":"M","pid":1,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"M","pid":1,"name":"process_sort_index","args":{"sort_index":1}},
{"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"in"}},
{"ph":"M","pid":1,"tid":2,"name":"thread_sort_index","args":{"sort_index":2}},
{"ph":"X","pid":1,"tid":2,"ts":1.500,"dur":0.012,"name":"recv","args":{"bytes":96,` +
		`"op":"4 recv wq[c1.0 h2:4]@s0 <-2/0 t1"}},
{"ph":"X","pid":1,"tid":2,"ts":1.512,"dur":0.000,"name":"zero","args":{}}
]}
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	decode(t, out.Bytes())
}

func TestEmptyTrace(t *testing.T) {
	var out bytes.Buffer
	if err := trace.New(&out).Close(); err != nil || len(decode(t, out.Bytes())) != 0 {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestAnyTextIsValidJSON: names and texts of any characters come back as they were, but for what
// is not UTF-8; times lose nothing.
func TestAnyTextIsValidJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, key, text := rapid.String().Draw(t, "name"), rapid.String().Draw(t, "key"),
			rapid.String().Draw(t, "text")+"."
		begin := rapid.Int64Range(-1<<53, 1<<53).Draw(t, "begin")
		took := rapid.Int64Range(0, 1<<53).Draw(t, "took")
		var out bytes.Buffer
		w := trace.New(&out)
		w.Process(3, name, 0)
		w.Slice(trace.Track{Process: 3, Thread: 1}, name, begin, took, trace.Arg{Name: key,
			Text: text})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got := decode(t, out.Bytes())
		last := got[len(got)-1]
		if got[0].Args["name"] != name || last.Name != name || last.Args[key] != text {
			t.Fatalf("%q, %q: %q came back in %s", name, key, text, out.String())
		}
		for what, x := range map[json.Number]int64{last.Ts: begin, last.Dur: took} {
			f, err := what.Float64()
			if err != nil || math.Abs(f*1000-float64(x)) > math.Max(0.5,
				math.Abs(float64(x))*1e-15) {
				t.Fatalf("%d ns are written %s us", x, what)
			}
			if whole, rest, _ := strings.Cut(string(what), "."); len(rest) != 3 || whole == "-" {
				t.Fatalf("%d ns are written %s", x, what)
			}
		}
	})
}

// TestSameCallsSameBytes also holds that a slice is on its way long before Close.
func TestSameCallsSameBytes(t *testing.T) {
	write := func(out io.Writer) *trace.Writer {
		w := trace.New(out)
		for i := range int64(5000) {
			w.Slice(trace.Track{Process: 1, Thread: int(i%7) + 1}, fmt.Sprint("slice ", i), i, 1,
				trace.Arg{Name: "n", Number: i})
		}
		return w
	}
	var a, b bytes.Buffer
	w := write(&a)
	if a.Len() < 200_000 {
		t.Errorf("%d bytes are out before Close: a long trace would fill memory", a.Len())
	}
	if err := errors.Join(w.Close(), w.Close(), write(&b).Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two traces of the same calls differ")
	}
	w.Track(trace.Track{Process: 9, Thread: 9}, "late")
	if err := w.Close(); err == nil || a.Len() != b.Len() {
		t.Errorf("written to after Close: %v", err)
	}
}

func TestOverlapIsRefused(t *testing.T) {
	a, b := trace.Track{Process: 1, Thread: 1}, trace.Track{Process: 1, Thread: 2}
	for name, c := range map[string]struct {
		at          trace.Track
		begin, took int64
		ok          bool
	}{
		"touches":         {a, 30, 5, true},
		"a gap":           {a, 40, 0, true},
		"another track":   {b, 15, 9, true},
		"inside":          {a, 15, 1, false},
		"before":          {a, 0, 10, false},
		"across the end":  {a, 29, 9, false},
		"negative length": {b, 5, -1, false},
	} {
		var out bytes.Buffer
		w := trace.New(&out)
		w.Slice(a, "first", 10, 20)
		w.Slice(c.at, name, c.begin, c.took)
		if err := w.Close(); (err == nil) != c.ok || (!c.ok && !errors.Is(err, trace.ErrOverlap)) {
			t.Errorf("%s: %v", name, err)
		}
		if wrote := strings.Contains(out.String(), name); wrote != c.ok {
			t.Errorf("%s: written is %v: %s", name, wrote, out.String())
		}
		decode(t, out.Bytes())
	}
}

// broken takes so many bytes.
type broken struct{ left int }

func (b *broken) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func TestBrokenWriter(t *testing.T) {
	for _, room := range []int{0, 10, 1 << 16, 1 << 17} {
		w := trace.New(&broken{room})
		for i := range int64(5000) {
			w.Slice(trace.Track{Process: 1, Thread: 1}, "slice", i, 1)
		}
		for range 2 {
			if err := w.Close(); !errors.Is(err, io.ErrShortWrite) {
				t.Errorf("%d bytes of room: %v", room, err)
			}
		}
	}
}
