package ringbus_test

import (
	"fmt"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// rings are the ways round a ring of degree c: every inner window, both ways of dKV, one or two
// lanes.
func rings(c int) []ringbus.Ring {
	var out []ringbus.Ring
	for w := 1; w <= c; w++ {
		if c%w != 0 {
			continue
		}
		for lanes := 1; lanes <= 2; lanes++ {
			for _, dkv := range []ringbus.Window{ringbus.Fold, ringbus.Local} {
				out = append(out, ringbus.Ring{Inner: w, DKV: dkv, Lanes: lanes})
			}
		}
	}
	return out
}

// TestEveryWindowIsSound: for all w dividing C, C up to 16, both placements, Verify proves
// coverage, homecoming and freedom from deadlock.
func TestEveryWindowIsSound(t *testing.T) {
	for c := 1; c <= 16; c++ {
		for i, r := range rings(c) {
			for _, layout := range []mesh.Layout{mesh.Zigzag, mesh.Contiguous} {
				for k := range 8 {
					h := 1 + k&1
					m := mesh.Mesh{Head: h, Ring: c, Placement: mesh.Placement(k >> 1 & 1)}
					tokens := []int{5, 4 * c}[k>>2]
					mask := attn.Causal(tokens, tokens)
					if (i+c)%3 == 0 {
						mask = attn.Full(tokens, tokens)
					}
					p, err := plan.New(plan.Spec{
						Shape: plan.Shape{QTokens: tokens, KTokens: tokens, QHeads: 4, KHeads: 2,
							Dim: 8, VDim: 8, ElemBytes: 4, AccBytes: 4, Scale: 1, Mask: mask},
						Mesh: m, Layout: layout, Ring: r, Heads: headshuffle.AllToAll{},
					})
					if err != nil {
						t.Fatal(err)
					}
					name := fmt.Sprintf("%dx%d %v %v S=%d", h, c, layout, r, tokens)
					report, err := plan.Verify(p)
					if err == nil {
						err = report.Err()
					}
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
		}
	}
}

// TestDoubleRingSends: C-1 KV sends a rank in either pass; dKV C folded, C + W local.
func TestDoubleRingSends(t *testing.T) {
	for c := 2; c <= 16; c++ {
		for _, r := range rings(c) {
			tokens := 4 * c
			p, err := plan.New(plan.Spec{
				Shape: plan.Shape{QTokens: tokens, KTokens: tokens, QHeads: 4, KHeads: 2, Dim: 8,
					VDim: 8, ElemBytes: 4, AccBytes: 4, Scale: 1, Mask: attn.Full(tokens, tokens)},
				Mesh: mesh.Mesh{Head: 1, Ring: c}, Ring: r, Heads: headshuffle.AllToAll{},
			})
			if err != nil {
				t.Fatal(err)
			}
			dkv := c
			if w := r.Inner; r.DKV == ringbus.Local && w < c && w > 1 {
				dkv = c + c/w
			}
			for rank := range c {
				var got [plan.NumClasses]int
				for _, pass := range p.Passes() {
					prog, err := p.Program(pass, rank)
					if err != nil {
						t.Fatal(err)
					}
					n := plan.Count(p.Header(), prog)
					for i := range got {
						got[i] += n.Sends[i]
					}
				}
				want := [plan.NumClasses]int{
					plan.KVForward: (c - 1) * r.Lanes, plan.KVBackward: (c - 1) * r.Lanes,
					plan.DKVHops: dkv * r.Lanes}
				if got != want {
					t.Errorf("C=%d %v rank %d sends %v, want %v", c, r, rank, got, want)
				}
			}
		}
	}
}
