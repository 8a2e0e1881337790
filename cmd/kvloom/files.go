package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/safetensors"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/plan"
)

// openInput opens the input file, checks its tensors and takes the problem's shape from it.
func (r *request) openInput(f *attendFlags) error {
	bad := func(problem string, args ...any) error {
		return badValue("in", r.inPath, problem, args...)
	}
	file, err := safetensors.Open(r.inPath)
	if err != nil {
		return bad("%s", fileProblem(err))
	}
	r.in = file
	q, err := r.inputShape("q", "tokens, heads, dim")
	if err != nil {
		return err
	}
	k, err := r.inputShape("k", "tokens, kv heads, dim")
	if err != nil {
		return err
	}
	v, err := r.inputShape("v", "tokens, kv heads, dim of the values")
	if err != nil {
		return err
	}
	r.tokens, r.heads, r.kvHeads, r.dim, r.vDim = q[0], q[1], k[1], q[2], v[2]
	if err := r.sameShapes(); err != nil {
		return err
	}
	if r.dtype, err = r.inputDType(); err != nil {
		return err
	}
	if err := r.inputSink(f); err != nil {
		return err
	}
	return r.flagsAgree(f)
}

// inputSink looks for sink logits in the file, which join the sums whether --sink is given or not.
func (r *request) inputSink(f *attendFlags) error {
	t, ok := r.in.Tensor("sink")
	switch {
	case !ok && f.sink:
		return badValue("sink", "true", "--in %s has no tensor \"sink\": add it, in the shape "+
			"[%d], or leave --sink out", show(r.inPath), r.heads)
	case !ok:
		return nil
	case f.set.Changed("sink") && !f.sink:
		return badValue("sink", "false", "--in %s has the tensor \"sink\", which changes the "+
			"result: use a file without it, or leave --sink out", show(r.inPath))
	case len(t.Shape) != 1 || t.Shape[0] != r.heads:
		return badValue("in", r.inPath, "tensor \"sink\" has the shape %v: it must be [%d], a "+
			"logit for each query head", t.Shape, r.heads)
	}
	d, err := r.in.DType("sink")
	if err != nil {
		return badValue("in", r.inPath, "%s", fileProblem(err))
	}
	if d.Bytes() > r.dtype.AccBytes() {
		return badValue("in", r.inPath, "tensor \"sink\" is %v, but q, k and v are %v, whose "+
			"sums are f32: store the sink as f32 or bf16, or all tensors as f64", d, r.dtype)
	}
	data, err := safetensors.Read[float64](r.in, "sink")
	if err != nil {
		return badValue("in", r.inPath, "%s", fileProblem(err))
	}
	for h, x := range data {
		if math.IsNaN(x) || math.IsInf(x, 1) {
			return badValue("in", r.inPath, "element %d of the tensor \"sink\" is %v: it must be "+
				"a number, or -Inf for no sink", h, x)
		}
	}
	r.sink = true
	return nil
}

// fileProblem is what an error of a file says, without the path.
func fileProblem(err error) string {
	var e *safetensors.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	return strings.TrimPrefix(err.Error(), "safetensors: "+e.File+": ")
}

// inputShape is the shape of a tensor of three dimensions, none of them empty.
func (r *request) inputShape(name, dims string) ([]int, error) {
	t, ok := r.in.Tensor(name)
	if !ok {
		return nil, badValue("in", r.inPath, "has no tensor %q: it needs q, k and v, and do for "+
			"--backward", name)
	}
	if len(t.Shape) != 3 {
		return nil, badValue("in", r.inPath, "tensor %q has the shape %v: it must be [%s]", name,
			t.Shape, dims)
	}
	for i, most := range []int{plan.MaxTokens, plan.MaxHeads, plan.MaxDim} {
		if t.Shape[i] < 1 || t.Shape[i] > most {
			return nil, badValue("in", r.inPath, "tensor %q has the shape %v: %d must be 1 to %d",
				name, t.Shape, t.Shape[i], most)
		}
	}
	return t.Shape, nil
}

// sameShapes compares k, v and do with what q and v say.
func (r *request) sameShapes() error {
	for _, x := range []struct {
		name       string
		heads, dim int
	}{{"k", r.kvHeads, r.dim}, {"v", r.kvHeads, r.vDim}, {"do", r.heads, r.vDim}} {
		if _, ok := r.in.Tensor(x.name); !ok && x.name == "do" {
			if r.backward {
				return badValue("in", r.inPath, "has no tensor \"do\", which --backward needs: "+
					"add it, in the shape of out, or leave --backward out")
			}
			continue
		}
		have, err := r.inputShape(x.name, "tokens, heads, dim")
		if err != nil {
			return err
		}
		if have[0] != r.tokens || have[1] != x.heads || have[2] != x.dim {
			return badValue("in", r.inPath, "tensor %q has the shape %v, but q [%d %d %d] needs "+
				"[%d %d %d]", x.name, have, r.tokens, r.heads, r.dim, r.tokens, x.heads, x.dim)
		}
	}
	return nil
}

// inputDType is the one dtype of the tensors.
func (r *request) inputDType() (tensors.DType, error) {
	var first tensors.DType
	for i, name := range []string{"q", "k", "v", "do"} {
		if _, ok := r.in.Tensor(name); !ok {
			continue // do, when no backward pass is asked for
		}
		d, err := r.in.DType(name)
		switch {
		case err != nil:
			return 0, badValue("in", r.inPath, "%s", fileProblem(err))
		case i == 0:
			first = d
		case d != first:
			return 0, badValue("in", r.inPath, "tensor %q is %v and \"q\" %v: store all in one "+
				"dtype", name, d, first)
		}
	}
	return first, nil
}

