package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

// TestProgressEnds closes bars that are complete, empty, half done and over their total: none may
// keep the run from ending.
func TestProgressEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, shown := range []bool{true, false} {
		var out bytes.Buffer
		p := newProgress(shown, &out)
		for done := range int64(4) {
			s := p.stage(fmt.Sprint("stage ", done), 2)
			var all sync.WaitGroup
			for range done {
				all.Go(func() { s.add(1) })
			}
			all.Wait()
			if s.done.Load() != done || s.total.Load() != 2 {
				t.Errorf("%d of %d items, want %d of 2", s.done.Load(), s.total.Load(), done)
			}
			s.end()
		}
		p.stage("empty", 0).end()
		p.close()
	}
}

// TestTellStop wants the words once, at the signal, and not when there was none or it was before.
func TestTellStop(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, c := range []struct {
		quiet, before, during bool
		want                  int
	}{
		{false, false, true, 1}, {true, false, true, 0}, {false, false, false, 0},
		{false, true, false, 0},
	} {
		var out bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		if c.before {
			cancel()
		}
		listened := newProgress(false, &out).tellStop(ctx, c.quiet)
		if c.during {
			cancel()
		}
		listened()
		cancel()
		const words = "stopping; interrupt again to kill\n"
		if got := strings.Count(out.String(), words); got != c.want {
			t.Errorf("%+v: said %d times: %q", c, got, out.String())
		}
	}
}

func TestLogTail(t *testing.T) {
	var out bytes.Buffer
	log, flush := newLog("", &out)
	for i := range tailLines + 50 {
		log.Info("line", zap.Int("n", i))
	}
	log.Debug("not kept")
	if out.Len() > 0 {
		t.Fatal("a log that nobody asked for was written")
	}
	flush()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != tailLines || !strings.HasSuffix(lines[0], `{"n": 50}`) ||
		!strings.HasSuffix(lines[tailLines-1], fmt.Sprintf(`{"n": %d}`, tailLines+49)) {
		t.Errorf("%d lines, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
}

func TestLogLevels(t *testing.T) {
	for _, level := range logLevels() {
		var out bytes.Buffer
		log, flush := newLog(level, &out)
		log.Debug("debug")
		log.Info("info")
		log.Warn("warn")
		log.Error("error")
		flush()
		if got := strings.Count(out.String(), "\n"); got < 1 || got > 4 ||
			!strings.Contains(strings.SplitN(out.String(), "\n", 2)[0], level) {
			t.Errorf("level %s: %d lines\n%s", level, got, out.String())
		}
	}
}
