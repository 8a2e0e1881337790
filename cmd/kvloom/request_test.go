package main

import (
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/choose"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"
)

func parse(t *testing.T, line string) (*request, error) {
	t.Helper()
	f := &attendFlags{}
	set := pflag.NewFlagSet("attend", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	f.bind(set)
	if err := set.Parse(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	return newRequest(f)
}

func TestRequests(t *testing.T) {
	usual := request{
		tokens: 2048, heads: 8, kvHeads: 8, dim: 64, vDim: 64, scale: 0.125, seed: 1,
		maskName: "causal", mask: attn.Causal(2048, 2048), layoutName: "zigzag",
		layout: mesh.Zigzag, scheme: "ring", mesh: mesh.Mesh{Head: 1, Ring: 1}, rounds: 1,
		usual: true,
	}
	with := func(change func(*request)) request {
		r := usual
		change(&r)
		return r
	}
	tokens := func(n int) func(r *request) {
		return func(r *request) { r.tokens, r.mask = n, attn.Causal(n, n) }
	}
	demo := with(func(r *request) {
		tokens(1024)(r)
		r.demo, r.kvHeads, r.mesh.Head, r.mesh.Ring = true, 2, 2, 4
		r.backward, r.check = true, checkAuto
	})
	for _, c := range []struct {
		line string
		want request
	}{
		{"", demo},
		{"--deadline 5s", demo},
		{"--seed 1", usual},
		{"--tokens 1K", with(tokens(1024))},
		{"--heads 6", with(func(r *request) { r.heads, r.kvHeads = 6, 6 })},
		{"--heads 6 --kv-heads 3", with(func(r *request) { r.heads, r.kvHeads = 6, 3 })},
		{"--dim 16", with(func(r *request) { r.dim, r.vDim, r.scale = 16, 16, 0.25 })},
		{"--v-dim 16", with(func(r *request) { r.vDim = 16 })},
		{"--dim 16 --scale -2.5e-1", with(func(r *request) {
			r.dim, r.vDim, r.scale = 16, 16, -0.25
		})},
		{"--mesh 4x5 --placement context-first", with(func(r *request) {
			r.mesh = mesh.Mesh{Head: 4, Ring: 5, Placement: mesh.ContextFirst}
		})},
		{"--layout contiguous --mask full", with(func(r *request) {
			r.layout, r.layoutName = mesh.Contiguous, "contiguous"
			r.maskName, r.mask = "full", attn.Full(2048, 2048)
		})},
		{"--dtype f64 --scale 1e300", with(func(r *request) {
			r.dtype, r.scale = tensors.F64, 1e300
		})},
		{"--dkv-wire f32", usual},
		{"--dkv-wire f64 --dtype f64", with(func(r *request) { r.dtype = tensors.F64 })},
		{"--dkv-wire bf16", with(func(r *request) { r.options.NarrowDKV = true })},
		{"--dtype bf16 --dkv-wire f32", with(func(r *request) { r.dtype = tensors.BF16 })},
		{"--scale -.5E+1", with(func(r *request) { r.scale = -5 })},
		{"--check --backward --rounds 3", with(func(r *request) {
			r.check, r.backward, r.rounds = checkAuto, true, 3
		})},
		{"--check=full --seed 18446744073709551615", with(func(r *request) {
			r.check, r.seed = checkFull, math.MaxUint64
		})},
		{"--softcap 30 --sink", with(func(r *request) { r.softCap, r.sink = 30, true })},
		{"--mask window:5,-1", with(func(r *request) {
			r.maskName, r.mask = "window:5,-1", attn.Window(2048, 2048, 5, -1)
		})},
		{"--mask prefix:1K", with(func(r *request) {
			r.maskName, r.mask = "prefix:1K", attn.Prefix(1024, 2048)
		})},
		{"--mask block-causal:100", with(func(r *request) {
			r.maskName, r.mask = "block-causal:100", attn.BlockCausal(100, 2048)
		})},
		{"--docs 0,16,16,40 --mask full", with(func(r *request) {
			r.tokens, r.docs, r.maskName = 40, []int{0, 16, 16, 40}, "full"
			r.mask = attn.Mask{{Q1: 16, K1: 16, Lo: -attn.Unbounded, Hi: attn.Unbounded},
				{Q0: 16, Q1: 40, K0: 16, K1: 40, Lo: -attn.Unbounded, Hi: attn.Unbounded}}
		})},
		{"--docs 0,1K --tokens 1024 --layout doc-zigzag", with(func(r *request) {
			tokens(1024)(r)
			r.docs, r.layoutName = []int{0, 1024}, "doc-zigzag"
			r.layout = mesh.DocZigzag{Starts: r.docs}
		})},
		{"--layout striped:3 --scheme halo", with(func(r *request) {
			r.layout, r.layoutName, r.scheme = mesh.Striped{Size: 3}, "striped:3", "halo"
		})},
		{"--lanes 2 --rotate q --dkv-window local", with(func(r *request) {
			r.ring = ringbus.Ring{Lanes: 2, Rotate: ringbus.RotateQ, DKV: ringbus.Local}
		})},
		{"--scheme passq --rotate q", with(func(r *request) { r.scheme = "passq" })},
		{"--mesh 2x2 --head-chunks 4", with(func(r *request) {
			r.mesh.Head, r.mesh.Ring, r.options.HeadChunks = 2, 2, 4
		})},
		{"--mesh 1x4 --inner 4 --head-chunks 1", with(func(r *request) { r.mesh.Ring = 4 })},
		{"--rank-memory 1G", with(func(r *request) { r.rankMemory = 1 << 30 })},
	} {
		got, err := parse(t, c.line)
		if err != nil {
			t.Errorf("%q: %v", c.line, err)
			continue
		}
		got.deadline = 0 // TestPatience
		if diff := cmp.Diff(c.want, *got, cmp.AllowUnexported(request{}),
			cmpopts.IgnoreFields(request{}, "plan", "topology", "kernels")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.line, diff)
		}
	}
}

// TestOpenChoices: auto picks something, and says what.
func TestOpenChoices(t *testing.T) {
	for _, c := range []struct {
		line string
		free choose.Free
	}{
		{"--layout auto", choose.Free{Layout: true}}, {"--scheme auto", choose.Free{Scheme: true}},
		{"--rotate auto --backward", choose.Free{Rotate: true}},
		{"--layout auto --scheme auto --rotate auto", choose.Free{Layout: true, Scheme: true,
			Rotate: true}},
	} {
		r, err := parse(t, "--mesh 1x4 --docs 0,64,64,512 "+c.line)
		if err != nil {
			t.Errorf("%q: %v", c.line, err)
			continue
		}
		best := r.choice.Chosen()
		if r.free != c.free || r.layoutName != best.Layout || r.scheme != best.Scheme ||
			r.ring != best.Ring || r.layout.String() != r.plan.Spec().Layout.String() ||
			r.choiceJSON().Why == "" {
			t.Errorf("%q: %+v, chosen %s", c.line, r.free, best.Name())
		}
	}
}

// TestKernelsOfWideSums: sums of float64 are of the portable kernels, whichever are asked for, and
// reports say so.
func TestKernelsOfWideSums(t *testing.T) {
	for _, k := range []cpu.Kernels{cpu.Portable, cpu.AVX2, cpu.AVX512} {
		if k.Supported() != nil {
			continue
		}
		t.Setenv(kernelsVariable, k.String())
		for dtype, want := range map[string]cpu.Kernels{"f64": cpu.Portable, "f32": k, "bf16": k} {
			r, err := parse(t, "--tokens 8 --dtype "+dtype)
			if err != nil {
				t.Fatal(err)
			}
			if got := newReport(r).Kernels; got != want.String() || r.config().Kernels != got {
				t.Errorf("%s, %v asked for: the report says %s, the session %s", dtype, k, got,
					r.config().Kernels)
			}
		}
	}
}

// TestRefusals has one line for each law; the scripts have the wording.
func TestRefusals(t *testing.T) {
	for _, line := range []string{
		"--tokens 0", "--heads 0", "--kv-heads 0", "--dim 0", "--dim 4097", "--kv-heads 16",
		"--heads 8 --kv-heads 5", "--mesh 9x1", "--mesh 0x1", "--mesh -1x1", "--mesh x",
		"--mesh 1x", "--mesh 99999999999999999999x1", "--mesh +1x2", "--mesh 01x2", "--mesh 1x02",
		"--mesh 00x1", "--mesh 1x2x", "--mesh 1_0x1", "--inner +1", "--inner 01", "--inner -1",
		"--scale 0x1p-2", "--scale 0X1", "--scale 0x_1p0", "--scale 1_0",
		"--dkv-wire=", "--dkv-wire f64", "--dkv-wire f32 --dtype f64", "--dkv-wire f16",
		"--dkv-wire bf16 --dtype f64",
		"--scale Inf", "--scale ten", "--seed 1.5", "--rounds -1",
		"--deadline -3s", "--deadline 999us", "--inner 0", "--inner two", "--mesh 1x4 --inner 8",
		"--head-chunks -1", "--procs -1", "--procs 1", "--kv-heads=", "--mask=", "--out=",
		"--docs=", "--lanes 0", "--check=", "--tokens 1KK", "--tokens 1.5K", "--tokens 9999999999G",
	} {
		if r, err := parse(t, line); err == nil {
			t.Errorf("%q was taken as %+v", line, r)
		} else if exitCode(err) != exitRequest || !strings.HasPrefix(err.Error(), "--") {
			t.Errorf("%q: exit %d, %v", line, exitCode(err), err)
		}
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]uint64{
		"0": 0, "96": 96, "4K": 4096, "64K": 65536, "3M": 3 << 20, "1G": 1 << 30, "007": 7,
		"8589934591G": 8589934591 << 30,
	} {
		if got, err := parseSize(s); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "K", "4k", "-1", "+1", "1e3", "1 K", "0x10", "1_000", "4KM", "8589934592G",
		"9223372036854775808", "1T",
	} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("%q was taken as %d", s, got)
		}
	}
}

