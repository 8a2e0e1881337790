package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// traceEvent is a line of a trace file, as a reader of the form sees it.
type traceEvent struct {
	Phase   string      `json:"ph"`
	Process int         `json:"pid"`
	Thread  int         `json:"tid"`
	Ts      json.Number `json:"ts"`
	Dur     json.Number `json:"dur"`
	Name    string      `json:"name"`
	Args    struct {
		Name      string `json:"name"`
		SortIndex *int   `json:"sort_index"`
		Op        string `json:"op"`
		Round     *int   `json:"round"`
		Pass      string `json:"pass"`
		Bytes     *int64 `json:"bytes"`
		Wait      *int64 `json:"wait_ns"`
		Latency   *int64 `json:"latency_ns"`
	} `json:"args"`
}

// scriptTimeline is the command timeline FILE RANKS [latency]: the file is a trace of so many
// ranks, whose slices do not overlap on any track; every op and every block says what it is, every
// block how large. With latency some block takes longer to come than it holds its link.
func scriptTimeline(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: timeline FILE RANKS [latency]")
	}
	ranks, err := strconv.Atoi(args[1])
	ts.Check(err)
	var file struct {
		DisplayTimeUnit string       `json:"displayTimeUnit"`
		TraceEvents     []traceEvent `json:"traceEvents"`
	}
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	d.DisallowUnknownFields()
	ts.Check(d.Decode(&file))
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		ts.Fatalf("more than one value: %v", err)
	}
	names := map[[2]int]string{}
	free := map[[2]int]int64{}
	ops, blocks, late := map[int]int{}, 0, false
	for _, e := range file.TraceEvents {
		at := [2]int{e.Process, e.Thread}
		if e.Phase == "M" {
			if strings.HasSuffix(e.Name, "_name") {
				names[at] = e.Args.Name
			}
			continue
		}
		begin, took := nanos(ts, e.Ts), nanos(ts, e.Dur)
		a := &e.Args
		switch {
		case e.Phase != "X" || names[at] == "" || names[[2]int{e.Process, 0}] == "":
			ts.Fatalf("a slice of an unnamed track: %+v", e)
		case begin < free[at] || took < 0:
			ts.Fatalf("%s is busy until %d ns: %+v", names[at], free[at], e)
		case e.Name == "" || a.Op == "" || a.Round == nil || a.Pass == "" || a.Wait == nil ||
			*a.Wait < 0:
			ts.Fatalf("a slice does not say what it is: %+v", e)
		}
		free[at] = begin + took
		if names[[2]int{e.Process, 0}] != "links" {
			ops[e.Process-1]++
			continue
		}
		blocks++
		if a.Bytes == nil || *a.Bytes < 1 || a.Latency == nil || *a.Latency < 0 {
			ts.Fatalf("a block without bytes or latency: %+v", e)
		}
		late = late || *a.Latency > 0
	}
	if len(ops) != ranks || (blocks > 0) != (ranks > 1) || late != (len(args) > 2) {
		ts.Fatalf("%d ranks, %d blocks, late: %v", len(ops), blocks, late)
	}
	for r := range ranks {
		name := names[[2]int{r + 1, 0}]
		if want := "rank " + strconv.Itoa(r) + " (h"; !strings.HasPrefix(name, want) {
			ts.Fatalf("process %d is named %q", r+1, name)
		}
	}
}

// nanos reads microseconds with three decimals.
func nanos(ts *testscript.TestScript, x json.Number) int64 {
	whole, rest, ok := strings.Cut(string(x), ".")
	n, err := strconv.ParseInt(whole+rest, 10, 64)
	if !ok || len(rest) != 3 || err != nil {
		ts.Fatalf("%q is no time of three decimals", x)
	}
	return n
}

// simJSON runs sim and decodes what it prints.
func simJSON(t *testing.T, want int, args ...string) *simReport {
	t.Helper()
	var out, errs bytes.Buffer
	line := append([]string{"sim", "--json"}, args...)
	if code := run(t.Context(), line, streams{&out, &errs}); code != want {
		t.Fatalf("%v: exit %d, %s%s", args, code, out.String(), errs.String())
	}
	var x simReport
	if err := json.Unmarshal(out.Bytes(), &x); err != nil {
		t.Fatal(err)
	}
	return &x
}

