package ringbus

import (
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"pgregory.net/rapid"
)

// drawSpec draws any problem for any scheme, with all the choices that the scheme has.
func drawSpec(t *rapid.T) plan.Spec {
	c := rapid.IntRange(1, 8).Draw(t, "C")
	m := mesh.Mesh{
		Head: rapid.IntRange(1, 3).Draw(t, "H"), Ring: c,
		Placement: mesh.Placement(rapid.IntRange(0, 1).Draw(t, "placement")),
	}
	s := rapid.IntRange(1, 60).Draw(t, "S")
	scheme := rapid.SampledFrom(Schemes()).Draw(t, "scheme")
	var r Ring
	if strings.Contains("ring passq", scheme.Name) {
		var divisors []int
		for w := 1; w <= c; w++ {
			if c%w == 0 {
				divisors = append(divisors, w)
			}
		}
		r = Ring{
			Inner:  rapid.SampledFrom(divisors).Draw(t, "inner"),
			Lanes:  rapid.IntRange(1, 2).Draw(t, "lanes"),
			DKV:    rapid.SampledFrom([]Window{Fold, Local}).Draw(t, "window"),
			Rotate: rapid.SampledFrom([]Rotation{RotateKV, RotateQ}).Draw(t, "rotate"),
		}
	}
	kv := rapid.IntRange(1, 3).Draw(t, "kv")
	q := kv * rapid.IntRange((m.Head+kv-1)/kv, 4).Draw(t, "group")
	opt := plan.Options{
		KVSlots:   rapid.IntRange(2, 4).Draw(t, "kv slots"),
		DKVSlots:  rapid.IntRange(2, 3).Draw(t, "dkv slots"),
		Partials:  rapid.IntRange(1, 3).Draw(t, "partials"),
		NarrowDKV: rapid.Bool().Draw(t, "narrow"),
	}
	axis := scheme.New(r)
	if k, ok := axis.(plan.Keeper); ok && k.KeepsDKV() {
		opt.NarrowDKV = false
	}
	if m.Head > 1 {
		opt.HeadChunks = rapid.IntRange(1, q/m.Head).Draw(t, "head chunks")
	}
	return plan.Spec{
		Shape: plan.Shape{
			QTokens: s, KTokens: s, QHeads: q, KHeads: kv, Dim: 8, VDim: 4, ElemBytes: 4,
			AccBytes: 4, Scale: 1, Mask: drawMask(t, s), Sink: rapid.Bool().Draw(t, "sink"),
		},
		Mesh:    m,
		Layout:  rapid.SampledFrom([]mesh.Layout{mesh.Zigzag, mesh.Contiguous}).Draw(t, "layout"),
		Options: opt, Ring: axis, Heads: headshuffle.AllToAll{},
	}
}

// drawMask draws a mask over s tokens: whole, a window, a few documents, or next to nothing.
func drawMask(t *rapid.T, s int) attn.Mask {
	masks := []attn.Mask{
		attn.Full(s, s), attn.Causal(s, s), {},
		{{Q0: s / 2, Q1: s, K1: s / 2, Lo: -attn.Unbounded, Hi: attn.Unbounded}},
		{{Q1: s, K1: s, Lo: -3, Hi: 1}}, {{Q1: s, K1: s, Lo: 0, Hi: 0}},
	}
	var docs attn.Mask
	for at := 0; at < s; {
		end := min(s, at+rapid.IntRange(1, s).Draw(t, "document"))
		docs = append(docs, attn.Slice{Q0: at, Q1: end, K0: at, K1: end, Lo: -attn.Unbounded})
		at = end
	}
	return rapid.SampledFrom(append(masks, docs)).Draw(t, "mask")
}

// TestEverySchemeIsSound: any scheme with any of its choices, any mask: Verify proves the plan.
func TestEverySchemeIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := plan.New(drawSpec(t))
		if err != nil {
			t.Fatal(err)
		}
		report, err := plan.Verify(p)
		if err == nil {
			err = report.Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