// flagsAgree refuses flags that say something else than the file.
func (r *request) flagsAgree(f *attendFlags) error {
	set := f.set
	for _, x := range []struct {
		flag string
		has  int
	}{
		{"tokens", r.tokens}, {"heads", r.heads}, {"kv-heads", r.kvHeads}, {"dim", r.dim},
		{"v-dim", r.vDim},
	} {
		value := set.Lookup(x.flag).Value.String()
		if n, err := parseSize(value); set.Changed(x.flag) && (err != nil || n != uint64(x.has)) {
			return disagrees(x.flag, value, strconv.Itoa(x.has), r.inPath)
		}
	}
	if r.docs != nil && r.docs[len(r.docs)-1] != r.tokens {
		return badValue("docs", f.docs, "ends with %d, --in %s has %d tokens: end it with %d",
			r.docs[len(r.docs)-1], show(r.inPath), r.tokens, r.tokens)
	}
	value := set.Lookup("dtype").Value.String()
	if set.Changed("dtype") && value != r.dtype.String() {
		return disagrees("dtype", value, r.dtype.String(), r.inPath)
	}
	return nil
}

func disagrees(flag, value, has, path string) error {
	return badValue(flag, value, "--in %s has %s %s: leave --%s out, or use %s", show(path), flag,
		has, flag, has)
}

// checkOutput refuses an output path at which no file can be made. Nothing is left behind.
func (r *request) checkOutput() error {
	if r.outPath == "" {
		return nil
	}
	target, info, err := outputTarget(r.outPath)
	if err != nil {
		return badValue("out", r.outPath, "no file can be made there (%v): use another path", err)
	}
	if info != nil && !info.Mode().IsRegular() {
		return badValue("out", r.outPath, "is there and is no regular file: use another path")
	}
	if in, e := os.Stat(r.inPath); r.inPath != "" && e == nil && os.SameFile(in, info) {
		return badValue("out", r.outPath, "is the file of --in, which would be lost: use another "+
			"path")
	}
	probe, err := os.CreateTemp(filepath.Dir(target), ".kvloom-*.tmp")
	if err != nil {
		return badValue("out", r.outPath, "no file can be made there (%v): use a folder that is "+
			"there and can be written to", withoutPath(err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// outputTarget is the file that path names, through links. Info is nil when it is not there yet; a
// link that leads nowhere is an error.
func outputTarget(path string) (target string, info os.FileInfo, err error) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return path, nil, nil // whether its folder is there, the probe tells
	}
	info, err = os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, errors.New("it is a link that leads nowhere")
	}
	if err == nil {
		target, err = filepath.EvalSymlinks(path)
	}
	return target, info, withoutPath(err)
}

// withoutPath is the reason of a file's error without the path, which the message has already.
func withoutPath(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// loadInputs reads or draws the problem's tensors. Drawn ones are rounded to the dtype.
func loadInputs[T attn.Float](r *request) (kvloom.Inputs[T], error) {
	var in kvloom.Inputs[T]
	q, k, v, out := r.elements()
	for _, x := range []struct {
		to   *[]T
		name string
		n    int
		skip bool
	}{
		{&in.Q, "q", q, false}, {&in.K, "k", k, false}, {&in.V, "v", v, false},
		{&in.DO, "do", out, !r.backward}, {&in.Sink, "sink", r.heads, !r.sink},
	} {
		switch {
		case x.skip:
		case r.in == nil:
			*x.to = tensors.Draw[T](r.seed, x.name, x.n)
			if r.dtype == tensors.BF16 {
				tensors.RoundBF16(*x.to)
			}
		default:
			data, err := safetensors.Read[T](r.in, x.name)
			if err != nil {
				return in, badValue("in", r.inPath, "%s", fileProblem(err))
			}
			*x.to = data
		}
	}
	return in, nil
}

// saveOutputs writes the results, if a file was asked for: out and gradients in the dtype, lse and
// dsink as they were summed.
func saveOutputs[T attn.Float](r *request, out kvloom.Outputs[T], planHash string) error {
	if r.outPath == "" {
		return nil
	}
	tensor := func(name string, heads, dim int, data []T) safetensors.Field {
		return safetensors.NewFieldAs(name, r.dtype, []int{r.tokens, heads, dim}, data)
	}
	fields := []safetensors.Field{
		tensor("out", r.heads, r.vDim, out.Out),
		safetensors.NewField("lse", []int{r.tokens, r.heads}, out.LSE),
	}
	if r.backward {
		fields = append(fields, tensor("dq", r.heads, r.dim, out.DQ),
			tensor("dk", r.kvHeads, r.dim, out.DK), tensor("dv", r.kvHeads, r.vDim, out.DV))
	}
	if out.DSink != nil {
		fields = append(fields, safetensors.NewField("dsink", []int{r.heads}, out.DSink))
	}
	err := safetensors.Write(r.outPath, fields, map[string]string{"plan_hash": planHash})
	if err != nil {
		return &unwritable{fmt.Errorf("--out %s: %s", show(r.outPath), fileProblem(err))}
	}
	return nil
}
