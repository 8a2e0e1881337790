package simd

// packDot packs the queries of group i in pairs of dims.
func (f *forward[E]) packDot(i int) {
	b, g := f.b, &f.sc.groups[i]
	packPairs(f.panel(f.sc.q, b.D, i), bits(b.Q), g, b.D)
}

// foldDot is fold, by products of pairs.
func (f *forward[E]) foldDot(i int, see seen) {
	b, sc, isa, g, t := f.b, f.sc, f.isa, &f.sc.groups[i], &f.sc.tile
	if !t.woven {
		t.woven = true
		sc.dot.k = dotSource(isa, sc.dot.few[0], bits(b.K), t, b.KHeads, f.kvHead, b.D)
		sc.dot.v = dotSource(isa, sc.dot.few[1], bits(b.V), t, b.KHeads, f.kvHead, b.DV)
		sc.weave(isa, &sc.dot.v, t.n, b.DV)
	}
	f.load(i)
	see = sc.whole(isa, see)
	var words *uint64
	if !see.all {
		words = &sc.words[see.lo]
	}
	n, held := see.hi-see.lo, see.held(isa, t)
	q, o := f.panel(sc.q, b.D, i), f.panel(sc.o, b.DV, i)
	sc.scoresDot(isa, sc.s, q, &sc.dot.k, see.lo, n, held, b.D, g.vecs, float32(b.Scale))
	sc.bow(isa, &f.curve, n)
	sc.drop(held, n)
	next, whole := f.ahead(i)
	f.fetch(next, whole, 0, 2)
	softmaxBF16(&sc.s[0], words, n, &g.m[0], &g.l[0], &sc.alpha[0], g.vecs)
	f.fetch(next, whole, 1, 2)
	sc.weighDot(isa, o, sc.s, see.lo, n, b.DV, &sc.alpha[0], g.vecs)
	if sc.dot.odd {
		sc.patchWoven(o, sc.s, &sc.dot.v, t.n, b.DV, see)
	}
}
