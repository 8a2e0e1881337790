package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/mesh"
	"go.uber.org/goleak"
)

// keys lists the keys of a JSON value in the order of the text, as paths; a list counts as its
// first element.
func keys(t *testing.T, text []byte) []string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	var out []string
	var walk func(path string)
	walk = func(path string) {
		tok, err := d.Token()
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		switch tok {
		case json.Delim('{'):
			for d.More() {
				key, _ := d.Token()
				walk(strings.TrimPrefix(fmt.Sprintf("%s.%v", path, key), "."))
			}
			_, _ = d.Token()
			return
		case json.Delim('['):
			for d.More() {
				walk(path + "[]")
			}
			_, _ = d.Token()
			return
		}
		if !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	walk("")
	return out
}

// TestJSONShape holds the object's keys, in their order, against the file that users were promised.
func TestJSONShape(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, args := range map[string][]string{
		"keys_backward.txt": {"--backward", "--check"},
		"keys_forward.txt":  {},
		"keys_refused.txt":  {"--mesh", "0x4"},
		"keys_unusual.txt": strings.Fields("--backward --check --docs 0,4,9 --mesh 2x3 " +
			"--scheme passq --layout auto --softcap 3 --sink --head-chunks 2 --lanes 2 " +
			"--dtype bf16 --v-dim 3"),
	} {
		var out, errs bytes.Buffer
		line := append([]string{"attend", "--json", "--tokens", "9", "--dim", "4"}, args...)
		run(t.Context(), line, streams{&out, &errs})
		want, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(keys(t, out.Bytes()), "\n") + "\n"
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if errs.Len() > 0 || bytes.Count(out.Bytes(), []byte("\n")) != 1 {
			t.Errorf("%s: stderr %q, stdout %q", name, errs.String(), out.String())
		}
	}
}

func TestInterruptedBeforeTheStart(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"attend", "--tokens", "9", "--json"}, streams{&out, &errs})
	if code != exitInterrupted || !strings.Contains(out.String(), `"kind":"aborted"`) {
		t.Errorf("exit %d, %s", code, out.String())
	}
	out.Reset()
	code = run(ctx, []string{"attend", "--tokens", "9"}, streams{&out, &errs})
	if code != exitInterrupted || out.Len() > 0 || errs.String() != "kvloom: interrupted\n" {
		t.Errorf("exit %d, %q, %q", code, out.String(), errs.String())
	}
}

func TestNumbersInJSON(t *testing.T) {
	text, err := json.Marshal([]number{1.5, number(math.NaN()), number(math.Inf(-1)), 1e-12})
	if err != nil || string(text) != "[1.5,null,null,1e-12]" {
		t.Errorf("%s, %v", text, err)
	}
}

func TestDescribe(t *testing.T) {
	lost := &kvloom.Error{Kind: kvloom.PeerLost, Rank: 3, Link: "2->3", Op: "op 4 recv"}
	for _, c := range []struct {
		err  error
		code int
		json string
	}{
		{lost, exitFailed, `"kind":"peer_lost","rank":3,"link":"2->3","op":"op 4 recv"`},
		{&kvloom.Error{Kind: kvloom.Timeout, Rank: -1}, exitFailed, `"kind":"timeout","rank":-1`},
		{errors.Join(lost, io.ErrClosedPipe), exitFailed,
			`"kind":"peer_lost","rank":3,"link":"2->3","op":"op 4 recv"`},
		{&interrupted{lost}, exitInterrupted,
			`"kind":"aborted","rank":3,"link":"2->3","op":"op 4 recv"`},
		{badValue("dim", "0", "use more"), exitRequest, `"kind":"config"`},
		{&checkError{"off"}, exitCheck, `"kind":"check"`},
		{&reported{&checkError{"off"}}, exitCheck, `"kind":"check"`},
		{io.ErrClosedPipe, exitFailed, `"kind":"device"`},
		{&unwritable{io.ErrClosedPipe}, exitFailed, `"kind":"config"`},
		{errors.Join(lost, &unwritable{io.ErrClosedPipe}), exitFailed,
			`"kind":"peer_lost","rank":3,"link":"2->3","op":"op 4 recv"`},
		{&advised{lost, time.Second}, exitFailed,
			`"kind":"peer_lost","rank":3,"link":"2->3","op":"op 4 recv"`},
	} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%v: exit %d, want %d", c.err, got, c.code)
		}
		f := describe(c.err)
		if f.Message != c.err.Error() {
			t.Errorf("%v: message %q", c.err, f.Message)
		}
		f.Message = ""
		var text bytes.Buffer
		if err := writeJSON(&text, &report{Error: f}); err != nil {
			t.Fatal(err)
		}
		want := `{"ok":false,"error":{` + strings.Replace(c.json, `,`, `,"message":"",`, 1) + "}}\n"
		if !strings.Contains(c.json, ",") {
			want = `{"ok":false,"error":{` + c.json + `,"message":""}}` + "\n"
		}
		if text.String() != want {
			t.Errorf("%v:\n got %s\nwant %s", c.err, text.String(), want)
		}
	}
	if exitCode(nil) != exitOK {
		t.Error("no error has an exit code")
	}
}

