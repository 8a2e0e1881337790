package simd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseISA(t *testing.T) {
	for _, isa := range []ISA{Portable, AVX2, AVX512, AVX512BF16, AMX} {
		got, err := ParseISA(isa.String())
		if err != nil || got != isa {
			t.Errorf("%v parses as %v, %v", isa, got, err)
		}
	}
	_, err := ParseISA("mmx")
	if err == nil || !strings.Contains(err.Error(), `"mmx"`) ||
		!strings.Contains(err.Error(), "avx512") {
		t.Errorf("a wrong name gives: %v", err)
	}
}

// TestSupported wants the best instruction set to be supported, none above it, and reasons.
func TestSupported(t *testing.T) {
	f := Detect()
	best := f.Best()
	t.Logf("this machine: %v", best)
	for _, isa := range []ISA{Portable, AVX2, AVX512, AVX512BF16, AMX, 9} {
		err := f.Supported(isa)
		t.Logf("%v: %v", isa, err)
		switch {
		case isa == best && err != nil, isa == Portable && err != nil:
			t.Errorf("%v is not supported: %v", isa, err)
		case isa > best && (err == nil || err.Error() == ""):
			t.Errorf("%v is supported, but the best is %v", isa, best)
		}
		if other := Supported(isa); (other == nil) != (err == nil) {
			t.Errorf("%v: %v and %v", isa, err, other)
		}
	}
}

// TestGenerated wants the generated files to be what the generator writes.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the generator")
	}
	source, err := filepath.Abs("../../../_gen")
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "GOWORK=off")
		return cmd.CombinedOutput()
	}
	if out, err := run("build", "-o", os.DevNull, "."); err != nil {
		t.Skipf("the generator's own modules are not there: %v\n%s", err, out)
	}
	dir := t.TempDir()
	if out, err := run("run", ".", "-dir", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := os.ReadDir(dir)
	if err != nil || len(made) == 0 {
		t.Fatalf("the generator wrote %d files: %v", len(made), err)
	}
	for _, f := range made {
		want, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: in _gen run "+
				"go run . -dir ../cudakern/cpu/simd", f.Name())
		}
	}
}
