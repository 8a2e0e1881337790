package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvloom/kvloom/plan"
	"go.yaml.in/yaml/v3"
)

// maxTopologyFile is the most bytes of a topology file: room for 65,536 ranks by name.
const maxTopologyFile = 8 << 20

// topologyExample is what errors about --topology show.
const topologyExample = `{nodes: 2, ranks_per_node: 8, flops: 4e14, memory: 3e12, ` +
	`local: {bytes_per_s: 4e11, latency: 2us}, remote: {bytes_per_s: 5e10, latency: 5us}, ` +
	`ranks: {3: {speed: 0.8}}}`

// topologyFile is a topology file, YAML or JSON.
type topologyFile struct {
	Nodes        *int                  `yaml:"nodes"`
	RanksPerNode *int                  `yaml:"ranks_per_node"`
	Flops        *float64              `yaml:"flops"`
	Memory       float64               `yaml:"memory"`
	Local        *linkFile             `yaml:"local"`
	Remote       *linkFile             `yaml:"remote"`
	Ranks        map[rankKey]*rankFile `yaml:"ranks"`
}

// rankKey is a rank as a key, in quotes or without: JSON has no other keys than words.
type rankKey int

// UnmarshalYAML reads either form.
func (k *rankKey) UnmarshalYAML(node *yaml.Node) error {
	n, err := strconv.Atoi(node.Value)
	if err != nil {
		return fmt.Errorf("line %d: ranks.%s: a rank is a whole number", node.Line,
			show(node.Value))
	}
	*k = rankKey(n)
	return nil
}

type linkFile struct {
	BytesPerS *float64 `yaml:"bytes_per_s"`
	Latency   latency  `yaml:"latency"`
}

func (l *linkFile) model() plan.LinkModel {
	return plan.LinkModel{BytesPerS: *l.BytesPerS, LatencyNanos: int64(l.Latency)}
}

type rankFile struct {
	Speed *float64 `yaml:"speed"`
}

// latency is a duration such as 5us, or a number of seconds.
type latency int64

// UnmarshalYAML reads either form, to the nearest nanosecond.
func (l *latency) UnmarshalYAML(node *yaml.Node) error {
	var seconds float64
	if node.Decode(&seconds) == nil {
		nanos := math.Round(seconds * 1e9)
		if math.IsNaN(nanos) || math.Abs(nanos) > 1e18 {
			return fmt.Errorf("line %d: latency %s is out of range: use seconds such as 5e-6",
				node.Line, node.Value)
		}
		*l = latency(nanos)
		return nil
	}
	d, err := time.ParseDuration(node.Value)
	if err != nil {
		return fmt.Errorf("line %d: latency %s is no duration: use one such as 5us, or seconds "+
			"such as 5e-6", node.Line, show(node.Value))
	}
	*l = latency(d.Nanoseconds())
	return nil
}

// readTopology reads and checks the file that --topology names.
func readTopology(path string) (*plan.Topology, error) {
	text, err := readLimited(path, maxTopologyFile)
	if err == nil {
		var t *plan.Topology
		if t, err = parseTopology(text); err == nil {
			return t, nil
		}
	}
	return nil, badValue("topology", path, "%v", err)
}

// readLimited reads a whole file of at most limit bytes. The error does not repeat the path.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		var why *os.PathError
		if errors.As(err, &why) {
			err = why.Err
		}
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		var why *os.PathError
		if errors.As(err, &why) {
			err = why.Err
		}
		return nil, fmt.Errorf("cannot be read: %w", err)
	case int64(len(text)) > limit:
		return nil, fmt.Errorf("is larger than the limit of %d bytes", limit)
	}
	return text, nil
}

// parseTopology decodes a topology strictly: unknown and missing fields are errors.
func parseTopology(text []byte) (*plan.Topology, error) {
	var f topologyFile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("is empty: write one such as %s", topologyExample)
		}
		return nil, fmt.Errorf("%s", yamlWords(err))
	}
	if err := d.Decode(&topologyFile{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("has more than one document: a topology is one")
	}
	missing := ""
	switch {
	case f.Nodes == nil:
		missing = "nodes"
	case f.RanksPerNode == nil:
		missing = "ranks_per_node"
	case f.Flops == nil:
		missing = "flops"
	case f.Local == nil || f.Local.BytesPerS == nil:
		missing = "local.bytes_per_s"
	case f.Remote == nil || f.Remote.BytesPerS == nil:
		missing = "remote.bytes_per_s"
	}
	if missing != "" {
		return nil, fmt.Errorf("has no %s: write one such as %s", missing, topologyExample)
	}
	t := &plan.Topology{
		Nodes: *f.Nodes, RanksPerNode: *f.RanksPerNode, Flops: *f.Flops, Memory: f.Memory,
		Local: f.Local.model(), Remote: f.Remote.model(), Ranks: map[int]plan.RankModel{},
	}
	for _, r := range slices.Sorted(maps.Keys(f.Ranks)) {
		m := f.Ranks[r]
		if m == nil || m.Speed == nil {
			return nil, fmt.Errorf("ranks.%d has no speed: write %d: {speed: 0.8}", r, r)
		}
		t.Ranks[int(r)] = plan.RankModel{Speed: *m.Speed}
	}
	return t, t.Validate()
}

// yamlWords puts the decoder's error into one line without its own names of Go types.
func yamlWords(err error) string {
	words := strings.Join(strings.Fields(err.Error()), " ")
	words = strings.ReplaceAll(words, "yaml: ", "")
	for _, x := range [][2]string{
		{" in type main.topologyFile", ": topologies have nodes, ranks_per_node, flops, memory, " +
			"local, remote and ranks"},
		{" in type main.linkFile", ": links have bytes_per_s and latency"},
		{" in type main.rankFile", ": ranks have speed"},
		{"map[main.rankKey]*main.rankFile", "ranks"}, {"main.rankKey", "a rank's number"},
		{"main.topologyFile", "a topology"}, {"main.linkFile", "a link"},
		{"main.rankFile", "a rank"}, {"main.latency", "a latency"}, {"*a ", "a "},
	} {
		words = strings.ReplaceAll(words, x[0], x[1])
	}
	return words
}
