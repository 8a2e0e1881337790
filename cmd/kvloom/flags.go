package main

import (
	"slices"
	"strings"

	"github.com/kvloom/kvloom/ringbus"
	"github.com/spf13/pflag"
)

// attendFlags are the flags of attend as they were written: words, read by newRequest.
type attendFlags struct {
	set                               *pflag.FlagSet
	tokens, heads, kvHeads, dim       string
	dtype, scale, seed, mask, in, out string
	mesh, inner, placement, layout    string
	scheme, lanes, rotate, headChunks string
	dkvWire, dkvWindow                string
	device, procs, transport          string
	check, rounds, deadline, log      string
	backward, json, quiet             bool
	docs, vDim, softcap, slices       string
	faults, audit, trace, topology    string
	heartbeat, worldSeed, replay      string
	compute                           bool

	does     []string // of later(), what the command at hand does
	noDemo   bool     // without flags the command is no demonstration
	modelled bool     // no tensor is made, so the machine need not hold them
}

// bind declares the flags. Words in `quotes` are what a value is called in the help.
func (f *attendFlags) bind(set *pflag.FlagSet) {
	f.set = set
	f.bindProblem(set)
	f.bindMesh(set)
	set.BoolVar(&f.backward, "backward", false, "run the backward pass too: dq, dk, dv")
	set.StringVar(&f.check, "check", "", "compare with the float64 oracle; `how` is auto, which "+
		"samples large problems, or full")
	set.Lookup("check").NoOptDefVal = checkAuto
	set.StringVar(&f.rounds, "rounds", "1", "repeat the passes `N` times; figures are for one")
	set.StringVar(&f.deadline, "deadline", "", "how `long` a rank may wait without progress, such "+
		"as 30s (default 30s and the time of one ring step)")
	set.BoolVar(&f.json, "json", false, "print one JSON object instead of tables")
	set.BoolVar(&f.quiet, "quiet", false, "print no progress and no tables, only the verdict")
	set.StringVar(&f.log, "log", "", "log to standard error from a `level` on: debug, info, warn "+
		"or error (without it logs are shown when a run fails)")
	set.Lookup("log").NoOptDefVal = "info"
	for _, x := range f.later() {
		set.StringVar(x.value, x.flag, "", "not there yet")
		set.Lookup(x.flag).Hidden = true
	}
}

func (f *attendFlags) bindProblem(set *pflag.FlagSet) {
	for _, x := range []struct {
		to                *string
		name, value, help string
	}{
		{&f.tokens, "tokens", "2K", "sequence length, a size of `N`, NK, NM or NG tokens"},
		{&f.heads, "heads", "8", "query heads, `N` of them"},
		{&f.kvHeads, "kv-heads", "", "key/value heads, `N` of them (default as many as heads)"},
		{&f.dim, "dim", "64", "head dimension `N`"},
		{&f.dtype, "dtype", "f32", "element `type`: f32 or f64"},
		{&f.scale, "scale", "", "logits are `X` times q.k (default 1/sqrt(dim))"},
		{&f.seed, "seed", "1", "`N` draws the inputs"},
		{&f.mask, "mask", "causal", "`which` keys a query sees: causal or full"},
		{&f.in, "in", "", "read q, k, v and do from this safetensors `file`"},
		{&f.out, "out", "", "write out, lse, dq, dk, dv to this safetensors `file`"},
	} {
		set.StringVar(x.to, x.name, x.value, x.help)
	}
}

func (f *attendFlags) bindMesh(set *pflag.FlagSet) {
	for _, x := range []struct {
		to                *string
		name, value, help string
	}{
		{&f.mesh, "mesh", "1x1", "head degree x ring degree, `HxC`"},
		{&f.inner, "inner", "", "inner window `W` of the double ring, a divisor of the ring " +
			"degree (default the ring degree: a single ring)"},
		{&f.placement, "placement", "head-first", "which `order` ranks fill the mesh in: " +
			"head-first or context-first"},
		{&f.layout, "layout", "zigzag", "which tokens a rank holds, `zigzag` or contiguous"},
		{&f.scheme, "scheme", "ring", "how blocks travel: `ring`"},
		{&f.lanes, "lanes", "1", "`1` or 2: the chunks of a shard travel together, or on lanes " +
			"of their own"},
		{&f.rotate, "rotate", "kv", "which blocks travel: `kv`"},
		{&f.headChunks, "head-chunks", "1", "heads are exchanged in `1` chunk"},
		{&f.dkvWire, "dkv-wire", "", "dtype of travelling dk, dv: `f32`, or f64 if --dtype is " +
			"(default that one)"},
		{&f.dkvWindow, "dkv-window", "fold", "how dk, dv cross windows of the double ring: " +
			"`fold` or local"},
		{&f.device, "device", "cpu", "where ranks compute: `cpu`"},
		{&f.procs, "procs", "0", "rank processes: `0`, all ranks in this one"},
		{&f.transport, "transport", "auto", "how blocks cross: `auto` or inproc"},
	} {
		set.StringVar(x.to, x.name, x.value, x.help)
	}
}

