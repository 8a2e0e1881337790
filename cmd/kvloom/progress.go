package main

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// refresh is how often a bar looks at its stage.
const refresh = 100 * time.Millisecond

// rankPasses is what the bar of the rounds counts: each pass of each rank.
const rankPasses = "rank passes"

// progress shows bars on a terminal, or nothing.
type progress struct {
	bars *mpb.Progress
	to   io.Writer
}

func newProgress(shown bool, w io.Writer) *progress {
	if !shown {
		return &progress{to: w}
	}
	return &progress{to: w, bars: mpb.New(mpb.WithOutput(w), mpb.WithRefreshRate(refresh),
		mpb.WithWidth(barColumns))}
}

const barColumns = 60

// tellStop says, when the user's first signal ends ctx, what a second one would do. The caller
// calls listened before anything else is said to the user.
func (p *progress) tellStop(ctx context.Context, quiet bool) (listened func()) {
	if quiet || ctx.Err() != nil {
		return func() {}
	}
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		const words = "kvloom: stopping; interrupt again to kill\n"
		if p.bars != nil {
			if _, err := io.WriteString(p.bars, words); err == nil { // above the bars
				return
			}
		}
		_, _ = io.WriteString(p.to, words) // nobody is left to tell
	})
	return func() {
		if !stop() {
			<-said
		}
	}
}

// close leaves the bars as they are and gives the terminal back.
func (p *progress) close() {
	if p.bars != nil {
		p.bars.Wait()
	}
}

// stage is a part of a run that counts its items. Adding to it costs an atomic and never waits.
type stage struct {
	done, total atomic.Int64
	bar         *mpb.Bar
	stop        chan struct{}
	watch       sync.WaitGroup
}

// stage begins a part of so many items; the caller ends it.
func (p *progress) stage(name string, items int64) *stage {
	s := &stage{stop: make(chan struct{})}
	s.expect(items)
	if p.bars == nil {
		return s
	}
	s.bar = p.bars.AddBar(0, // completed by end, not by its count: totals grow

		mpb.PrependDecorators(decor.Name(name, decor.WCSyncWidthR)),
		mpb.AppendDecorators(decor.CountersNoUnit("%d/%d", decor.WCSyncWidth),
			decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace)))
	s.show()
	s.watch.Go(func() {
		tick := time.NewTicker(refresh)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.show()
			case <-s.stop:
				return
			}
		}
	})
	return s
}

// expect adds n items to what the stage has to do.
func (s *stage) expect(n int64) { s.total.Add(n) }

// add counts n items as done.
func (s *stage) add(n int64) { s.done.Add(n) }

func (s *stage) show() {
	s.bar.SetTotal(s.total.Load(), false)
	s.bar.SetCurrent(s.done.Load())
}

// end finishes the stage's bar where it stands.
func (s *stage) end() {
	close(s.stop)
	s.watch.Wait()
	if s.bar == nil {
		return
	}
	s.show()
	if s.done.Load() >= s.total.Load() {
		s.bar.SetTotal(-1, true)
	}
	s.bar.Abort(false) // does nothing to a bar that is complete
}
