package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom"
	"github.com/spf13/cobra"
)

// TestWords has command lines that are refused with exit 2, and a part of what is said.
func TestWords(t *testing.T) {
	for line, want := range map[string]string{
		"atend":                   "the command atend is unknown: did you mean attend?",
		"sm":                      "the command sm is unknown: use attend",
		"foo":                     "the command foo is unknown: use attend",
		"help foo":                "the command foo is unknown: use attend",
		"help atend":              "did you mean attend?",
		"help train foo":          "there is no help about foo",
		"help attend foo":         "attend takes flags only",
		"help plan shw":           "the command plan shw is unknown: did you mean show?",
		"completion foo":          "the shell foo is unknown: use bash, zsh, fish or powershell",
		"completion fsh":          "did you mean fish?",
		"completion bash foo":     "completion bash takes flags only, so foo has no meaning",
		"attend --tokns 4":        "did you mean --tokens?",
		"attend --tk 4":           "the flag --tk is unknown: see kvloom attend --help",
		"attend --json=0 --seed":  "--seed: needs a value",
		"sim foo":                 "sim takes flags only, so foo has no meaning: see kvloom sim",
		"attend --dim 4 --dim=5":  "--dim 5: was given before as 4",
		"attend --quiet --quiet":  "--quiet true: was given before as true",
		"attend --log --log=info": "--log info: was given before as info",
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), strings.Fields(line), streams{&out, &errs})
		if code != exitRequest || !strings.Contains(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%q: exit %d, %q, %q; want %q", line, code, errs.String(), out.String(), want)
		}
	}
	for _, line := range []string{
		"", "help", "help attend", "help plan show", "completion", "completion bash",
		"attend --help", "help help", "help completion zsh",
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), strings.Fields(line), streams{&out, &errs})
		if code != exitOK || errs.Len() > 0 || out.Len() == 0 {
			t.Errorf("%q: exit %d, %q", line, code, errs.String())
		}
	}
}

// TestCommandsThereNow: the words about which commands there are name all that work, and no other.
func TestCommandsThereNow(t *testing.T) {
	root := newRoot(streams{io.Discard, io.Discard})
	bench, _, err := root.Find([]string{"bench"})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		cmd   *cobra.Command
		words string
	}{{root, thereNow}, {bench, benchNow}} {
		for _, c := range x.cmd.Commands() {
			works := !strings.HasSuffix(c.Short, "(not there yet)") &&
				!slices.Contains([]string{"help", "completion"}, c.Name())
			if works != slices.Contains(strings.FieldsFunc(x.words, func(r rune) bool {
				return r == ' ' || r == ','
			}), c.Name()) {
				t.Errorf("%s works: %v; %q", c.CommandPath(), works, x.words)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"mesh", "mask", "tokens", "in", "heads", "kv-heads"}
	for word, want := range map[string]string{
		"mesg": "mesh", "msk": "mask", "mehs": "", "tokns": "tokens", "tkns": "", "i": "", "on": "",
		"heds": "heads", "kvheads": "kv-heads", "kvhead": "kv-heads", "headless": "", "": "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("%q is taken for %q, want %q", word, got, want)
		}
	}
}

func TestAsksJSON(t *testing.T) {
	for line, want := range map[string]bool{
		"": false, "--json": true, "--json=true": true, "--json=T": true, "--json=1": true,
		"--json=TRUE": true, "--json=True": true, "--json=yes": false, "--json=0": false,
		"--json=F": false, "--json --json=false": false, "--json=false --json": true,
		"--json=1 --json=f": false, "--json --json=perhaps": true, "-- --json": false,
		"--jsonl": false, "json": false, "--json -- --json=false": true,
	} {
		if got := asksJSON(strings.Fields(line)); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

// TestUnwritable: a file that cannot be written after all is no failure of a device.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	r := &request{tokens: 1, heads: 1, kvHeads: 1, dim: 1}
	r.outPath = filepath.Join(dir, "gone", "o.safetensors")
	err := saveOutputs(r, kvloom.Outputs[float32]{Out: []float32{1}, LSE: []float32{0}}, "")
	if err == nil {
		t.Fatal("a file was written into a folder that is not there")
	}
	f := describe(err)
	if exitCode(err) != exitFailed || f.Kind != kindConfig ||
		strings.Count(f.Message, "gone") != 1 || !strings.HasPrefix(f.Message, "--out ") {
		t.Errorf("exit %d, %+v", exitCode(err), f)
	}
}

// TestOutputTarget follows links to where the probe must be made.
func TestOutputTarget(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(dir, "there", "o.st"), filepath.Join(dir, "link")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if _, _, err := outputTarget(link); err == nil {
		t.Error("a link that leads nowhere is taken")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if at, info, err := outputTarget(link); at != file || info == nil || err != nil {
		t.Errorf("%s leads to %s (%v, %v), want %s", link, at, info, err, file)
	}
	absent := filepath.Join(dir, "absent")
	if at, info, err := outputTarget(absent); at != absent || info != nil || err != nil {
		t.Errorf("%s leads to %s (%v, %v)", absent, at, info, err)
	}
}
