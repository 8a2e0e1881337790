package main

import (
	"slices"
	"strconv"
	"time"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/safetensors"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// Values of --check.
const (
	checkAuto = "auto"
	checkFull = "full"
)

// Limits of what a plan does not bound.
const (
	maxRounds   = 1 << 29
	maxPatience = 24 * time.Hour
)

// request is what attend was asked for, checked: everything that can be known before a rank
// starts.
type request struct {
	demo                        bool
	tokens, heads, kvHeads, dim int
	dtype                       tensors.DType
	scale                       float64
	seed                        uint64
	mask                        string
	mesh                        mesh.Mesh
	scheme                      string
	ring                        ringbus.Ring
	layout                      mesh.Layout
	inPath, outPath             string
	in                          *safetensors.File // nil: inputs are drawn
	backward                    bool
	check                       string // "", checkAuto or checkFull
	rounds                      int
	deadline                    time.Duration
	json, quiet                 bool
	log                         string
}

// newRequest reads and checks the flags. The caller closes the request.
func newRequest(f *attendFlags) (*request, error) {
	for _, x := range f.later() {
		if f.set.Changed(x.flag) {
			return nil, notYet(x.flag, *x.value, x.works)
		}
	}
	for _, c := range f.choices() {
		if err := c.check(); err != nil {
			return nil, err
		}
	}
	r := &request{
		mask: f.mask, inPath: f.in, outPath: f.out, backward: f.backward, json: f.json,
		quiet: f.quiet, log: f.log, demo: f.demonstration(),
	}
	for _, read := range []func(*attendFlags) error{
		r.readRun, r.readMesh, r.readProblem, r.readFiles, r.agree,
	} {
		if err := read(f); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

// close gives back the input file.
func (r *request) close() {
	if r.in != nil {
		_ = r.in.Close() // opened for reading: nothing can be lost
		r.in = nil
	}
}

// readRun reads what is to be done with the problem.
func (r *request) readRun(f *attendFlags) (err error) {
	if r.rounds, err = parseCount("rounds", f.rounds, maxRounds); err != nil {
		return err
	}
	if f.set.Changed("deadline") {
		if r.deadline, err = parseDeadline(f.deadline); err != nil {
			return err
		}
	}
	r.check = f.check
	if f.set.Changed("check") && f.check != checkAuto && f.check != checkFull {
		return badValue("check", f.check, "is unknown: use --check, --check=auto or --check=full")
	}
	if r.demo {
		r.backward, r.check = true, checkAuto
	}
	if f.set.Changed("log") && !slices.Contains(logLevels(), f.log) {
		return badValue("log", f.log, "is unknown: use --log=debug, info, warn or error")
	}
	return nil
}

// readMesh reads who the ranks are and how blocks travel.
func (r *request) readMesh(f *attendFlags) (err error) {
	if r.demo {
		f.mesh = "2x4"
	}
	if r.mesh, err = parseMesh(f.mesh); err != nil {
		return err
	}
	if r.mesh.Placement, err = mesh.ParsePlacement(f.placement); err != nil {
		return badValue("placement", f.placement, "%v", err)
	}
	if r.layout, err = mesh.ParseLayout(f.layout); err != nil {
		return badValue("layout", f.layout, "%v", err)
	}
	for _, x := range []struct {
		flag, value string
		works       uint64
		what        string
	}{
		{"procs", f.procs, 0, "this version has --procs 0, all ranks in one process"},
		{"head-chunks", f.headChunks, 1, "this version has --head-chunks 1"},
	} {
		n, err := parseSize(x.value)
		switch {
		case err != nil:
			return badValue(x.flag, x.value, "%v", err)
		case n < x.works:
			return badValue(x.flag, x.value, "use %d", x.works)
		case n != x.works:
			return notYet(x.flag, x.value, x.what)
		}
	}
	return r.readInner(f)
}

// readInner reads how the ring goes: its inner window, lanes and the way of dk, dv.
func (r *request) readInner(f *attendFlags) error {
	r.scheme = f.scheme
	if f.lanes == "2" {
		r.ring.Lanes = 2
	}
	if f.dkvWindow == "local" {
		r.ring.DKV = ringbus.Local
	}
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
	r.ring.Inner = w
	if err := r.ring.Validate(r.mesh); err != nil {
		return badValue("inner", f.inner, "does not divide the ring degree %d of --mesh %dx%d: "+
			"use %s", r.mesh.Ring, r.mesh.Head, r.mesh.Ring, divisors(r.mesh.Ring))
	}
	if w == r.mesh.Ring {
		r.ring.Inner = 0 // one window: the same plan, under the same name
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

// readProblem reads the shape; a file given with --in replaces it later.
func (r *request) readProblem(f *attendFlags) (err error) {
	if r.demo {
		f.tokens, f.kvHeads = "1K", "2"
	}
	if r.dtype, err = tensors.ParseDType(f.dtype); err != nil {
		return badValue("dtype", f.dtype, "%v", err)
	}
	for _, x := range []struct {
		to          *int
		flag, value string
		most        int
	}{
		{&r.tokens, "tokens", f.tokens, plan.MaxTokens},
		{&r.heads, "heads", f.heads, plan.MaxHeads},
		{&r.kvHeads, "kv-heads", f.kvHeads, plan.MaxHeads},
		{&r.dim, "dim", f.dim, plan.MaxDim},
	} {
		if x.flag == "kv-heads" && x.value == "" && !f.set.Changed(x.flag) {
			r.kvHeads = r.heads
			continue
		}
		if *x.to, err = parseCount(x.flag, x.value, x.most); err != nil {
			return err
		}
	}
	r.seed, err = parseSeed("seed", f.seed)
	return err
}

// readFiles looks into the input file and at the place of the output file.
func (r *request) readFiles(f *attendFlags) error {
	for _, x := range []struct{ flag, path, what string }{
		{"in", r.inPath, "safetensors"}, {"out", r.outPath, "safetensors"},
		{"trace", f.trace, "JSON"}, {"topology", f.topology, "YAML or JSON"},
	} {
		if f.set.Changed(x.flag) && x.path == "" {
			return badValue(x.flag, "", "needs the path of a %s file", x.what)
		}
	}
	if r.inPath != "" {
		if err := r.openInput(f.set); err != nil {
			return err
		}
	}
	return r.checkOutput()
}

// agree checks what flags and file say together.
func (r *request) agree(f *attendFlags) (err error) {
	r.scale = defaultScale(r.dim)
	if f.set.Changed("scale") {
		if r.scale, err = parseScale(f.scale, r.dtype == tensors.F32, r.dim); err != nil {
			return err
		}
	}
	if err := r.agreeWire(f); err != nil {
		return err
	}
	if err := mesh.ValidateHeads(r.heads, r.kvHeads, 1); err != nil {
		if r.in != nil {
			return badValue("in", r.inPath, "%v", err)
		}
		return badLaw("kv-heads", strconv.Itoa(r.kvHeads), err)
	}
	if err := mesh.ValidateHeads(r.heads, r.kvHeads, r.mesh.Head); err != nil {
		return badValue("mesh", f.mesh, "%v", err)
	}
	if !f.set.Changed("deadline") {
		r.deadline = r.patience()
	}
	if f.modelled {
		return nil
	}
	return r.fitsMemory()
}

// agreeWire refuses a dtype for travelling dk, dv that is not the one they are summed in: this
// version rounds nothing on the way.
func (r *request) agreeWire(f *attendFlags) error {
	if !f.set.Changed("dkv-wire") {
		return nil
	}
	wire := choice{"dkv-wire", f.dkvWire, []string{"f32", "f64"}, []string{"bf16"}}
	if err := wire.check(); err != nil {
		return err
	}
	sums := tensors.F32
	if r.dtype.AccBytes() == tensors.F64.Bytes() {
		sums = tensors.F64
	}
	if f.dkvWire != sums.String() {
		return badValue("dkv-wire", f.dkvWire, "dk, dv of dtype %v are summed in %v and travel as "+
			"that: leave --dkv-wire out", r.dtype, sums)
	}
	return nil
}

// patience is the deadline of a rank when none is asked for: the usual one, and the time of one
// ring step of all ranks on a slow machine, during which no rank sees progress.
func (r *request) patience() time.Duration {
	const slowFlops = 2e9 // a second
	flops := 10 * float64(r.tokens) * float64(r.tokens) * float64(r.heads) * float64(r.dim)
	seconds := min(flops/float64(r.mesh.Ring)/slowFlops, maxPatience.Seconds())
	return kvloom.DefaultDeadline + time.Duration(seconds*float64(time.Second))
}

// attnMask is the mask that the request names.
func (r *request) attnMask() attn.Mask {
	if r.mask == "full" {
		return attn.Full(r.tokens, r.tokens)
	}
	return attn.Causal(r.tokens, r.tokens)
}

// config is the session that the request needs, without what listens to it.
func (r *request) config() kvloom.Config {
	axis, err := ringbus.Make(r.scheme, r.ring)
	if err != nil {
		panic(err) // the flag's words are the schemes' names
	}
	return kvloom.Config{
		Mesh: r.mesh, Layout: r.layout, Ring: axis, Deadline: r.deadline,
		Problems: []kvloom.Problem{{
			Tokens: r.tokens, Heads: r.heads, KVHeads: r.kvHeads, Dim: r.dim, Scale: r.scale,
			Mask: r.attnMask(), ElemBytes: r.dtype.Bytes(), AccBytes: r.dtype.AccBytes(),
		}},
	}
}

// elements are the sizes of one tensor over the query heads and one over the KV heads.
func (r *request) elements() (query, kv int) {
	return r.tokens * r.heads * r.dim, r.tokens * r.kvHeads * r.dim
}
