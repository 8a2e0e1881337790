package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"pgregory.net/rapid"
)

// drawPlan is a random small problem on the command line, with any mask, layout and scheme.
func drawPlan(t *rapid.T) string {
	pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	num := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	line := fmt.Sprintf("--heads 4 --dim 4 --mesh %dx%d", num("head", 1, 2), num("ring", 1, 5))
	line += " --mask " + pick("mask", "causal", "full", fmt.Sprintf("window:%d,%d",
		num("left", 0, 30), num("right", -1, 5)), fmt.Sprintf("prefix:%d", num("prefix", 0, 40)),
		fmt.Sprintf("block-causal:%d", num("block", 1, 20)))
	layouts := []string{"zigzag", "contiguous", "balanced",
		fmt.Sprintf("striped:%d", num("stripe", 1, 9))}
	if rapid.Bool().Draw(t, "documents") {
		starts, at := "0", 0
		for range num("count", 1, 5) {
			at += num("length", 0, 40)
			starts += fmt.Sprintf(",%d", at)
		}
		line += fmt.Sprintf(" --docs %s,%d", starts, at+1)
		layouts = append(layouts, "doc-zigzag", "whole-doc")
	} else {
		line += fmt.Sprintf(" --tokens %d", num("tokens", 1, 150))
	}
	line += " --layout " + pick("layout", layouts...)
	scheme := pick("scheme", "ring", "allgather", "halo", "passq")
	line += " --scheme " + scheme
	if scheme == "ring" || scheme == "passq" {
		line += " --lanes " + pick("lanes", "1", "2")
	}
	return line
}

// TestGridIsTheMask: a cell has steps exactly where the mask allows a pair, pairs add up to the
// mask's, rows and columns part the tokens, and putting neighbours together loses nothing.
func TestGridIsTheMask(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		line := drawPlan(rt)
		r, err := parse(t, line)
		if err != nil {
			rt.Fatalf("%s: %v", line, err)
		}
		g, err := newGrid(&planRequest{r})
		if err != nil {
			rt.Fatalf("%s: %v", line, err)
		}
		checkGrid(rt, line, r, g)
		checkGrid(rt, line, r, g.mergedBy(3))
	})
}

func checkGrid(t *rapid.T, line string, r *request, g *grid) {
	for _, chunks := range [][]chunk{g.rows, g.cols} {
		at := 0
		for _, c := range chunks {
			if c.lo != at || c.hi <= c.lo || len(c.shards) == 0 || len(c.ranks) == 0 {
				t.Fatalf("%s: chunk %+v after %d", line, c, at)
			}
			at = c.hi
		}
		if at != r.tokens {
			t.Fatalf("%s: chunks end at %d of %d", line, at, r.tokens)
		}
	}
	sum := int64(0)
	for i := range g.rows {
		for k := range g.cols {
			c := g.cells[i*len(g.cols)+k]
			if want := r.mask.Pairs(g.rows[i].set(), g.cols[k].set()); c.pairs != want ||
				c.none != (want == 0) {
				t.Fatalf("%s: cell %+v of %s x %s, of %d pairs", line, c, g.rows[i].tokens(),
					g.cols[k].tokens(), want)
			}
			if !c.none && (c.first < 0 || c.last < c.first || c.last >= r.mesh.Ring) {
				t.Fatalf("%s: steps %d to %d of a ring of %d", line, c.first, c.last, r.mesh.Ring)
			}
			sum += c.pairs
		}
	}
	if want := r.mask.TotalPairs(); sum != want {
		t.Fatalf("%s: %d pairs in the grid, %d in the mask", line, sum, want)
	}
}

