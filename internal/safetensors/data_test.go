package safetensors

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// openData opens a file of the integration tests' data or of the folder beside the module; it skips
// where it is in neither.
func openData(t *testing.T, name string) *File {
	t.Helper()
	root, err := os.Getwd()
	for ; err == nil; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			t.Fatal("no go.mod above the test")
		}
	}
	path := filepath.Join(root, "integration", "testdata", name)
	f, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		path = filepath.Join(root, "..", "shared", "data", name)
		f, err = Open(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is not there: the files of real attention data lie beside the module", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// TestRealFiles reads q, k, v and the causal references of files written by other hands. The
// first row of a causal mask sees one key, so its out is v's first row and its lse the one logit.
func TestRealFiles(t *testing.T) {
	for _, c := range []struct {
		file            string
		s, hq, hk, d, n int
	}{
		{"attn_small.safetensors", 97, 4, 2, 16, 20},
		{"attn_gqa.safetensors", 251, 9, 3, 64, 19},
		{"attn_real.safetensors", 2048, 6, 2, 64, 15},
	} {
		t.Run(c.file, func(t *testing.T) {
			f := openData(t, c.file)
			if len(f.Names()) != c.n {
				t.Errorf("%d tensors, want %d", len(f.Names()), c.n)
			}
			scale, err := strconv.ParseFloat(f.Metadata()["scale"], 64)
			if err != nil {
				t.Fatal(err)
			}
			q := whole[float64](t, f, "q", c.s, c.hq, c.d)
			k := whole[float64](t, f, "k", c.s, c.hk, c.d)
			v := whole[float32](t, f, "v", c.s, c.hk, c.d)
			whole[float32](t, f, "do", c.s, c.hq, c.d)
			out := whole[float32](t, f, "causal.out", c.s, c.hq, c.d)
			lse := whole[float64](t, f, "causal.lse", c.s, c.hq)
			for h := range c.hq {
				g := h / (c.hq / c.hk)
				if !slices.Equal(out[h*c.d:(h+1)*c.d], v[g*c.d:(g+1)*c.d]) {
					t.Errorf("head %d: the first row of out is not v's", h)
				}
				logit := 0.0
				for i := range c.d {
					logit += scale * q[h*c.d+i] * k[g*c.d+i]
				}
				if math.Abs(lse[h]-logit) > 1e-12*max(1, math.Abs(logit)) {
					t.Errorf("head %d: the first lse is %v, the logit %v", h, lse[h], logit)
				}
			}
			if _, ok := f.Tensor("docs"); ok {
				_, err := Read[float32](f, "docs")
				wantError(t, err, c.file, "docs", "I32")
			}
		})
	}
}

// whole reads a tensor and demands its shape.
func whole[T float32 | float64](t *testing.T, f *File, name string, shape ...int) []T {
	t.Helper()
	d, ok := f.Tensor(name)
	if !ok || !slices.Equal(d.Shape, shape) {
		t.Fatalf("%s is %+v, want the shape %v", name, d, shape)
	}
	x, err := Read[T](f, name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestRealModel(t *testing.T) {
	f := openData(t, "llama_tiny.safetensors")
	if f.Metadata() != nil {
		t.Errorf("metadata %v, want none", f.Metadata())
	}
	whole[float64](t, f, "grad.lm_head.weight", 256, 64)
	if len(f.Names()) != 68 {
		t.Errorf("%d tensors, want 68", len(f.Names()))
	}
}
