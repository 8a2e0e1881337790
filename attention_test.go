package kvloom

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
)

// sharded cuts inputs as an attention says.
func sharded(a *Attention[float32], in Inputs[float32]) (qkv []QKV[float32], do [][]float32) {
	for r := range a.session.Ranks() {
		q, k := a.Shard(r), a.KeyShard(r)
		qkv = append(qkv, QKV[float32]{
			Q: Take(q, in.Q, testHeads*testDim), K: Take(k, in.K, testKVHeads*testDim),
			V: Take(k, in.V, testKVHeads*testDim)})
		do = append(do, Take(q, in.DO, testHeads*testDim))
	}
	return qkv, do
}

// TestStatesInFlight: two layers with different masks and two micro-batches each, forward first,
// then backward in reverse: every state gives what it gives alone.
func TestStatesInFlight(t *testing.T) {
	ctx := context.Background()
	s := open(t, testConfig(mesh.Mesh{Head: 2, Ring: 2}))
	causal := testConfig(mesh.Mesh{}).Problems[0]
	full := causal
	full.Mask = attn.Full(testTokens, testTokens)
	alone := map[[2]int]string{}
	var layers []*Attention[float32]
	for i, p := range []Problem{causal, full} {
		a, err := s.Attention(p)
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, a)
		for batch := range 2 {
			st := a.Begin()
			alone[[2]int{i, batch}] = runState(ctx, t, st, batchInputs(batch))
			st.Release()
		}
	}
	if alone[[2]int{0, 0}] == alone[[2]int{1, 0}] {
		t.Fatal("both masks give the same: the test shows nothing")
	}
	type flight struct {
		key [2]int
		st  *State[float32]
		do  [][]float32
	}
	var flights []flight
	for i, a := range layers {
		for batch := range 2 {
			qkv, do := sharded(a, batchInputs(batch))
			st := a.Begin()
			if _, err := st.Forward(ctx, qkv); err != nil {
				t.Fatal(err)
			}
			flights = append(flights, flight{[2]int{i, batch}, st, do})
		}
	}
	slices.Reverse(flights)
	for _, f := range flights {
		grads, err := f.st.Backward(ctx, f.do)
		if err != nil {
			t.Fatal(err)
		}
		if gradDigest(grads) != alone[f.key] {
			t.Errorf("layer %d, micro-batch %d: in flight with others its gradients differ",
				f.key[0],
				f.key[1])
		}
		f.st.Release()
	}
}

func batchInputs(batch int) Inputs[float32] {
	in := testInputs()
	in.Q = tensors.Draw[float32](uint64(7+batch), "q", len(in.Q))
	return in
}

func runState(ctx context.Context, t *testing.T, st *State[float32], in Inputs[float32]) string {
	t.Helper()
	qkv, do := sharded(st.att, in)
	if _, err := st.Forward(ctx, qkv); err != nil {
		t.Fatal(err)
	}
	grads, err := st.Backward(ctx, do)
	if err != nil {
		t.Fatal(err)
	}
	return gradDigest(grads)
}

func gradDigest(grads []Grads[float32]) string {
	all := ""
	for _, g := range grads {
		all += tensors.Digest(g.DQ) + tensors.Digest(g.DK) + tensors.Digest(g.DV)
	}
	return all
}

// TestStateErrors: what a state refuses, in words that can be matched.
func TestStateErrors(t *testing.T) {
	ctx := context.Background()
	s := open(t, testConfig(mesh.Mesh{Head: 2, Ring: 2}))
	a, err := s.Attention(testConfig(mesh.Mesh{}).Problems[0])
	if err != nil {
		t.Fatal(err)
	}
	qkv, do := sharded(a, testInputs())
	st := a.Begin()
	if _, err := st.Backward(ctx, do); !errors.Is(err, ErrEpoch) {
		t.Errorf("Backward before Forward gives %v", err)
	}
	if err := s.Crash(2); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := st.Forward(ctx, qkv); !errors.Is(err, ErrPeerLost) || !errors.As(err, &e) ||
		e.Rank != 2 {
		t.Errorf("a crashed rank 2 gives %v", err)
	}
	if _, err := st.Backward(ctx, do); !errors.Is(err, ErrEpoch) {
		t.Errorf("Backward after a lost Forward gives %v", err)
	}
	if _, err := st.Forward(ctx, qkv); err != nil {
		t.Errorf("Forward in the next epoch: %v", err)
	}
	if _, err := st.Forward(ctx, qkv[:3]); err == nil {
		t.Error("inputs of three ranks of four are taken")
	}
	qkv[1].K = qkv[1].K[1:]
	if _, err := st.Forward(ctx, qkv); err == nil {
		t.Error("a short k is taken")
	}
	st.Release()
	st.Release()
	if _, err := st.Forward(ctx, qkv); err == nil {
		t.Error("a released state runs")
	}
	bad := testConfig(mesh.Mesh{}).Problems[0]
	bad.Heads, bad.KVHeads = 1, 1
	if _, err := s.Attention(bad); err == nil {
		t.Error("one query head on two head ranks is taken")
	}
}

// TestShardRoundTrip: every per-token array comes back together, each token once.
func TestShardRoundTrip(t *testing.T) {
	s := open(t, testConfig(mesh.Mesh{Head: 3, Ring: 2}))
	a, err := s.Attention(testConfig(mesh.Mesh{}).Problems[0])
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int, testTokens)
	for i := range ids {
		ids[i] = i
	}
	back := make([]int, testTokens)
	for r := range s.Ranks() {
		sh := a.Shard(r)
		rows := Take(sh, ids, 1)
		if !slices.Equal(rows, sh.Positions()) {
			t.Errorf("rank %d: rows %v are not positions %v", r, rows, sh.Positions())
		}
		for i := range rows {
			rows[i]++
		}
		Put(sh, back, rows, 1)
	}
	for i, v := range back {
		if v != i+1 {
			t.Errorf("token %d came back as %d", i, v-1)
		}
	}
}
