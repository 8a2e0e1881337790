package main

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kvloom/kvloom/plan"
)

// TestTopologyFormsAgree: YAML and JSON, durations and seconds say the same.
func TestTopologyFormsAgree(t *testing.T) {
	want := &plan.Topology{
		Nodes: 2, RanksPerNode: 8, Flops: 4e14, Memory: 3e12,
		Local:  plan.LinkModel{BytesPerS: 4e11, LatencyNanos: 2000},
		Remote: plan.LinkModel{BytesPerS: 5e10, LatencyNanos: 5000},
		Ranks:  map[int]plan.RankModel{3: {Speed: 0.8}},
	}
	for _, text := range []string{
		topologyExample,
		strings.NewReplacer("2us", "2e-6", "5us", "0.000005").Replace(topologyExample),
		`{"nodes":2,"ranks_per_node":8,"flops":4e14,"memory":3e12,` +
			`"local":{"bytes_per_s":4e11,"latency":"2us"},` +
			`"remote":{"bytes_per_s":5e10,"latency":0.000005},"ranks":{"3":{"speed":0.8}}}`,
		"# by hand\nnodes: 2\nranks_per_node: 8\nflops: 4.0e+14\nmemory: 3000000000000\n" +
			"local:\n  bytes_per_s: 4e11\n  latency: 2000ns\nremote:\n  bytes_per_s: 5e10\n" +
			"  latency: 5us\nranks:\n  3:\n    speed: 0.8\n",
	} {
		got, err := parseTopology([]byte(text))
		if err != nil {
			t.Errorf("%v:\n%s", err, text)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", text, diff)
		}
	}
}

// FuzzParseTopology: whatever a file says, it is refused in one line or gives a valid cluster.
func FuzzParseTopology(f *testing.F) {
	f.Add([]byte(topologyExample))
	f.Add([]byte("nodes: &a 2\nranks_per_node: *a\nflops: 1e9\nlocal: &l {bytes_per_s: .inf}\n" +
		"remote: *l\n"))
	f.Add([]byte("nodes: 1\nranks: {0: {speed: .nan}, \"0\": ~}\n---\n{}"))
	f.Add([]byte("{nodes: 1e99, latency: [2us]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		top, err := parseTopology(text)
		if err != nil {
			if strings.Contains(err.Error(), "main.") {
				t.Fatalf("the error speaks Go: %v", err)
			}
			return
		}
		if err := top.Validate(); err != nil {
			t.Fatalf("accepted, and not valid: %v", err)
		}
		if math.IsNaN(top.Flops) || top.Fits(1) != nil {
			t.Fatalf("%+v", top)
		}
	})
}
