package plan_test
import ("testing";"github.com/kvloom/kvloom/mesh";"github.com/kvloom/kvloom/plan";"github.com/kvloom/kvloom/ringbus")
func BenchmarkZZ(b *testing.B) {
	x := bigPlans()[0]
	for _, l := range []mesh.Layout{x.spec.Layout, mesh.Zigzag, mesh.Striped{Size:1}, mesh.Striped{Size:16}, mesh.Striped{Size:64}} {
	for _, r := range []plan.RingAxis{ringbus.Ring{}, ringbus.Ring{Lanes:2}, ringbus.Ring{Rotate: ringbus.RotateQ}, ringbus.AllGather{}, ringbus.Halo{}, ringbus.PassQ{}} {
		y := x
		y.spec.Layout, y.spec.Ring = l, r
		n := l.String()
		b.Run(n[:min(12,len(n))]+"/"+r.String(), func(b *testing.B) { for b.Loop() { y.prove(b) } })
	}}
}
