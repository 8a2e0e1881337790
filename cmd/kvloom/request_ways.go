package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kvloom/kvloom/choose"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// readWays reads how tokens are dealt and how blocks travel, and what of it is left open.
func (r *request) readWays(f *attendFlags) error {
	r.layoutName, r.scheme = f.layout, f.scheme
	open := func(flag, value string) bool {
		return value == auto || f.survey && !f.set.Changed(flag)
	}
	r.free = choose.Free{Layout: open("layout", f.layout), Scheme: open("scheme", f.scheme),
		Rotate: open("rotate", f.rotate)}
	if f.survey && !r.free.Any() {
		return &requestError{flag: "candidates", problem: "has nothing to compare, as --layout, " +
			"--scheme and --rotate are all given by name: leave one of them out"}
	}
	if f.rotate == "q" {
		r.ring.Rotate = ringbus.RotateQ
	}
	if f.lanes == "2" {
		r.ring.Lanes = 2
	}
	if f.dkvWindow == "local" {
		r.ring.DKV = ringbus.Local
	}
	for _, read := range []func(*attendFlags) error{
		r.readInner, r.readChunks, r.readWire, r.onlyRotation,
	} {
		if err := read(f); err != nil {
			return err
		}
	}
	return nil
}

// readInner reads the inner window of the double ring.
func (r *request) readInner(f *attendFlags) error {
	if !f.set.Changed("inner") {
		return nil
	}
	w, ok := parseDegree(f.inner)
	switch {
	case !ok:
		return badValue("inner", f.inner, "is not a whole number: use a divisor of %d, the ring "+
			"degree", r.mesh.Ring)
	case w == 0:
		return badValue("inner", f.inner, "a window has at least 1 rank: use a divisor of the "+
			"ring degree %d of --mesh %dx%d, which is %s", r.mesh.Ring, r.mesh.Head, r.mesh.Ring,
			divisors(r.mesh.Ring))
	}
	if err := (ringbus.Ring{Inner: w}).Validate(r.mesh); err != nil {
		return badValue("inner", f.inner, "does not divide the ring degree %d of --mesh %dx%d: "+
			"use %s", r.mesh.Ring, r.mesh.Head, r.mesh.Ring, divisors(r.mesh.Ring))
	}
	if w < r.mesh.Ring {
		r.ring.Inner = w // else one window: the same plan, under the same name
	}
	return nil
}

// inner is the inner window of the ring, whose default is the ring degree.
func (r *request) inner() int {
	if r.ring.Inner == 0 {
		return r.mesh.Ring
	}
	return r.ring.Inner
}

// readChunks reads in how many chunks heads are exchanged.
func (r *request) readChunks(f *attendFlags) error {
	n, err := parseCount("head-chunks", f.headChunks, plan.MaxHeads)
	if n > 1 {
		r.options.HeadChunks = n // 1 is the default, under the default's name
	}
	return err
}

// readWire reads the dtype of travelling dk, dv.
func (r *request) readWire(f *attendFlags) error {
	if !f.set.Changed("dkv-wire") {
		return nil
	}
	wire := choice{"dkv-wire", f.dkvWire, []string{"f32", "bf16", "f64"}, nil}
	if err := wire.check(); err != nil {
		return err
	}
	sums := tensors.F32
	if r.dtype.AccBytes() == tensors.F64.Bytes() {
		sums = tensors.F64
	}
	stays := r.scheme == passQ && !r.free.Scheme || f.rotate == "q"
	if f.dkvWire == tensors.BF16.String() && sums == tensors.F32 {
		if stays {
			return badValue("dkv-wire", f.dkvWire, "dk, dv stay where their keys are when queries "+
				"go round: leave --dkv-wire out, or use --scheme ring --rotate kv")
		}
		r.options.NarrowDKV = true
		return nil
	}
	if f.dkvWire != sums.String() {
		return badValue("dkv-wire", f.dkvWire, "dk, dv of dtype %v are summed in %v and travel as "+
			"that: leave --dkv-wire out", r.dtype, sums)
	}
	return nil
}