// TestTimelineHasAllWork: the blocks that come by have all FLOPs of the rank, in any scheme and
// with heads in chunks.
func TestTimelineHasAllWork(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		line := drawPlan(rt)
		if strings.Contains(line, "--mesh 2x") && rapid.Bool().Draw(rt, "chunks") {
			line += " --head-chunks 2"
		}
		r, err := parse(t, line)
		if err != nil {
			rt.Fatalf("%s: %v", line, err)
		}
		p := &planRequest{r}
		p.backward = true
		ranks, _, err := p.survey()
		if err != nil {
			rt.Fatal(err)
		}
		for rank := range ranks {
			sum := int64(0)
			for _, pass := range p.passes() {
				prog, err := p.plan.Program(pass, rank)
				if err != nil {
					rt.Fatal(err)
				}
				for _, v := range newTimeline(p.plan.Header(), prog).blocks {
					sum += v.flops
				}
			}
			if sum != ranks[rank].Flops {
				rt.Fatalf("%s: rank %d has %d FLOP in its timeline, %d in all", line, rank, sum,
					ranks[rank].Flops)
			}
		}
	})
}

func TestMaskPage(t *testing.T) {
	for _, c := range []struct {
		mask   attn.Mask
		tokens int
		want   string
	}{
		{attn.Causal(4, 4), 4, "1 token a tile; of all pairs 62.5% are allowed\n  ██\n  ████\n" +
			"  ██████\n  ████████\n"},
		{attn.Window(3, 3, 0, 0), 3, "of all pairs 33.3% are allowed\n  ██\n    ██\n      ██\n"},
		{attn.Mask{}, 2, "of all pairs 0% are allowed\n  \n  \n"},
	} {
		if got := maskPage(c.mask, c.tokens); !strings.HasSuffix(got, c.want) {
			t.Errorf("%v:\n%s", c.mask, got)
		}
	}
	wide := maskPage(attn.Causal(96, 96), 96)
	if lines := strings.Split(wide, "\n"); len(lines) != maskSide+2 ||
		!strings.Contains(lines[0], "3 tokens a tile") || lines[1] != "  ▒▒" ||
		lines[maskSide] != "  "+strings.Repeat("█", 2*maskSide-2)+"▒▒" {
		t.Error(wide)
	}
}

// TestMaskPageIsToScale: where the tiles do not divide the tokens all but the last have as many,
// and the page says how many the last one has.
func TestMaskPageIsToScale(t *testing.T) {
	for _, c := range []struct {
		tokens, lines int
		each          string
	}{
		{33, 17, "2 tokens a tile, 1 in the last; "}, {48, 24, "2 tokens a tile; "},
		{64, 32, "2 tokens a tile; "}, {97, 25, "4 tokens a tile, 1 in the last; "},
	} {
		lines := strings.Split(maskPage(attn.Full(c.tokens, c.tokens), c.tokens), "\n")
		if len(lines) != c.lines+2 || !strings.Contains(lines[0], c.each) ||
			lines[c.lines] != "  "+strings.Repeat("██", c.lines) {
			t.Errorf("%d tokens: %d tiles down, %q", c.tokens, len(lines)-2, lines[0])
		}
	}
	// Documents of 12 and 28 tokens are 6 and 14 tiles of 2.
	mask, err := attn.Documents([]int{0, 12, 12, 40}, func(n int) attn.Mask {
		return attn.Full(n, n)
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(maskPage(mask, 40), "\n")[1:]
	for i, line := range lines[:20] {
		want := strings.Repeat("██", 6)
		if i >= 6 {
			want = strings.Repeat("  ", 6) + strings.Repeat("██", 14)
		}
		if line != "  "+want {
			t.Errorf("line %d is %q, want %q", i, line, want)
		}
	}
}

// TestShade: nothing is empty, everything full, and more is never paler.
func TestShade(t *testing.T) {
	got := ""
	for pairs := range int64(10) {
		got += shade(pairs, 9)
	}
	if got != " ░░░▒▒▒▓▓█" {
		t.Errorf("0 to 9 of 9 pairs: %q", got)
	}
	before := 0.0
	for pairs := int64(1); pairs <= 9; pairs++ {
		x := svgShade(pairs, 9)
		if x <= before || x > 1 {
			t.Errorf("%d of 9 pairs have the opacity %v after %v", pairs, x, before)
		}
		before = x
	}
	if before != 1 {
		t.Errorf("a whole tile has the opacity %v", before)
	}
}
