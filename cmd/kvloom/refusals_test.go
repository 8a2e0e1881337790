package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what is said into testdata/refusals.txt")

// refusalFiles are files that the command lines name.
func refusalFiles() map[string]string {
	var lines strings.Builder
	for i := range 70_000 {
		fmt.Fprintf(&lines, "%d %d 0 1 full\n", i, i+1)
	}
	return map[string]string{
		"good.txt":       "0 16 0 16 causal\n",
		"overlap.txt":    "# both allow (4, 4)\n0 8 0 8 causal\n4 16 4 16 full\n",
		"outside.txt":    "0 8 0 32 full\n",
		"kind.txt":       "0 8 0 8 upper\n",
		"words.txt":      "0 8 0 8\n",
		"empty-band.txt": "0 8 0 8 band:3,1\n",
		"empty.txt":      "# nothing\n",
		"no-pair.txt":    "0 4 8 16 causal\n",
		"across.txt":     "0 4 8 16 full\n",
		"many.txt":       lines.String(),
		"long.txt":       "0 8 0 8 " + strings.Repeat("x", 200_000) + "\n",
		"uneven.yaml": "{nodes: 2, ranks_per_node: 2, flops: 1e12, local: {bytes_per_s: 1e9}, " +
			"remote: {bytes_per_s: 1e9}, ranks: {1: {speed: 1e-6}}}",
	}
}

// TestEveryRefusal runs each command of testdata/refusals.txt and compares all its words: exit 2,
// nothing on standard output, nothing run. With -args -rewrite the words are written there.
func TestEveryRefusal(t *testing.T) {
	path, err := filepath.Abs(filepath.Join("testdata", "refusals.txt"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for name, content := range refusalFiles() {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var got strings.Builder
	commands := 0
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "$ ")
		if !ok {
			if line == "\n" || strings.HasPrefix(line, "#") {
				got.WriteString(line)
			}
			continue
		}
		commands++
		var out, errs bytes.Buffer
		code := run(t.Context(), strings.Fields(command), streams{&out, &errs})
		if code != exitRequest || out.Len() > 0 {
			t.Errorf("%s: exit %d, %q", command, code, out.String())
		}
		words := strings.TrimPrefix(errs.String(), "kvloom: ")
		got.WriteString(line + words)
	}
	if commands < 100 {
		t.Errorf("%d commands are too few: is the file whole?", commands)
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	wanted := strings.Split(string(text), "\n")
	for i, line := range strings.Split(got.String(), "\n") {
		if i >= len(wanted) || line != wanted[i] {
			t.Fatalf("line %d is %q, want %q", i+1, line, append(wanted, "")[min(i, len(wanted))])
		}
	}
}