// onlyRotation refuses a rotation to a scheme that has another one only. Pass-Q's is q under the
// name of the default.
func (r *request) onlyRotation(f *attendFlags) error {
	if r.scheme != passQ || r.free.Scheme {
		return nil
	}
	if f.set.Changed("rotate") && f.rotate == "kv" {
		return badValue("rotate", f.rotate, "with --scheme passq queries go round in both passes: "+
			"leave --rotate out, or use --scheme ring")
	}
	r.ring.Rotate = ringbus.RotateKV
	return nil
}

const passQ = "passq"

// rotateName is what goes round backward.
func (r *request) rotateName() string {
	if r.scheme == passQ {
		return ringbus.RotateQ.String()
	}
	return r.ring.Rotate.String()
}

// readCluster reads the cluster by which plans are priced and speeds are known.
func (r *request) readCluster(f *attendFlags) (err error) {
	if f.set.Changed("rank-memory") {
		n, err := parseSize(f.rankMemory)
		if err != nil || n == 0 {
			return badValue("rank-memory", f.rankMemory, "is no number of bytes: use one such as "+
				"80G (80 GiB) or 512M")
		}
		r.rankMemory = int64(n)
	}
	if r.usual = !f.set.Changed("topology"); r.usual {
		r.topology = choose.Usual(r.mesh.Ranks())
		return nil
	}
	if !f.clocked && !r.free.Any() && r.layoutName != "balanced" {
		return badValue("topology", f.topology, "has no meaning here: it is what --layout auto "+
			"and balanced, --scheme auto and --rotate auto go by; use one of them, or kvloom sim "+
			"or kvloom plan cost")
	}
	if r.topology, err = readTopology(f.topology); err != nil {
		return err
	}
	if err := r.topology.Fits(r.mesh.Ranks()); err != nil {
		return badValue("topology", f.topology, "%v", err)
	}
	return nil
}

// choose deals the tokens, after having priced the candidates if something was left open.
func (r *request) choose(f *attendFlags) (err error) {
	weights := choose.Weights(r.topology, r.mesh)
	if !r.free.Layout {
		shape := r.shape()
		r.layout, err = choose.Layout(r.layoutName, choose.Sequence{
			Shape: &shape, Mesh: r.mesh, Starts: r.docs, Weights: weights})
		if err != nil {
			return r.badLayout(f, err)
		}
	}
	if !r.free.Any() {
		return nil
	}
	r.choice, err = choose.Choose(choose.Question{
		Spec: plan.Spec{Shape: r.shape(), Mesh: r.mesh, Options: r.options,
			Heads: headshuffle.AllToAll{}},
		Free: r.free, Layout: r.layoutName, Scheme: r.scheme, Ring: r.ring, Starts: r.docs,
		Weights: weights, Topology: r.topology, Passes: r.passes(), RankMemory: r.rankMemory,
	})
	if err != nil {
		return r.nothingFits(f, err)
	}
	c := r.choice.Chosen()
	r.layoutName, r.layout, r.scheme, r.ring = c.Layout, c.Spec.Layout, c.Scheme, c.Ring
	return nil
}

// badLayout puts the error of a layout behind its flag.
func (r *request) badLayout(f *attendFlags, err error) error {
	text := strings.TrimPrefix(err.Error(), "layout ")
	text = strings.TrimPrefix(text, strconv.Quote(f.layout))
	text = strings.TrimPrefix(text, f.layout)
	text = strings.TrimPrefix(strings.TrimLeft(text, ": "), "balance: ")
	text = strings.Replace(text, "give their starts, or use layout zigzag",
		"give their starts by --docs, or use --layout zigzag", 1)
	text = strings.Replace(text, "doc-zigzag, balanced or whole-doc",
		"doc-zigzag, balanced, whole-doc or auto", 1)
	return badValue("layout", f.layout, "%s", text)
}

