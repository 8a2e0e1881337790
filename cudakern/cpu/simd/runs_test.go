package simd

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/internal/tiles"
)

// inside reports whether this is a process of TestTiles, whose tiles are interpreted.
func inside() bool { return os.Getenv(tiles.Env) == tiles.Interpreted }

// pathsHere is what the suite is for in this process.
func pathsHere() []ISA {
	if inside() {
		return []ISA{AMX}
	}
	return []ISA{Portable, AVX2, AVX512, AVX512BF16, AMX}
}

// runs is nil where the kernels of isa run in this process.
func runs(isa ISA) error {
	if isa == AMX && inside() {
		return restOfAMX()
	}
	return Supported(isa)
}

// restOfAMX is nil where all of AMX's path runs but the instructions of tiles.
func restOfAMX() error {
	if f := Detect(); f.missing[AVX512] != "" {
		return errors.New(f.missing[AVX512])
	} else if f.pairs != "" {
		return errors.New(f.pairs)
	}
	return nil
}

// TestTiles runs the suite once more, for AMX, in a process whose instructions of tiles are
// interpreted, where the processor has none.
func TestTiles(t *testing.T) {
	if Supported(AMX) == nil || inside() {
		t.Skip("the suite has it")
	}
	if err := restOfAMX(); err != nil {
		t.Skipf("the rest of that path does not run here: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-rapid.checks=10")
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	stats, err := tiles.Run(cmd)
	switch {
	case errors.Is(err, tiles.ErrUnavailable):
		t.Skip(err)
	case err != nil:
		t.Errorf("%v:\n%s", err, out)
	case stats.Count[tiles.LDTILECFG] != stats.Count[tiles.TILERELEASE]:
		t.Errorf("tiles are set up %d times and given back %d times", stats.Count[tiles.LDTILECFG],
			stats.Count[tiles.TILERELEASE])
	case stats.Count[tiles.TDPBF16PS] < 1000:
		t.Errorf("%d products of tiles: the suite went another way", stats.Count[tiles.TDPBF16PS])
	}
	t.Logf("%d products of tiles, %d stops", stats.Count[tiles.TDPBF16PS], stats.Stops)
}
