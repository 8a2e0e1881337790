package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/plan"
)

// report is attend's JSON object. What is not known, because a run failed or was not asked for, is
// left out. Counts, bytes and seconds are those of one round, the mean over --rounds.
type report struct {
	OK      bool         `json:"ok"`
	Error   *failureJSON `json:"error,omitempty"`
	Mesh    *meshJSON    `json:"mesh,omitempty"`
	Scheme  string       `json:"scheme,omitempty"`
	Layout  string       `json:"layout,omitempty"`
	Mask    string       `json:"mask,omitempty"`
	Tokens  int          `json:"tokens,omitempty"`
	Heads   int          `json:"heads,omitempty"`
	KVHeads int          `json:"kv_heads,omitempty"`
	Dim     int          `json:"dim,omitempty"`
	waysJSON
	DType          string         `json:"dtype,omitempty"`
	Seed           *uint64        `json:"seed,omitempty"`
	Scale          *number        `json:"scale,omitempty"`
	Rounds         int            `json:"rounds,omitempty"`
	PlanHash       string         `json:"plan_hash,omitempty"`
	Kernels        string         `json:"kernels,omitempty"`
	Check          *verdict       `json:"check,omitempty"`
	Sends          *sendsJSON     `json:"sends,omitempty"`
	Links          map[string]int `json:"links,omitempty"`
	Bytes          *bytesJSON     `json:"bytes,omitempty"`
	Flops          []int64        `json:"flops,omitempty"`
	Imbalance      *number        `json:"imbalance,omitempty"`
	PeakBytes      []int64        `json:"peak_bytes,omitempty"`
	ExposedSeconds []number       `json:"exposed_seconds,omitempty"`
	Seconds        *secondsJSON   `json:"seconds,omitempty"`
	TFlops         *number        `json:"tflops,omitempty"`
	Digests        *digestsJSON   `json:"digests,omitempty"`

	homeTokens []int // of each rank, for the table
}

// waysJSON is what else is unusual about a problem and its plan; what is usual is left out, but the
// dimension of values and what goes round backward.
type waysJSON struct {
	VDim       int         `json:"v_dim,omitempty"`
	Documents  int         `json:"documents,omitempty"`
	SoftCap    number      `json:"softcap,omitempty"`
	Sink       bool        `json:"sink,omitempty"`
	Rotate     string      `json:"rotate,omitempty"`
	Lanes      int         `json:"lanes,omitempty"`
	HeadChunks int         `json:"head_chunks,omitempty"`
	DKVWire    string      `json:"dkv_wire,omitempty"`
	Choice     *choiceJSON `json:"choice,omitempty"`
}

// choiceJSON is what auto chose, with the modelled seconds of a round of each pass, and why: of so
// many candidates that can be; those that cannot, or were not priced, are counted apart.
type choiceJSON struct {
	Layout     string `json:"layout"`
	Scheme     string `json:"scheme"`
	Rotate     string `json:"rotate"`
	Seconds    number `json:"seconds"`
	Why        string `json:"why"`
	Candidates int    `json:"candidates"`
	Refused    int    `json:"refused,omitempty"`
}

// ways is what a report says of the request besides the usual.
func (r *request) ways() waysJSON {
	x := waysJSON{VDim: r.vDim, SoftCap: number(r.softCap), Sink: r.sink, Rotate: r.rotateName(),
		HeadChunks: r.options.HeadChunks, Choice: r.choiceJSON()}
	if r.docs != nil {
		x.Documents = len(r.docs) - 1
	}
	if n := r.ring.LaneCount(); n > 1 {
		x.Lanes = n
	}
	if r.options.NarrowDKV {
		x.DKVWire = tensors.BF16.String()
	}
	return x
}

func (r *request) choiceJSON() *choiceJSON {
	if r.choice == nil {
		return nil
	}
	c, possible := r.choice.Chosen(), r.choice.Possible()
	return &choiceJSON{Layout: c.Layout, Scheme: c.Scheme, Rotate: c.Rotate,
		Seconds: seconds(c.Nanos), Why: r.choice.Why, Candidates: possible,
		Refused: len(r.choice.Rows) - possible}
}