func TestPatience(t *testing.T) {
	small, err := parse(t, "--tokens 64")
	if err != nil || small.deadline.Round(time.Second) != kvloom.DefaultDeadline {
		t.Errorf("64 tokens: %v, %v", small.deadline, err)
	}
	given, err := parse(t, "--tokens 64K --deadline 2s")
	if err != nil || given.deadline != 2*time.Second {
		t.Errorf("given 2s: %v, %v", given.deadline, err)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := &request{
			tokens: rapid.IntRange(1, 1<<30).Draw(t, "tokens"),
			heads:  rapid.IntRange(1, 1<<14).Draw(t, "heads"),
			dim:    rapid.IntRange(1, 1<<12).Draw(t, "dim"),
			mesh:   mesh.Mesh{Head: 1, Ring: rapid.IntRange(1, 1<<16).Draw(t, "ring")},
		}
		d := r.patience()
		if d < kvloom.DefaultDeadline || d > kvloom.DefaultDeadline+maxPatience {
			t.Fatalf("%+v: %v", r, d)
		}
		r.tokens = max(1, r.tokens/2)
		if r.patience() > d {
			t.Fatalf("half the tokens take longer: %v, %v", r.patience(), d)
		}
	})
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"tokns", "tokens", 1}, {"mehs", "mesh", 2},
		{"kitten", "sitting", 3}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestShow(t *testing.T) {
	for s, want := range map[string]string{
		"2x4": "2x4", "": `""`, "a b": `"a b"`, "a\nb": `"a\nb"`, "é": `"é"`,
	} {
		if got := show(s); got != want {
			t.Errorf("%q is shown as %s, want %s", s, got, want)
		}
	}
	if got := show(strings.Repeat("x", 5000)); len(got) > 100 {
		t.Errorf("a long value takes %d characters", len(got))
	}
}

// TestRoundedUp: what is suggested is a size of the flags, not below what is needed.
func TestRoundedUp(t *testing.T) {
	for n, want := range map[int64]string{
		1: "1", 10239: "10239", 10240: "10K", 10241: "11K", 528384: "516K", 1 << 30: "1024M",
		10<<30 + 1: "11G",
	} {
		got := roundedUp(n)
		if size, err := parseSize(got); got != want || err != nil || size < uint64(n) {
			t.Errorf("%d: %s, want %s (%v)", n, got, want, err)
		}
	}
}
