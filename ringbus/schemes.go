package ringbus

import (
	"fmt"
	"strings"

	"github.com/kvloom/kvloom/plan"
)

// Scheme is a way of the ring axis under the name that people ask for it by.
type Scheme struct {
	Name string
	// New makes the axis. What of the ring's choices it does not have, its Validate refuses.
	New func(Ring) plan.RingAxis
}

// Schemes are all schemes. A new one is a file with a plan.RingAxis and one line here
// (docs/adding-a-scheme.md).
func Schemes() []Scheme {
	return []Scheme{
		{"ring", func(r Ring) plan.RingAxis { return r }},
		{"allgather", func(r Ring) plan.RingAxis { return AllGather{r} }},
		{"halo", func(r Ring) plan.RingAxis { return Halo{r} }},
		{"passq", func(r Ring) plan.RingAxis { return PassQ{r} }},
	}
}

// Names are the schemes' names, in their order.
func Names() []string {
	var names []string
	for _, s := range Schemes() {
		names = append(names, s.Name)
	}
	return names
}

// Make gives the axis of a named scheme.
func Make(name string, r Ring) (plan.RingAxis, error) {
	for _, s := range Schemes() {
		if s.Name == name {
			return s.New(r), nil
		}
	}
	return nil, fmt.Errorf("scheme %q is unknown: use %s", name, strings.Join(Names(), " or "))
}
