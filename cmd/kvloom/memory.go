package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// fitsMemory refuses a problem whose tensors alone are larger than the machine: the whole inputs
// and outputs and the ranks' shards of them. It is a bound from below, so it refuses nothing that
// could run.
func (r *request) fitsMemory() error {
	query, kv := float64(r.tokens)*float64(r.heads), float64(r.tokens)*float64(r.kvHeads)
	elements := (query + kv) * float64(r.dim+r.vDim) // q, k, v, out; and do, dq, dk, dv
	if r.backward {
		elements *= 2
	}
	const copies = 2 // the caller's and the shards
	need := copies * elements * float64(r.dtype.Bytes())
	have, ok := machineBytes()
	if !ok || need <= have {
		return nil
	}
	const gib = 1 << 30
	problem := fmt.Sprintf("the tensors of %d tokens take at least %.1f GiB, this machine has "+
		"%.1f GiB: use fewer tokens or heads", r.tokens, need/gib, have/gib)
	if r.in != nil {
		return badValue("in", r.inPath, "%s", problem)
	}
	return badValue("tokens", fmt.Sprint(r.tokens), "%s", problem)
}

// machineBytes is the machine's memory, where the system tells it in the way of Linux.
func machineBytes() (float64, bool) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib float64
		if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			_, err := fmt.Sscanf(rest, "%g kB", &kib)
			return kib * 1024, err == nil
		}
	}
	return 0, false
}