// laterFlag is a flag that the command line knows and this version does not do.
type laterFlag struct {
	flag  string
	value *string
	works string
}

func (f *attendFlags) later() []laterFlag {
	const (
		oneDocument = "this version attends one document"
		noFaults    = "this version injects no faults"
		noModel     = "this version runs on the real clock only"
	)
	return f.without([]laterFlag{
		{"docs", &f.docs, oneDocument + "; use --tokens"},
		{"v-dim", &f.vDim, "this version has values of the keys' dimension; use --dim"},
		{"softcap", &f.softcap, "this version does not cap logits"},
		{"slices", &f.slices, "this version has --mask causal and full"},
		{"faults", &f.faults, noFaults},
		{"audit", &f.audit, "this version checks results with --check"},
		{"trace", &f.trace, "use kvloom attend or kvloom sim"},
		{"topology", &f.topology, noModel},
		{"heartbeat", &f.heartbeat, "this version has --deadline"},
		{"world-seed", &f.worldSeed, noModel + ", and --seed draws the inputs"},
		{"replay", &f.replay, noModel},
	})
}

// without leaves out the flags that the command at hand does.
func (f *attendFlags) without(flags []laterFlag) []laterFlag {
	return slices.DeleteFunc(flags, func(x laterFlag) bool {
		return slices.Contains(f.does, x.flag)
	})
}

// choice is a flag whose value is one of some words. A word of later ending in a colon stands for
// all that begin with it.
type choice struct {
	flag, value  string
	works, later []string
}

func (f *attendFlags) choices() []choice {
	return []choice{
		{"dtype", f.dtype, []string{"f32", "f64"}, []string{"bf16"}},
		{"mask", f.mask, []string{"causal", "full"},
			[]string{"window:", "prefix:", "block-causal:"}},
		{"placement", f.placement, []string{"head-first", "context-first"}, nil},
		{"layout", f.layout, []string{"zigzag", "contiguous"},
			[]string{"doc-zigzag", "striped", "striped:", "balanced", "whole-doc", "auto"}},
		{"scheme", f.scheme, ringbus.Names(), []string{"allgather", "halo", "passq", "auto"}},
		{"lanes", f.lanes, []string{"1", "2"}, nil},
		{"rotate", f.rotate, []string{"kv"}, []string{"q", "auto"}},
		{"dkv-window", f.dkvWindow, []string{"fold", "local"}, nil},
		{"device", f.device, []string{"cpu"}, []string{"cuda"}},
		{"transport", f.transport, []string{"auto", "inproc"}, []string{"shm", "tcp", "nats"}},
	}
}

// check gives an error unless the value is one of those that work.
func (c *choice) check() error {
	known := func(word string) bool {
		return word == c.value || strings.HasSuffix(word, ":") && strings.HasPrefix(c.value, word)
	}
	switch {
	case slices.Contains(c.works, c.value):
		return nil
	case slices.ContainsFunc(c.later, known):
		return notYet(c.flag, c.value, "this version has "+strings.Join(c.works, " and "))
	}
	return badValue(c.flag, c.value, "is unknown: use %s", strings.Join(c.works, " or "))
}

// bindTrace declares --trace, for the commands that name it in does.
func (f *attendFlags) bindTrace(set *pflag.FlagSet) {
	set.StringVar(&f.trace, "trace", "", "write a timeline to this `file`, for ui.perfetto.dev")
}

// demonstration tells whether nothing was said about the problem or the mesh.
func (f *attendFlags) demonstration() bool {
	only := !f.noDemo
	f.set.Visit(func(x *pflag.Flag) {
		only = only &&
			slices.Contains([]string{"json", "quiet", "log", "deadline", "trace"}, x.Name)
	})
	return only
}
