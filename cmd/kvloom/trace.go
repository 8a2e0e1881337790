package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/internal/trace"
	"github.com/kvloom/kvloom/mesh"
)

// traceFile is a timeline on its way to a file: a process for each rank, with a track for each of
// its streams, and one for the links, with a track for each ordered pair of ranks.
type traceFile struct {
	path  string
	file  *os.File
	to    *trace.Writer
	mesh  mesh.Mesh
	link  func(src, dst int) string // what kind of link it is
	begun map[trace.Track]bool
	over  map[trace.Track]int64 // when the last slice of a stream ended
}

// openTrace makes the file; an empty path is no trace, which takes events and does nothing. The
// caller closes it.
func openTrace(path string, r *request, link func(src, dst int) string) (*traceFile, error) {
	if path == "" {
		return nil, nil
	}
	if in, err := os.Stat(r.inPath); r.inPath != "" && err == nil {
		if at, err := os.Stat(path); err == nil && os.SameFile(in, at) {
			return nil, badValue("trace", path, "is the file of --in, which would be lost: use "+
				"another path")
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, badValue("trace", path, "no file can be made there (%v): use a folder that is "+
			"there and can be written to", errors.Unwrap(err))
	}
	return &traceFile{
		path: path, file: f, to: trace.New(f), mesh: r.mesh, link: link,
		begun: map[trace.Track]bool{}, over: map[trace.Track]int64{},
	}, nil
}

// event draws a piece of the timeline.
func (t *traceFile) event(e kvloom.TraceEvent) {
	if t == nil {
		return
	}
	begin, took := e.Begin.Nanoseconds(), (e.End - e.Begin).Nanoseconds()
	args := make([]trace.Arg, 0, 6)
	args = append(args, trace.Arg{Name: "op", Text: e.Op},
		trace.Arg{Name: "round", Number: int64(e.Round)},
		trace.Arg{Name: "pass", Text: e.Pass.String()})
	if e.Stream == "" {
		t.to.Slice(t.linkTrack(e.Rank, e.Peer), e.Name, begin, took, append(args,
			trace.Arg{Name: "bytes", Number: e.Bytes},
			trace.Arg{Name: "wait_ns", Number: (e.Begin - e.Asked).Nanoseconds()},
			trace.Arg{Name: "latency_ns", Number: (e.Over - e.End).Nanoseconds()})...)
		return
	}
	at := t.streamTrack(e.Rank, e.Stream)
	wait := begin - t.over[at]
	t.over[at] = begin + took
	t.to.Slice(at, e.Name, begin, took, append(args, trace.Arg{Name: "wait_ns", Number: wait})...)
}

// streamTrack is a stream of a rank; it and its process get their names when they are first used.
func (t *traceFile) streamTrack(rank int, stream string) trace.Track {
	at := trace.Track{Process: rank + 1}
	for i, name := range streamNames() {
		if name == stream {
			at.Thread = i + 1
		}
	}
	if process := (trace.Track{Process: at.Process}); !t.begun[process] {
		t.begun[process] = true
		c := t.mesh.Coord(rank)
		t.to.Process(at.Process, fmt.Sprintf("rank %d (h%d c%d)", rank, c.H, c.C), at.Process)
	}
	if !t.begun[at] {
		t.begun[at] = true
		t.to.Track(at, stream)
	}
	return at
}

func streamNames() [cudakern.NumStreams]string {
	return [cudakern.NumStreams]string{"compute", "in", "out"}
}

// linkTrack is the link of an ordered pair of ranks.
func (t *traceFile) linkTrack(src, dst int) trace.Track {
	n := t.mesh.Ranks()
	process := trace.Track{Process: n + 1}
	at := trace.Track{Process: n + 1, Thread: src*n + dst + 1}
	if !t.begun[process] {
		t.begun[process] = true
		t.to.Process(process.Process, "links", process.Process)
	}
	if !t.begun[at] {
		t.begun[at] = true
		t.to.Track(at, fmt.Sprintf("%d -> %d %s", src, dst, t.link(src, dst)))
	}
	return at
}

// close ends the trace; what was drawn until then is a trace that opens.
func (t *traceFile) close() error {
	if t == nil {
		return nil
	}
	if err := errors.Join(t.to.Close(), t.file.Close()); err != nil {
		return fmt.Errorf("the trace %s cannot be written: %w", show(t.path), err)
	}
	return nil
}
