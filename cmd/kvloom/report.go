package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/plan"
)

// report is attend's JSON object. What is not known, because a run failed or was not asked for, is
// left out. Counts, bytes and seconds are those of one round, the mean over --rounds.
type report struct {
	OK             bool           `json:"ok"`
	Error          *failureJSON   `json:"error,omitempty"`
	Mesh           *meshJSON      `json:"mesh,omitempty"`
	Scheme         string         `json:"scheme,omitempty"`
	Layout         string         `json:"layout,omitempty"`
	Mask           string         `json:"mask,omitempty"`
	Tokens         int            `json:"tokens,omitempty"`
	Heads          int            `json:"heads,omitempty"`
	KVHeads        int            `json:"kv_heads,omitempty"`
	Dim            int            `json:"dim,omitempty"`
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
}

// bytesJSON is payload sent, by rank.
type bytesJSON struct {
	A2AForward  []int64 `json:"a2a_forward"`
	KVForward   []int64 `json:"kv_forward"`
	KVBackward  []int64 `json:"kv_backward"`
	DKV         []int64 `json:"dkv"`
	A2ABackward []int64 `json:"a2a_backward"`
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
		Scheme: r.scheme, Layout: r.layout.String(), Mask: r.mask,
		Tokens: r.tokens, Heads: r.heads, KVHeads: r.kvHeads, Dim: r.dim,
		DType: r.dtype.String(), Scale: ref(r.scale), Rounds: r.rounds, Kernels: "portable",
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
		for class, to := range map[plan.Class]*[]int64{
			plan.A2AForward: &x.Bytes.A2AForward, plan.KVForward: &x.Bytes.KVForward,
			plan.KVBackward: &x.Bytes.KVBackward, plan.DKVHops: &x.Bytes.DKV,
			plan.A2ABackward: &x.Bytes.A2ABackward,
		} {
			*to = append(*to, f.Bytes[class]/rounds)
		}
		x.PeakBytes = append(x.PeakBytes, f.PeakBytes)
		exposed := time.Duration(f.ExposedNanos / rounds)
		x.ExposedSeconds = append(x.ExposedSeconds, number(exposed.Seconds()))
		x.homeTokens = append(x.homeTokens, f.Tokens)
	}
	x.Seconds = &secondsJSON{
		Forward:  number((spent[plan.Forward] / time.Duration(rounds)).Seconds()),
		Backward: number((spent[plan.Backward] / time.Duration(rounds)).Seconds()),
	}
	return x.countWork(p, r)
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
	x.Imbalance = ref(largest / (sum / float64(h.Ranks)))
	x.TFlops = ref(all / float64(x.Seconds.Forward+x.Seconds.Backward) / 1e12)
	return nil
}

func digestsOf[T attn.Float](out kvloom.Outputs[T]) *digestsJSON {
	d := &digestsJSON{Out: tensors.Digest(out.Out), LSE: tensors.Digest(out.LSE)}
	if out.DQ != nil {
		d.DQ, d.DK, d.DV = tensors.Digest(out.DQ), tensors.Digest(out.DK), tensors.Digest(out.DV)
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