func TestSimJSONShape(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out, errs bytes.Buffer
	line := strings.Fields("sim --json --tokens 9 --dim 4 --compute --check --backward " +
		"--replay 1 --trace " + filepath.Join(t.TempDir(), "t.json"))
	run(t.Context(), line, streams{&out, &errs})
	want, err := os.ReadFile(filepath.Join("testdata", "keys_sim.txt"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(keys(t, out.Bytes()), "\n") + "\n"
	if diff := cmp.Diff(string(want), got); diff != "" || errs.Len() > 0 {
		t.Errorf("(-want +got):\n%s%s", diff, errs.String())
	}
}

// TestSimDoubleRing: one ring step's compute is a millisecond, an inner hop 0.2, an outer hop 3.
// The double ring hides the slow links behind its windows, the single ring pays for them.
func TestSimDoubleRing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.yaml")
	// A step: 4*64 FLOP x 4096^2 pairs x 8 heads. A KV hop: 4096 tokens x 8 heads x 128 x 4 bytes.
	text := "{nodes: 4, ranks_per_node: 4, flops: 34.359738368e12,\n" +
		" local: {bytes_per_s: 83.88608e9}, remote: {bytes_per_s: 5.592405333e9}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sim := func(args string) (steps, ideal float64) {
		x := simJSON(t, exitOK, strings.Fields("--tokens 64K --heads 8 --dim 64 --mask full "+
			"--mesh 1x16 --topology "+file+" "+args)...)
		return float64(x.VirtualSeconds) * 1e3, float64(x.IdealSeconds) * 1e3
	}
	double, ideal := sim("--inner 4")
	single, same := sim("")
	t.Logf("double ring %.2f steps, single ring %.2f, ideal %.2f", double, single, ideal)
	if ideal < 15.99 || ideal > 16.01 || ideal != same {
		t.Errorf("ideal %.4f and %.4f steps, want 16", ideal, same)
	}
	if double > 1.03*16 || double < ideal {
		t.Errorf("the double ring takes %.3f steps, want 16 to %.3f", double, 1.03*16)
	}
	if single < 44 || single > 48 {
		t.Errorf("the single ring takes %.2f steps, want about 46", single)
	}
}

// TestSimAgreesWithCost: two readers of one plan that share no code but the prices, actors in
// virtual time and the reckoning of plan cost, come to the same seconds. Actors write letters
// besides, which take less than a thirtieth of these runs.
func TestSimAgreesWithCost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.yaml")
	text := "{nodes: 2, ranks_per_node: 4, flops: 4e13, memory: 3e12,\n" +
		" local: {bytes_per_s: 4e11, latency: 2us}, remote: {bytes_per_s: 5e10, latency: 5us}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, problem := range []string{
		"--tokens 16K --mesh 2x4", "--tokens 16K --mesh 1x8 --inner 4", "--tokens 64K --mesh 1x8",
		"--tokens 16K --mesh 1x8 --lanes 2", "--tokens 16K --mesh 4x2 --placement context-first",
	} {
		args := strings.Fields(problem + " --backward --topology " + file)
		var out, errs bytes.Buffer
		line := append([]string{"plan", "cost", "--json"}, args...)
		code := run(t.Context(), line, streams{&out, &errs})
		var cost struct {
			Seconds        float64
			ComputeSeconds float64 `json:"compute_seconds"`
		}
		if err := json.Unmarshal(out.Bytes(), &cost); err != nil || code != exitOK {
			t.Fatalf("%s: exit %d, %v, %s", problem, code, err, errs.String())
		}
		x := simJSON(t, exitOK, args...)
		if ratio := float64(x.VirtualSeconds) / cost.Seconds; ratio < 0.999 || ratio > 1.03 {
			t.Errorf("%s: sim %.9f s, cost %.9f s: %.4f times", problem, float64(x.VirtualSeconds),
				cost.Seconds, ratio)
		}
		if math.Abs(float64(x.IdealSeconds)-cost.ComputeSeconds) > 1e-7 { // rounded by op
			t.Errorf("%s: sim's ideal is %.9f s, cost's arithmetic %.9f s", problem,
				float64(x.IdealSeconds), cost.ComputeSeconds)
		}
	}
}

// TestSimStops: an interrupted run ends in order and says so, with what it knows.
func TestSimStops(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	trace := filepath.Join(t.TempDir(), "t.json")
	for _, more := range [][]string{nil, {"--json"}, {"--json", "--compute"}} {
		out.Reset()
		line := append([]string{"sim", "--tokens", "9", "--mesh", "1x2", "--trace", trace}, more...)
		code := run(ctx, line, streams{&out, &errs})
		if code != exitInterrupted {
			t.Errorf("%v: exit %d, %s%s", more, code, out.String(), errs.String())
		}
		if more != nil && !strings.Contains(out.String(), `"kind":"aborted"`) {
			t.Errorf("%v: %s", more, out.String())
		}
	}
}

func TestTimeText(t *testing.T) {
	for want, x := range map[string]number{
		"0 ns": 0, "8 ns": 8e-9, "999 ns": 999e-9, "1 us": 0.9999e-6, "2.5 us": 2.5e-6,
		"77 ms": 0.077, "77.9 ms": 0.07791, "1.5 s": 1.5, "4321 s": 4321,
	} {
		if got := timeText(x); got != want {
			t.Errorf("%v is %q, want %q", float64(x), got, want)
		}
	}
}

// TestSimBrokenOutput: a report that cannot be written is a failure.
func TestSimBrokenOutput(t *testing.T) {
	for _, flag := range []string{"--json", "--quiet=false"} {
		var errs bytes.Buffer
		line := []string{"sim", "--tokens", "4", flag}
		code := run(t.Context(), line, streams{brokenPipe{}, &errs})
		if code != exitFailed || !strings.Contains(errs.String(), "cannot be written") {
			t.Errorf("%s: exit %d, %q", flag, code, errs.String())
		}
	}
}
