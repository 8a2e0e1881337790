package mesh_test

import (
	"strings"
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

// drawMesh draws a mesh of up to 12 x 12 ranks in either placement.
func drawMesh(t *rapid.T) mesh.Mesh {
	return mesh.Mesh{
		Head: rapid.IntRange(1, 12).Draw(t, "H"), Ring: rapid.IntRange(1, 12).Draw(t, "C"),
		Placement: rapid.SampledFrom(placements()).Draw(t, "placement"),
	}
}

func placements() []mesh.Placement { return []mesh.Placement{mesh.HeadFirst, mesh.ContextFirst} }

// TestRankGrid holds both placements against the grids of attention.md: head-first g = c*H + h,
// context-first g = h*C + c.
func TestRankGrid(t *testing.T) {
	for _, tc := range []struct {
		m    mesh.Mesh
		rows [][]int // by h, then c
	}{
		{mesh.Mesh{Head: 2, Ring: 4}, [][]int{{0, 2, 4, 6}, {1, 3, 5, 7}}},
		{mesh.Mesh{Head: 2, Ring: 4, Placement: mesh.ContextFirst},
			[][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}},
		{mesh.Mesh{Head: 3, Ring: 2}, [][]int{{0, 3}, {1, 4}, {2, 5}}},
		{mesh.Mesh{Head: 3, Ring: 2, Placement: mesh.ContextFirst},
			[][]int{{0, 1}, {2, 3}, {4, 5}}},
		{mesh.Mesh{Head: 1, Ring: 3}, [][]int{{0, 1, 2}}},
		{mesh.Mesh{Head: 3, Ring: 1, Placement: mesh.ContextFirst}, [][]int{{0}, {1}, {2}}},
	} {
		for h, row := range tc.rows {
			for c, want := range row {
				at := mesh.Coord{H: h, C: c}
				if got := tc.m.Rank(at); got != want {
					t.Errorf("%+v: rank at %+v is %d, want %d", tc.m, at, got, want)
				}
				if got := tc.m.Coord(want); got != at {
					t.Errorf("%+v: rank %d sits at %+v, want %+v", tc.m, want, got, at)
				}
			}
		}
	}
}

// TestRankCoordInverse: Rank is a bijection of the coordinates onto 0..Ranks-1, Coord its inverse.
func TestRankCoordInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMesh(t)
		seen := make([]bool, m.Ranks())
		for h := range m.Head {
			for c := range m.Ring {
				at := mesh.Coord{H: h, C: c}
				g := m.Rank(at)
				if g < 0 || g >= len(seen) || seen[g] {
					t.Fatalf("%+v: rank %d at %+v is outside the mesh or taken", m, g, at)
				}
				seen[g] = true
				if back := m.Coord(g); back != at {
					t.Fatalf("%+v: rank %d of %+v comes back as %+v", m, g, at, back)
				}
			}
		}
	})
}

func TestMeshValidate(t *testing.T) {
	for _, tc := range []struct {
		m    mesh.Mesh
		want string // in the error; empty: none
	}{
		{mesh.Mesh{Head: 1, Ring: 1}, ""},
		{mesh.Mesh{Head: 256, Ring: 256}, ""},
		{mesh.Mesh{Head: 1, Ring: mesh.MaxRanks}, ""},
		{mesh.Mesh{Head: 0, Ring: 4}, "such as 1x4"},
		{mesh.Mesh{Head: 3, Ring: -1}, "such as 3x1"},
		{mesh.Mesh{Head: 257, Ring: 256}, "limit of 65536 ranks"},
		{mesh.Mesh{Head: 1 << 40, Ring: 1 << 40}, "limit of 65536 ranks"},
	} {
		wantError(t, tc.m.Validate(), tc.want)
	}
}

// wantError wants no error when want is empty, else one that says want.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error %v, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one that says %q", err, want)
	}
}

func TestNamesParseBack(t *testing.T) {
	for _, p := range placements() {
		got, err := mesh.ParsePlacement(p.String())
		if got != p || err != nil {
			t.Errorf("placement %v comes back as %v, %v", p, got, err)
		}
	}
	for _, l := range layouts() {
		got, err := mesh.ParseLayout(l.String())
		if got != l || err != nil {
			t.Errorf("layout %v comes back as %v, %v", l, got, err)
		}
	}
	_, err := mesh.ParsePlacement("diagonal")
	wantError(t, err, `placement "diagonal" is unknown: use head-first or context-first`)
	_, err = mesh.ParseLayout("striped")
	wantError(t, err, `layout "striped" is unknown: use zigzag or contiguous`)
}
