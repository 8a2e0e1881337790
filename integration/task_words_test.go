package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/safetensors"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/ringbus"
)

// files keeps what a command line needs besides flags, in a folder that is made when it is needed
// and outlives the test.
type files struct{ dir string }

// path is a file in the folder.
func (f *files) path(name string) (string, error) {
	if f.dir == "" {
		dir, err := os.MkdirTemp("", "kvloom-any-")
		if err != nil {
			return "", err
		}
		f.dir = dir
	}
	return filepath.Join(f.dir, name), nil
}

// command is the line that repeats the task, but for what no flag says: that is in a comment
// behind it. Without files it names those that it would need.
func (c task) command(f *files) string {
	words := []string{"kvloom attend --backward --check"}
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	add("--tokens %d --heads %d --kv-heads %d --dim %d", c.tokens, c.heads, c.kvHeads, c.dim)
	if c.vdim != c.dim {
		add("--v-dim %d", c.vdim)
	}
	add("--dtype %v --seed %d", c.dtype, c.seed)
	if c.scale != 1 {
		add("--scale %v", c.logitScale())
	}
	if c.softCap != 0 {
		add("--softcap %v", c.softCap)
	}
	docs := c.docs
	if word := c.layoutWord(); docs == nil && (word == "doc-zigzag" || word == "whole-doc") {
		docs = []int{0, c.tokens} // one document, which the layout asks for
	}
	if docs != nil {
		add("--docs %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(docs), " ", ","), "[]"))
	}
	if c.word != "" {
		add("--mask %s", c.word)
	} else {
		add("--slices %s", f.slices(c.slices))
	}
	if c.sink {
		add("--in %s", f.tensors(&c))
	}
	add("--mesh %dx%d --placement %v --layout %s", c.mesh.Head, c.mesh.Ring, c.mesh.Placement,
		c.layoutWord())
	c.schemeWords(add)
	if rest := c.unsaid(); rest != "" {
		add("  # %s", rest)
	}
	return strings.Join(words, " ")
}

// layoutWord is the layout without its fingerprint.
func (c *task) layoutWord() string {
	word := c.layout.String()
	if s, ok := c.layout.(mesh.Striped); ok {
		return s.String()
	}
	word, _, _ = strings.Cut(word, ":")
	return word
}

func (c *task) schemeWords(add func(format string, args ...any)) {
	add("--scheme %s", c.scheme)
	if c.ring.Inner != 0 {
		add("--inner %d", c.ring.Inner)
	}
	if c.ring.Lanes > 1 {
		add("--lanes %d", c.ring.Lanes)
	}
	if c.ring.DKV == ringbus.Local {
		add("--dkv-window local")
	}
	if c.ring.Rotate == ringbus.RotateQ {
		add("--rotate q")
	}
	if c.opt.HeadChunks > 1 {
		add("--head-chunks %d", c.opt.HeadChunks)
	}
	if c.opt.NarrowDKV {
		add("--dkv-wire bf16")
	}
}

// unsaid is what no flag says.
func (c *task) unsaid() string {
	var out []string
	if c.keys != c.tokens {
		out = append(out, fmt.Sprintf("%d keys, layout %v", c.keys, c.keyLayout))
	}
	if o := c.opt; o.KVSlots+o.OuterSlots+o.DKVSlots+o.Partials > 0 {
		out = append(out, fmt.Sprintf("slots: kv %d, outer %d, dkv %d, partials %d", o.KVSlots,
			o.OuterSlots, o.DKVSlots, o.Partials))
	}
	if c.kernels != "" {
		out = append(out, "kernels "+c.kernels)
	}
	if !c.live {
		out = append(out, fmt.Sprintf("in virtual time, world seed %d", c.world))
	}
	return strings.Join(out, "; ")
}

// slices writes a file of mask slices.
func (f *files) slices(m attn.Mask) string {
	var b strings.Builder
	for _, s := range m {
		lo, hi := "-inf", "inf"
		if s.Lo > -attn.Unbounded {
			lo = fmt.Sprint(s.Lo)
		}
		if s.Hi < attn.Unbounded {
			hi = fmt.Sprint(s.Hi)
		}
		fmt.Fprintf(&b, "%d %d %d %d band:%s,%s\n", s.Q0, s.Q1, s.K0, s.K1, lo, hi)
	}
	if f == nil {
		return fmt.Sprintf("<(printf %q)", b.String())
	}
	path, err := f.path("slices.txt")
	if err == nil {
		err = os.WriteFile(path, []byte(b.String()), 0o600)
	}
	if err != nil {
		return err.Error()
	}
	return path
}

// tensors writes a file of inputs, for what no flag draws.
func (f *files) tensors(c *task) string {
	if f == nil {
		return "FILE"
	}
	var in kvloom.Inputs[float64]
	if c.dtype == tensors.F64 {
		in = taskInputs[float64](c)
	} else {
		in = widened(taskInputs[float32](c))
	}
	path, err := f.path("in.safetensors")
	if err != nil {
		return err.Error()
	}
	field := func(name string, x []float64, shape ...int) safetensors.Field {
		return safetensors.NewFieldAs(name, c.dtype, shape, x)
	}
	err = safetensors.Write(path, []safetensors.Field{
		field("q", in.Q, c.tokens, c.heads, c.dim), field("k", in.K, c.keys, c.kvHeads, c.dim),
		field("v", in.V, c.keys, c.kvHeads, c.vdim), field("do", in.DO, c.tokens, c.heads, c.vdim),
		field("sink", in.Sink, c.heads),
	}, nil)
	if err != nil {
		return err.Error()
	}
	return path
}
