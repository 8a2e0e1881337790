package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/internal/safetensors"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kvloom": main})
}

// TestScripts runs the binary as a user does. Besides testscript's own commands there are
//
//	exits CODE kvloom ARG...            the program ends with this code
//	json PATH VALUE                     a value of the JSON on stdout, such as check.pass true
//	json PATH = NAME, json PATH == NAME remembers a value, and compares with a remembered one
//	json PATH != NAME                   a value is another than the remembered one
//	tensors FILE NAME=DTYPE:AxBxC ...   writes N(0,1), as --seed 1 draws it; NAME=...:nan spoils one
//	timeline FILE RANKS [latency]       a trace file is whole; see scriptTimeline
//	digest FILE NAME PATH               a tensor's digest is the value in the JSON on stdout
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Values[remembered{}] = map[string]string{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": scriptExits, "json": scriptJSON, "tensors": scriptTensors,
			"digest": scriptDigest, "timeline": scriptTimeline,
		},
	})
}

// remembered is the key of a script's remembered values.
type remembered struct{}

func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: json PATH VALUE, json PATH = NAME, == NAME or != NAME")
	}
	got := lookUp(ts, args[0])
	names := ts.Value(remembered{}).(map[string]string)
	want := args[1]
	switch {
	case len(args) == 3 && args[1] == "=":
		names[args[2]] = got
		return
	case len(args) == 3 && args[1] == "==":
		want = names[args[2]]
	case len(args) == 3 && args[1] == "!=":
		if got == names[args[2]] {
			ts.Fatalf("%s is %s, as before", args[0], got)
		}
		return
	}
	if got != want {
		ts.Fatalf("%s is %s, want %s", args[0], got, want)
	}
}

// lookUp is a value of the JSON on stdout as text: words without quotes, others as they stand.
// Stdout must be one object on one line. An absent value is "absent".
func lookUp(ts *testscript.TestScript, path string) string {
	text := ts.ReadFile("stdout")
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		ts.Fatalf("stdout is not one line: %q", text)
	}
	raw := json.RawMessage(text)
	for key := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		var list []json.RawMessage
		i, err := strconv.Atoi(key)
		switch {
		case json.Unmarshal(raw, &object) == nil:
			raw = object[key]
		case err == nil && json.Unmarshal(raw, &list) == nil && i < len(list):
			raw = list[i]
		default:
			raw = nil
		}
		if raw == nil {
			return "absent"
		}
	}
	var word string
	if json.Unmarshal(raw, &word) == nil && string(raw) != "null" {
		return word
	}
	return string(raw)
}

func scriptTensors(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: tensors FILE NAME=DTYPE:AxBxC ...")
	}
	var fields []safetensors.Field
	for _, spec := range args[1:] {
		name, rest, _ := strings.Cut(spec, "=")
		parts := strings.Split(rest, ":")
		d, err := tensors.ParseDType(parts[0])
		ts.Check(err)
		var shape []int
		n := 1
		for size := range strings.SplitSeq(parts[1], "x") {
			x, err := strconv.Atoi(size)
			ts.Check(err)
			shape, n = append(shape, x), n*x
		}
		data := tensors.Draw[float64](1, name, n)
		if len(parts) > 2 {
			data[n/2] = math.NaN()
		}
		fields = append(fields, safetensors.NewFieldAs(name, d, shape, data))
	}
	ts.Check(safetensors.Write(ts.MkAbs(args[0]), fields, nil))
}

func scriptDigest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: digest FILE NAME PATH")
	}
	f, err := safetensors.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	d, err := f.DType(args[1])
	ts.Check(err)
	data, err := safetensors.Read[float64](f, args[1])
	ts.Check(err)
	if got, want := tensors.DigestAs(d, data), lookUp(ts, args[2]); got != want {
		ts.Fatalf("%s of %s has the digest %s, %s is %s", args[1], args[0], got, args[2], want)
	}
}

// TestInterrupt sends the signal of Ctrl-C to a run that would take days.
func TestInterrupt(t *testing.T) {
	cmd := exec.Command("kvloom", "attend", "--tokens", "64", "--rounds", "1M", "--log", "--json")
	var out strings.Builder
	cmd.Stdout = &out
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := ""
	for buf := make([]byte, 1024); !strings.Contains(seen, "ranks are ready"); {
		n, err := logs.Read(buf)
		seen += string(buf[:n])
		if err != nil {
			t.Fatalf("the run ended before its ranks were ready: %v\n%s", err, seen)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var rest [4096]byte
	for err == nil {
		_, err = logs.Read(rest[:])
	}
	_ = cmd.Wait() // its code is looked at below
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	var got struct {
		OK    *bool `json:"ok"`
		Error struct{ Kind string }
		Hash  string `json:"plan_hash"`
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.OK == nil || *got.OK ||
		got.Error.Kind != "aborted" || got.Hash == "" {
		t.Errorf("%v: %s", fmt.Sprint(err), out.String())
	}
}
