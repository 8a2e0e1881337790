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
	rankMemory                        string
	sink, compute                     bool

	does     []string // of later(), what the command at hand does
	noDemo   bool     // without flags the command is no demonstration
	modelled bool     // no tensor is made, so the machine need not hold them
	clocked  bool     // the command needs a cluster, whatever is chosen
	survey   bool     // what is not asked for by name is free: all candidates are priced
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
		set.StringVar(x.value, x.flag, "", x.works)
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
		{&f.vDim, "v-dim", "", "head dimension `N` of the values (default --dim)"},
		{&f.dtype, "dtype", "f32", "element `type`: f32, bf16 or f64"},
		{&f.scale, "scale", "", "logits are `X` times q.k (default 1/sqrt(dim))"},
		{&f.softcap, "softcap", "", "logits are capped softly at `X`: X tanh(logit/X)"},
		{&f.seed, "seed", "1", "`N` draws the inputs"},
		{&f.docs, "docs", "", "packed documents: cumulative `starts`, the last is the number of " +
			"tokens, such as 0,16,40"},
		{&f.mask, "mask", "causal", "`which` keys a query sees, inside its document: causal, " +
			"full, window:LEFT[,RIGHT], prefix:N or block-causal:N"},
		{&f.slices, "slices", "", "a mask of its own from this `file`, in place of --mask: lines " +
			"q0 q1 k0 k1 full|causal|inverse-causal|band:LO,HI"},
		{&f.in, "in", "", "read q, k, v, do and sink from this safetensors `file`"},
		{&f.out, "out", "", "write out, lse, dq, dk, dv, dsink to this safetensors `file`"},
	} {
		set.StringVar(x.to, x.name, x.value, x.help)
	}
	set.BoolVar(&f.sink, "sink", false, "a sink logit a head joins each row's sum; drawn from "+
		"--seed unless --in has them")
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
		{&f.layout, "layout", "zigzag", "which tokens a rank holds: `how` is zigzag, contiguous, " +
			"striped[:N], doc-zigzag, balanced, whole-doc or auto, which picks by modelled cost"},
		{&f.scheme, "scheme", "ring", "how blocks travel: `way` is ring, allgather, halo, passq " +
			"or auto"},
		{&f.lanes, "lanes", "1", "`1` or 2: the chunks of a shard travel together, or on lanes " +
			"of their own"},
		{&f.rotate, "rotate", "kv", "what goes round the ring backward: `kv`, q or auto"},
		{&f.headChunks, "head-chunks", "1", "heads are exchanged in `N` chunks, one of them " +
			"while another is attended"},
		{&f.dkvWire, "dkv-wire", "", "dtype of travelling dk, dv: `f32`, bf16, or f64 if --dtype " +
			"is (default that of the sums)"},
		{&f.dkvWindow, "dkv-window", "fold", "how dk, dv cross windows of the double ring: " +
			"`fold` or local"},
		{&f.topology, "topology", "", "the cluster that auto and balanced go by, a YAML or JSON " +
			"`file` (default nodes of 8 ranks with 400 TFLOP/s each, links of 400 and 50 GB/s)"},
		{&f.rankMemory, "rank-memory", "", "the most tensor `bytes` of a rank, such as 80G: auto " +
			"leaves out what takes more, other plans are refused"},
		{&f.device, "device", "cpu", "where ranks compute: `cpu`"},
		{&f.procs, "procs", "0", "rank processes: `0`, all ranks in this one"},
		{&f.transport, "transport", "auto", "how blocks cross: `auto` or inproc"},
	} {
		set.StringVar(x.to, x.name, x.value, x.help)
	}
}

// laterFlag is a flag that the command line knows and this version does not do, or does in another
// command only.
type laterFlag struct {
	flag  string
	value *string
	works string
	other bool // another command does it
}

func (f *attendFlags) later() []laterFlag {
	return f.without([]laterFlag{
		{"faults", &f.faults, "this version injects no faults", false},
		{"audit", &f.audit, "this version checks results with --check", false},
		{"heartbeat", &f.heartbeat, "this version has --deadline", false},
		{"trace", &f.trace, "use kvloom attend or kvloom sim", true},
		{"world-seed", &f.worldSeed, "it draws the delays of kvloom sim, use that; --seed draws " +
			"the inputs", true},
		{"replay", &f.replay, "it repeats a run of kvloom sim, use that", true},
	})
}

// refuse says why the flag does nothing here.
func (x *laterFlag) refuse() error {
	if x.other {
		return badValue(x.flag, *x.value, "has no meaning here: %s", x.works)
	}
	return notYet(x.flag, *x.value, x.works)
}

// without leaves out the flags that the command at hand does.
func (f *attendFlags) without(flags []laterFlag) []laterFlag {
	return slices.DeleteFunc(flags, func(x laterFlag) bool {
		return slices.Contains(f.does, x.flag)
	})
}

// auto is the value of flags that leave a choice to the modelled cost.
const auto = "auto"

// choice is a flag whose value is one of some words.
type choice struct {
	flag, value  string
	works, later []string
}

func (f *attendFlags) choices() []choice {
	return []choice{
		{"dtype", f.dtype, []string{"f32", "bf16", "f64"}, nil},
		{"placement", f.placement, []string{"head-first", "context-first"}, nil},
		{"scheme", f.scheme, append(ringbus.Names(), auto), nil},
		{"lanes", f.lanes, []string{"1", "2"}, nil},
		{"rotate", f.rotate, []string{"kv", "q", auto}, nil},
		{"dkv-window", f.dkvWindow, []string{"fold", "local"}, nil},
		{"device", f.device, []string{"cpu"}, []string{"cuda"}},
		{"transport", f.transport, []string{"auto", "inproc"}, []string{"shm", "tcp", "nats"}},
	}
}

// check gives an error unless the value is one of those that work.
func (c *choice) check() error {
	switch {
	case slices.Contains(c.works, c.value):
		return nil
	case slices.Contains(c.later, c.value):
		return notYet(c.flag, c.value, "this version has "+listed(c.works, "and"))
	}
	return badValue(c.flag, c.value, "is unknown: use %s", listed(c.works, "or"))
}

// listed puts words into a list with a last word before the last one.
func listed(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
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