type meshJSON struct {
	Head      int    `json:"head"`
	Ring      int    `json:"ring"`
	Inner     int    `json:"inner"`
	Placement string `json:"placement"`
}

// sendsJSON are blocks handed to a link, the most of any rank.
type sendsJSON struct {
	KVForward  int64 `json:"kv_forward"`
	KVBackward int64 `json:"kv_backward"`
	DKV        int64 `json:"dkv"`
	Pieces     int64 `json:"pieces"`
	travelJSON[int64]
}

// bytesJSON is payload sent, by rank.
type bytesJSON struct {
	A2AForward  []int64 `json:"a2a_forward"`
	KVForward   []int64 `json:"kv_forward"`
	KVBackward  []int64 `json:"kv_backward"`
	DKV         []int64 `json:"dkv"`
	A2ABackward []int64 `json:"a2a_backward"`
	travelJSON[[]int64]
}

// travelJSON is of queries that travel, parts of out on their way home, and dq; without any it is
// left out.
type travelJSON[E any] struct {
	QForward    E `json:"q_forward,omitempty"`
	PartForward E `json:"part_forward,omitempty"`
	QBackward   E `json:"q_backward,omitempty"`
	DQ          E `json:"dq,omitempty"`
}

type secondsJSON struct {
	Forward  number `json:"forward"`
	Backward number `json:"backward"`
}

type digestsJSON struct {
	Out string `json:"out"`
	LSE string `json:"lse"`
	DQ  string `json:"dq,omitempty"`
	DK  string `json:"dk,omitempty"`
	DV  string `json:"dv,omitempty"`
	// DSink is of the sinks' gradient [heads], as it was summed.
	DSink string `json:"dsink,omitempty"`
}

// number is a float in JSON, null when it is none.
type number float64

// MarshalJSON writes the shortest digits that read back the same, or null.
func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

func ref(x float64) *number { n := number(x); return &n }

// newReport has what is known before the run.
func newReport(r *request) *report {
	x := &report{
		Mesh: &meshJSON{Head: r.mesh.Head, Ring: r.mesh.Ring, Inner: r.inner(),
			Placement: r.mesh.Placement.String()},
		Scheme: r.scheme, Layout: r.layoutText(), Mask: r.maskName, waysJSON: r.ways(),
		Tokens: r.tokens, Heads: r.heads, KVHeads: r.kvHeads, Dim: r.dim,
		DType: r.dtype.String(), Scale: ref(r.scale), Rounds: r.rounds, Kernels: r.kernels.String(),
	}
	if r.inPath == "" {
		x.Seed = &r.seed // a file's tensors are drawn from none
	}
	return x
}