// nothingFits names the flag that leaves nothing to choose: the memory of a rank, or what the one
// reason of all candidates is about, or else what left the choice.
func (r *request) nothingFits(f *attendFlags, err error) error {
	text := strings.TrimPrefix(err.Error(), "choose: ")
	var none *choose.Impossible
	if errors.As(err, &none) {
		if least := none.Least(); least != nil {
			return badValue("rank-memory", f.rankMemory, "%s: use more ranks, or --rank-memory %s",
				text, roundedUp(least.PeakBytes))
		}
		if all := none.Reasons(); len(all) == 1 {
			var one *requestError
			e := explainPlan(f, errors.New(all[0].Text))
			if errors.As(e, &one) && one.flag != "" {
				return e
			}
		}
	}
	for _, x := range []struct {
		free        bool
		flag, value string
	}{
		{r.free.Layout, "layout", f.layout}, {r.free.Scheme, "scheme", f.scheme},
		{r.free.Rotate, "rotate", f.rotate},
	} {
		if x.free {
			return badValue(x.flag, x.value, "%s", text)
		}
	}
	return &requestError{problem: text}
}

// roundedUp is a size that flags take, of at least n bytes.
func roundedUp(n int64) string {
	const least = 10 // units, so that rounding adds little
	unit := ""
	for _, next := range []string{"K", "M", "G"} {
		if n < least<<10 {
			break
		}
		n, unit = (n+1<<10-1)>>10, next
	}
	return strconv.FormatInt(n, 10) + unit
}

// axis is the scheme of the ring axis.
func (r *request) axis() plan.RingAxis {
	axis, err := ringbus.Make(r.scheme, r.ring)
	if err != nil {
		panic(err) // the flag's words are the schemes' names
	}
	return axis
}

// proveFit makes the plan once, so that what cannot be is refused behind its flag, and looks
// whether it fits the memory of a rank.
func (r *request) proveFit(f *attendFlags) error {
	p, err := plan.New(plan.Spec{Shape: r.shape(), Mesh: r.mesh, Layout: r.layout,
		Options: r.options, Ring: r.axis(), Heads: headshuffle.AllToAll{}})
	if err != nil {
		return explainPlan(f, err)
	}
	r.plan = p
	if r.rankMemory == 0 || r.choice != nil {
		return nil // or priced with the candidates
	}
	for rank := range r.mesh.Ranks() {
		var both [2]*plan.Program
		for _, pass := range r.passes() {
			if both[pass], err = p.Program(pass, rank); err != nil {
				return err
			}
		}
		peak := plan.PeakBytes(both[plan.Forward], both[plan.Backward])
		if peak > r.rankMemory {
			return badValue("rank-memory", f.rankMemory, "rank %d holds up to %s at once: use "+
				"more ranks, or another --scheme or --layout", rank, bytesText(peak))
		}
	}
	return nil
}

// explainPlan puts the error of a plan behind the flag that it is about.
func explainPlan(f *attendFlags, err error) error {
	text := strings.TrimPrefix(err.Error(), "plan: ")
	for _, x := range []struct{ flag, value, words string }{
		{"inner", f.inner, "inner window"}, {"lanes", f.lanes, "lanes"},
		{"dkv-window", f.dkvWindow, "dkv window"}, {"rotate", f.rotate, "rotate"},
		{"head-chunks", f.headChunks, "head-chunks"}, {"dkv-wire", f.dkvWire, "dkv-wire"},
		{"layout", f.layout, "layout"},
	} {
		rest, ok := strings.CutPrefix(text, fmt.Sprintf("%s %s", x.words, x.value))
		if ok {
			return badValue(x.flag, x.value, "%s", strings.TrimLeft(rest, ": "))
		}
	}
	return &requestError{problem: text}
}
