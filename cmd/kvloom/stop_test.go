package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestFirstInterrupt wants a word on what a second interrupt would do, where words are wanted.
func TestFirstInterrupt(t *testing.T) {
	const words = "kvloom: stopping; interrupt again to kill\n"
	for _, quiet := range []bool{false, true} {
		args := []string{"attend", "--tokens", "64", "--rounds", "1M", "--log"}
		if quiet {
			args = append(args, "--quiet")
		}
		cmd := exec.Command("kvloom", args...)
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
		rest, err := io.ReadAll(logs)
		_ = cmd.Wait() // its code is looked at below
		if code := cmd.ProcessState.ExitCode(); err != nil || code != exitInterrupted {
			t.Errorf("exit code %d, %v", code, err)
		}
		all := seen + string(rest)
		if strings.Contains(all, words) == quiet || strings.Contains(seen, words) ||
			!strings.HasSuffix(all, "kvloom: interrupted\n") {
			t.Errorf("quiet %v: %s", quiet, all)
		}
	}
}
