package main

import (
	"io"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logLevels are the values of --log.
func logLevels() []string { return []string{"debug", "info", "warn", "error"} }

// newLog makes the logger of a run. With a level it writes to w at once; without one it keeps the
// last lines, and flush writes them when the run has failed.
func newLog(level string, w io.Writer) (log *zap.Logger, flush func()) {
	keep := &logTail{}
	var sink zapcore.WriteSyncer = keep
	if level == "" {
		level = "info"
	} else {
		sink = zapcore.Lock(zapcore.AddSync(w))
	}
	at, err := zapcore.ParseLevel(level)
	if err != nil {
		at = zapcore.InfoLevel // the request was checked against logLevels
	}
	encoder := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, sink, at)), func() { keep.writeTo(w) }
}

// logTail keeps the last lines of a log. zap writes one line a call.
type logTail struct {
	mu    sync.Mutex
	lines [][]byte
	next  int // the oldest line, once the tail is full
}

// tailLines bounds a tail.
const tailLines = 200

// Write keeps a copy of a line: zap uses its buffer again.
func (t *logTail) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := append([]byte(nil), line...)
	if len(t.lines) < tailLines {
		t.lines = append(t.lines, kept)
	} else {
		t.lines[t.next] = kept
		t.next = (t.next + 1) % tailLines
	}
	return len(line), nil
}

// Sync is zap's; there is nothing below to write through to.
func (t *logTail) Sync() error { return nil }

// writeTo writes the lines, oldest first.
func (t *logTail) writeTo(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.lines {
		_, _ = w.Write(t.lines[(t.next+i)%len(t.lines)]) // nobody is left to tell
	}
}
