package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/kvloom/kvloom/plan"
	"github.com/spf13/cobra"
)

func newPlan(std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "shows, verifies and costs a plan",
		Long: "plan builds the plan of a problem on a mesh without running it, and shows, " +
			"verifies or prices\nit. Problem and mesh flags are those of attend.",
		Args: knownPlanCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPlanShow(std), newPlanVerify(std), newPlanCost(std), &cobra.Command{
		Use:                "tune",
		Short:              "searches the fastest plan (not there yet)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return &requestError{problem: "the command plan tune is not there yet: this version " +
				"has plan show, verify and cost; compare plans by plan cost"}
		},
	})
	return cmd
}

// knownPlanCommand refuses what is no subcommand.
func knownPlanCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "use show, verify or cost"
	if near := nearestCommand(cmd, args[0]); near != "" {
		hint = "did you mean " + near + "?"
	}
	return &requestError{problem: fmt.Sprintf("the command plan %s is unknown: %s", show(args[0]),
		hint)}
}

// planFlags are the flags of plan's subcommands.
type planFlags struct {
	attendFlags
	rank, svg string
	program   bool
}

// bindPlan declares what all subcommands have: the problem, the mesh, --json and --quiet.
func (f *planFlags) bindPlan(cmd *cobra.Command) {
	set := cmd.Flags()
	f.set, f.noDemo, f.modelled, f.rounds = set, true, true, "1"
	f.bindProblem(set)
	f.bindMesh(set)
	set.Lookup("out").Usage = "write the plan's text to this `file`, for plan verify"
	set.BoolVar(&f.json, "json", false, "print one JSON object instead of tables")
	set.BoolVar(&f.quiet, "quiet", false, "print no tables, only the verdict, if there is one")
	for _, x := range f.later() {
		set.StringVar(x.value, x.flag, "", x.works)
		set.Lookup(x.flag).Hidden = true
	}
	set.SortFlags = false
}

// bindBackward declares --backward, for the subcommands that look at one pass or both.
func (f *planFlags) bindBackward(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.backward, "backward", false, "the backward pass too")
}

// planRequest is a plan that the flags ask for.
type planRequest struct{ *request }

// planned reads and checks the flags and makes the plan. The caller closes the request.
func (f *planFlags) planned() (*planRequest, error) {
	r, err := newRequest(&f.attendFlags)
	if err != nil {
		return nil, err
	}
	return &planRequest{r}, nil
}

// sealing is a plan that notes the hashes of the programs that it hands out, so that no program is
// built twice to name it.
type sealing struct {
	*plan.Plan
	hashes []plan.Hash // rank 0 forward, rank 0 backward, ...
}

func newSealing(p *plan.Plan) *sealing {
	return &sealing{p, make([]plan.Hash, len(p.Passes())*p.Header().Ranks)}
}

// Program is the plan's.
func (s *sealing) Program(pass plan.Pass, rank int) (*plan.Program, error) {
	p, err := s.Plan.Program(pass, rank)
	if err == nil {
		s.hashes[rank*len(s.Passes())+int(pass)] = p.Hash(s.Header())
	}
	return p, err
}

// name is the plan's hash; programs that nobody asked for are built now.
func (s *sealing) name() (plan.Hash, error) {
	for i, h := range s.hashes {
		if h != (plan.Hash{}) {
			continue
		}
		n := len(s.Passes())
		if _, err := s.Program(plan.Pass(i%n), i/n); err != nil {
			return plan.Hash{}, err
		}
	}
	return s.Seal(s.hashes), nil
}

// flagsOnly refuses words that belong to no flag.
func flagsOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &requestError{problem: fmt.Sprintf("%s takes flags only, so %s has no meaning: see %s "+
		"--help", cmd.Name(), show(args[0]), cmd.CommandPath())}
}

// scheme is the ring in words.
func (r *planRequest) schemeWords() string {
	s := r.scheme
	if r.inner() < r.mesh.Ring {
		s = fmt.Sprintf("double ring of inner window %d, dkv %v", r.inner(), r.ring.DKV)
	}
	if r.ring.Lanes == 2 {
		s += ", two lanes"
	}
	return s + r.optionText()
}

// heading is the problem in two lines, and what was chosen in a third.
func (r *planRequest) heading(hash string) string {
	return fmt.Sprintf("%s\n%s; plan %.12s\n%s\n", r.problemText(), r.planText(r.schemeWords()),
		hash, r.choiceText())
}

// savePlan writes the plan's text where --out says, if it does.
func (r *planRequest) savePlan() error {
	if r.outPath == "" {
		return nil
	}
	return writeFile("out", r.outPath, func(w io.Writer) error {
		return plan.WritePlan(w, r.plan)
	})
}

// writeFile makes the file that a flag names. What cannot be written is a malformed request.
func writeFile(flag, path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(write(f), f.Close())
	}
	if err != nil {
		var why *os.PathError
		if errors.As(err, &why) {
			err = why.Err
		}
		return badValue(flag, path, "cannot be written: %v", err)
	}
	return nil
}

// parseRank reads --rank.
func (f *planFlags) parseRank(r *planRequest) (int, error) {
	n, err := strconv.Atoi(f.rank)
	if err != nil || n < 0 || n >= r.mesh.Ranks() {
		return 0, badValue("rank", f.rank, "is no rank of --mesh %dx%d: use 0 to %d", r.mesh.Head,
			r.mesh.Ring, r.mesh.Ranks()-1)
	}
	return n, nil
}

// printJSON writes one object on one line.
func printJSON(w io.Writer, x any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(x); err != nil {
		return fmt.Errorf("the JSON cannot be written: %w", err)
	}
	return nil
}

// printText writes a page.
func printText(w io.Writer, page string) error {
	if _, err := io.WriteString(w, page); err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	return nil
}

// passWords are the passes in words.
func passWords(passes []plan.Pass) string {
	if len(passes) == 2 {
		return "forward and backward"
	}
	return passes[0].String()
}
