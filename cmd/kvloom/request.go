package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/choose"
	"github.com/kvloom/kvloom/cudakern/cpu"
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
	demo                              bool
	tokens, heads, kvHeads, dim, vDim int
	dtype                             tensors.DType
	scale, softCap                    float64
	sink                              bool
	seed                              uint64
	docs                              []int // cumulative starts of packed documents; nil: one
	maskName                          string
	mask                              attn.Mask
	mesh                              mesh.Mesh
	layoutName                        string // as asked for, or chosen
	layout                            mesh.Layout
	scheme                            string
	ring                              ringbus.Ring
	options                           plan.Options
	topology                          *plan.Topology
	usual                             bool // no topology was given
	rankMemory                        int64
	choice                            *choose.Table // nil: nothing was left open
	plan                              *plan.Plan
	free                              choose.Free
	inPath, outPath                   string
	in                                *safetensors.File // nil: inputs are drawn
	backward                          bool
	check                             string // "", checkAuto or checkFull
	rounds                            int
	deadline                          time.Duration
	json, quiet                       bool
	log                               string
	kernels                           cpu.Kernels
}

// newRequest reads and checks the flags. The caller closes the request.
func newRequest(f *attendFlags) (*request, error) {
	for _, x := range f.later() {
		if f.set.Changed(x.flag) {
			return nil, x.refuse()
		}
	}
	for _, c := range f.choices() {
		if err := c.check(); err != nil {
			return nil, err
		}
	}
	r := &request{
		inPath: f.in, outPath: f.out, backward: f.backward, json: f.json,
		quiet: f.quiet, log: f.log, demo: f.demonstration(),
	}
	for _, read := range []func(*attendFlags) error{
		r.readRun, r.readMesh, r.readProblem, r.readFiles, r.readMask, r.agree, r.readWays,
		r.readCluster, r.choose, r.proveFit, r.readKernels,
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
	n, err := parseSize(f.procs)
	if err != nil {
		return badValue("procs", f.procs, "%v", err)
	}
	if n != 0 {
		return notYet("procs", f.procs, "this version has --procs 0, all ranks in one process")
	}
	return nil
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
		{&r.vDim, "v-dim", f.vDim, plan.MaxDim},
	} {
		if x.value == "" && !f.set.Changed(x.flag) {
			continue // by the others
		}
		if *x.to, err = parseCount(x.flag, x.value, x.most); err != nil {
			return err
		}
	}
	r.usualHeads()
	if r.sink = f.sink; f.set.Changed("docs") {
		if err := r.readDocs(f); err != nil {
			return err
		}
	}
	if r.seed, err = parseSeed("seed", f.seed); err != nil {
		return err
	}
	return nil
}

// kernelsVariable is the environment variable that names the CPU kernels, for tests of each path:
// portable, avx2, avx512, avx512bf16, amx or auto.
const kernelsVariable = "KVLOOM_KERNELS"

// readKernels finds the fastest kernels of the machine, or those that the environment asks for.
func (r *request) readKernels(*attendFlags) (err error) {
	name := os.Getenv(kernelsVariable)
	if r.dtype == tensors.F64 {
		r.kernels, err = cpu.ParseKernels[float64](name)
	} else {
		r.kernels, err = cpu.ParseKernels[float32](name)
	}
	if err != nil {
		return &requestError{problem: fmt.Sprintf("%s=%s: %v", kernelsVariable, show(name), err)}
	}
	shape := r.shape()
	r.kernels = r.kernels.For(&shape)
	return nil
}

// usualHeads fills in what follows from other flags.
func (r *request) usualHeads() {
	if r.kvHeads == 0 {
		r.kvHeads = r.heads
	}
	if r.vDim == 0 {
		r.vDim = r.dim
	}
}

// readDocs reads the documents, which say how many tokens there are.
func (r *request) readDocs(f *attendFlags) (err error) {
	if r.docs, err = parseDocs(f.docs); err != nil {
		return err
	}
	last := r.docs[len(r.docs)-1]
	if f.set.Changed("tokens") && last != r.tokens {
		return badValue("docs", f.docs, "ends with %d, --tokens says %s: leave --tokens out, or "+
			"make both say the same", last, f.tokens)
	}
	r.tokens = last
	return nil
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
		if err := r.openInput(f); err != nil {
			return err
		}
	}
	return r.checkOutput()
}

// agree checks what flags and file say together.
func (r *request) agree(f *attendFlags) (err error) {
	r.scale = defaultScale(r.dim)
	if f.set.Changed("scale") {
		if r.scale, err = parseScale(f.scale, r.dtype != tensors.F64, r.dim); err != nil {
			return err
		}
	}
	if f.set.Changed("softcap") {
		if r.softCap, err = parseCap(f.softcap, r.dtype != tensors.F64); err != nil {
			return err
		}
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

// patience is the deadline of a rank when none is asked for: the usual one, and the time of one
// ring step of all ranks on a slow machine, during which no rank sees progress.
func (r *request) patience() time.Duration {
	const slowFlops = 2e9 // a second
	pairs := float64(r.tokens) * float64(r.tokens)
	flops := 10 * pairs * float64(r.heads) * float64(max(r.dim, r.vDim))
	seconds := min(flops/float64(r.mesh.Ring)/slowFlops, maxPatience.Seconds())
	return kvloom.DefaultDeadline + time.Duration(seconds*float64(time.Second))
}

// shape is the problem as plans have it.
func (r *request) shape() plan.Shape {
	return plan.Shape{
		QTokens: r.tokens, KTokens: r.tokens, QHeads: r.heads, KHeads: r.kvHeads, Dim: r.dim,
		VDim: r.vDim, ElemBytes: r.dtype.Bytes(), AccBytes: r.dtype.AccBytes(), Scale: r.scale,
		Mask: r.mask, SoftCap: r.softCap, Sink: r.sink,
	}
}

// config is the session that the request needs, without what listens to it.
func (r *request) config() kvloom.Config {
	return kvloom.Config{
		Mesh: r.mesh, Layout: r.layout, Ring: r.axis(), Options: r.options, Deadline: r.deadline,
		Kernels: r.kernels.String(),
		Problems: []kvloom.Problem{{
			Tokens: r.tokens, Heads: r.heads, KVHeads: r.kvHeads, Dim: r.dim, VDim: r.vDim,
			Scale: r.scale, Mask: r.mask, SoftCap: r.softCap, Sink: r.sink,
			ElemBytes: r.dtype.Bytes(), AccBytes: r.dtype.AccBytes(),
		}},
	}
}

// elements are the sizes of the tensors: those over query heads of the keys' and of the values'
// dimension, and those over KV heads.
func (r *request) elements() (q, k, v, out int) {
	query, kv := r.tokens*r.heads, r.tokens*r.kvHeads
	return query * r.dim, kv * r.dim, kv * r.vDim, query * r.vDim
}
