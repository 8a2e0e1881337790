package main

import (
	"fmt"

	"github.com/kvloom/kvloom/plan"
)

// topologyJSON is the cluster in the report, as topology files spell it.
type topologyJSON struct {
	Nodes        int               `json:"nodes"`
	RanksPerNode int               `json:"ranks_per_node"`
	Flops        number            `json:"flops"`
	Memory       number            `json:"memory"`
	Local        linkJSON          `json:"local"`
	Remote       linkJSON          `json:"remote"`
	Ranks        map[int]rankSpeed `json:"ranks,omitempty"`
}

type linkJSON struct {
	BytesPerS number `json:"bytes_per_s"`
	Latency   number `json:"latency"`
}

type rankSpeed struct {
	Speed number `json:"speed"`
}

func describeTopology(t *plan.Topology) *topologyJSON {
	link := func(l plan.LinkModel) linkJSON {
		return linkJSON{number(l.BytesPerS), number(float64(l.LatencyNanos) / 1e9)}
	}
	x := &topologyJSON{
		Nodes: t.Nodes, RanksPerNode: t.RanksPerNode, Flops: number(t.Flops),
		Memory: number(t.Memory), Local: link(t.Local), Remote: link(t.Remote),
	}
	for r, m := range t.Ranks {
		if x.Ranks == nil {
			x.Ranks = map[int]rankSpeed{}
		}
		x.Ranks[r] = rankSpeed{number(m.Speed)}
	}
	return x
}

// topologyText is the cluster in two lines: nodes x ranks a node, rates and latencies.
func topologyText(t *plan.Topology) string {
	link := func(l plan.LinkModel) string {
		return fmt.Sprintf("%s and %s", rateText(l.BytesPerS, "B/s"),
			timeText(number(l.LatencyNanos)/1e9))
	}
	s := fmt.Sprintf("%d x %d ranks of %s\nlinks: in a node %s, between nodes %s", t.Nodes,
		t.RanksPerNode, rateText(t.Flops, "FLOP/s"), link(t.Local), link(t.Remote))
	if n := len(t.Ranks); n > 0 {
		s += fmt.Sprintf("; ranks of other speeds: %d", n)
	}
	return s
}

func rateText(x float64, unit string) string {
	return scaled(x, 1000, unit, "", "k", "M", "G", "T", "P", "E")
}