// account fills in what the ranks did.
func (x *report) account(p *plan.Plan, r *request, ranks []kvloom.Figures,
	spent [2]time.Duration,
) error {
	rounds := int64(r.rounds)
	x.Sends, x.Bytes = &sendsJSON{}, &bytesJSON{}
	for i := range ranks {
		f := &ranks[i]
		blocks := func(c plan.Class) int64 { return f.Blocks[c] / rounds }
		x.Sends.KVForward = max(x.Sends.KVForward, blocks(plan.KVForward))
		x.Sends.KVBackward = max(x.Sends.KVBackward, blocks(plan.KVBackward))
		x.Sends.DKV = max(x.Sends.DKV, blocks(plan.DKVHops))
		x.Sends.Pieces = max(x.Sends.Pieces, blocks(plan.A2AForward)+blocks(plan.A2ABackward))
		for _, c := range []struct {
			class plan.Class
			sends *int64
			bytes *[]int64
		}{
			{plan.A2AForward, nil, &x.Bytes.A2AForward}, {plan.KVForward, nil, &x.Bytes.KVForward},
			{plan.KVBackward, nil, &x.Bytes.KVBackward}, {plan.DKVHops, nil, &x.Bytes.DKV},
			{plan.A2ABackward, nil, &x.Bytes.A2ABackward},
			{plan.QForward, &x.Sends.QForward, &x.Bytes.QForward},
			{plan.PartForward, &x.Sends.PartForward, &x.Bytes.PartForward},
			{plan.QBackward, &x.Sends.QBackward, &x.Bytes.QBackward},
			{plan.DQHops, &x.Sends.DQ, &x.Bytes.DQ},
		} {
			*c.bytes = append(*c.bytes, f.Bytes[c.class]/rounds)
			if c.sends != nil {
				*c.sends = max(*c.sends, blocks(c.class))
			}
		}
		x.PeakBytes = append(x.PeakBytes, f.PeakBytes)
		exposed := time.Duration(f.ExposedNanos / rounds)
		x.ExposedSeconds = append(x.ExposedSeconds, number(exposed.Seconds()))
		x.homeTokens = append(x.homeTokens, f.Tokens)
	}
	x.Bytes.leaveOut()
	x.Seconds = &secondsJSON{
		Forward:  number((spent[plan.Forward] / time.Duration(rounds)).Seconds()),
		Backward: number((spent[plan.Backward] / time.Duration(rounds)).Seconds()),
	}
	return x.countWork(p, r)
}

// leaveOut drops the classes of which no rank sent anything, where they may be left out.
func (x *bytesJSON) leaveOut() {
	for _, list := range []*[]int64{&x.QForward, &x.PartForward, &x.QBackward, &x.DQ} {
		if slices.Max(*list) == 0 {
			*list = nil
		}
	}
}

// sent is all that a rank sent, in bytes.
func (x *bytesJSON) sent(rank int) int64 {
	sum := int64(0)
	for _, list := range [][]int64{
		x.A2AForward, x.KVForward, x.KVBackward, x.DKV, x.A2ABackward, x.QForward, x.PartForward,
		x.QBackward, x.DQ,
	} {
		if rank < len(list) {
			sum += list[rank]
		}
	}
	return sum
}

// countWork fills in the arithmetic that the plan gives each rank.
func (x *report) countWork(p *plan.Plan, r *request) error {
	h := p.Header()
	all := 0.0
	for rank := range h.Ranks {
		for _, pass := range r.passes() {
			prog, err := p.Program(pass, rank)
			if err != nil {
				return err
			}
			c := plan.Count(h, prog)
			all += float64(c.Flops)
			if pass == plan.Forward {
				x.Flops = append(x.Flops, c.Flops)
			}
		}
	}
	largest, sum := 0.0, 0.0
	for _, f := range x.Flops {
		largest, sum = max(largest, float64(f)), sum+float64(f)
	}
	x.Imbalance = ref(1)
	if sum > 0 {
		x.Imbalance = ref(largest / (sum / float64(h.Ranks)))
	}
	x.TFlops = ref(all / float64(x.Seconds.Forward+x.Seconds.Backward) / 1e12)
	return nil
}

// digestsOf are the digests of results: out and gradients in the dtype, lse and dsink as they were
// summed.
func digestsOf[T attn.Float](dtype tensors.DType, out kvloom.Outputs[T]) *digestsJSON {
	d := &digestsJSON{Out: tensors.DigestAs(dtype, out.Out), LSE: tensors.Digest(out.LSE)}
	if out.DQ != nil {
		d.DQ, d.DK = tensors.DigestAs(dtype, out.DQ), tensors.DigestAs(dtype, out.DK)
		d.DV = tensors.DigestAs(dtype, out.DV)
	}
	if out.DSink != nil {
		d.DSink = tensors.Digest(out.DSink)
	}
	return d
}

// writeJSON writes one object on one line.
func writeJSON(w io.Writer, x any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // links are written 2->3
	if err := e.Encode(x); err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	return nil
}