func TestAdvice(t *testing.T) {
	late := "\n  if the ranks are slow rather than stuck, raise --deadline, which is 2s"
	for _, c := range []struct {
		err  error
		want string
	}{
		{io.ErrClosedPipe, "io: read/write on closed pipe"},
		{errors.New("kvloom: rank 1 could not be replaced, open a new session: late"),
			"kvloom: rank 1 could not be replaced, run again with a longer --deadline: late"},
		{&kvloom.Error{Kind: kvloom.Timeout, Rank: 1},
			"kvloom: round 0 failed: timeout, rank 1" + late},
		{&kvloom.Error{Kind: kvloom.PeerLost, Rank: 1},
			"kvloom: round 0 failed: peer_lost, rank 1" + late},
		{&kvloom.Error{Kind: kvloom.Corrupt, Rank: 1}, "kvloom: round 0 failed: corrupt, rank 1"},
		{fmt.Errorf("close: device 1 has not left: %w", context.DeadlineExceeded),
			"close: device 1 has not left: context deadline exceeded" + late},
	} {
		e := &advised{c.err, 2 * time.Second}
		if e.Error() != c.want || !errors.Is(e, c.err) {
			t.Errorf("got\n%v\nwant\n%s", e, c.want)
		}
	}
}

// brokenPipe takes nothing.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBrokenOutput(t *testing.T) {
	for _, flag := range []string{"--json", "--backward"} {
		var errs bytes.Buffer
		code := run(t.Context(), []string{"attend", "--tokens", "4", flag},
			streams{brokenPipe{}, &errs})
		if code != exitFailed || !strings.Contains(errs.String(), "cannot be written") {
			t.Errorf("%s: exit %d, %q", flag, code, errs.String())
		}
	}
}

func TestTableOfManyRanks(t *testing.T) {
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"attend", "--tokens", "70", "--dim", "2", "--heads", "2",
		"--mesh", "1x70"}, streams{&out, &errs})
	if code != exitOK || !strings.Contains(out.String(), "\nand 6 more ranks\n") ||
		!strings.Contains(out.String(), "│ rank │ ") || // not widened
		!strings.Contains(out.String(), "0,63") || strings.Contains(out.String(), "0,64") {
		t.Errorf("exit %d, %s\n%s", code, errs.String(), out.String())
	}
}

// TestNarrowTable wants whole columns on terminals of any width, the more the wider.
func TestNarrowTable(t *testing.T) {
	r := &request{mesh: mesh.Mesh{Head: 1, Ring: 70}}
	x := &report{
		Tokens: 1 << 20, Flops: make([]int64, 70), PeakBytes: make([]int64, 70),
		ExposedSeconds: make([]number, 70), homeTokens: make([]int, 70),
		Bytes: &bytesJSON{
			A2AForward: make([]int64, 70), KVForward: make([]int64, 70),
			KVBackward: make([]int64, 70), DKV: make([]int64, 70), A2ABackward: make([]int64, 70),
		},
	}
	for i := range 70 {
		x.Flops[i], x.PeakBytes[i], x.Bytes.DKV[i] = 1e12, 1<<35, 1<<34
		x.ExposedSeconds[i], x.homeTokens[i] = 0.123, 1<<14
	}
	before := 0
	for _, c := range []struct{ width, columns int }{
		{10, 2}, {23, 2}, {30, 2}, {40, 3}, {50, 4}, {63, 5}, {70, 5}, {75, 6}, {79, 7}, {0, 7},
	} {
		page := rankTable(r, x, c.width)
		head := strings.Split(page, "\n")[1]
		shown := strings.Count(head, "│") - 1
		if shown != c.columns || !strings.Contains(page, "│ rank │ ") ||
			!strings.Contains(page, " work │") || !strings.HasSuffix(page, "\nand 6 more ranks\n") {
			t.Errorf("width %d: %d columns, want %d: %s", c.width, shown, c.columns, head)
		}
		widest := 0
		for line := range strings.SplitSeq(page, "\n") {
			widest = max(widest, utf8.RuneCountInString(line))
		}
		if c.width > 20 && widest > c.width || shown < before {
			t.Errorf("width %d: a line of %d columns, %d columns shown", c.width, widest, shown)
		}
		before = shown
	}
}

func TestScaled(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{bytesText(0), "0 B"}, {bytesText(1023), "1023 B"}, {bytesText(1024), "1.0 KiB"},
		{bytesText(3 << 40), "3.0 TiB"}, {flopsText(999), "999 FLOP"},
		{flopsText(134348800), "134.3 MFLOP"}, {bytesText(5 << 50), "5120.0 TiB"},
		{secondsText(0.0005), "0.5 ms"}, {secondsText(75.5), "75.50 s"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
