package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvloom/kvloom/plan"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// maxPlanFile is the most bytes of a plan's text that are read: 1,024 ranks take some 200 MB.
const maxPlanFile = 2 << 30

func newPlanVerify(std streams) *cobra.Command {
	f := &planFlags{}
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "proves a plan sound, or says what is wrong",
		Long: "verify proves the plan of a problem, both passes of it, or a plan's text in FILE " +
			"(see plan\nshow --out): every allowed pair is computed exactly once, transfers " +
			"match and cannot stop\nfor ever, no slot is used twice at a time, gradients come " +
			"home. It ends with 1 when the plan\nis broken and says where.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &requestError{problem: fmt.Sprintf("plan verify takes one file, so %s "+
					"has no meaning", show(args[1]))}
			}
			if len(args) == 1 {
				return f.verifyFile(args[0], std)
			}
			return f.verifyProblem(std)
		},
	}
	f.bindPlan(cmd)
	return cmd
}

// verifyJSON is the JSON of plan verify.
type verifyJSON struct {
	OK         bool            `json:"ok"`
	PlanHash   string          `json:"plan_hash,omitempty"`
	Ranks      int             `json:"ranks"`
	Ops        int             `json:"ops"`
	Found      int             `json:"found"`
	Violations []violationJSON `json:"violations"`
}

// violationJSON is one broken rule; rank and op are -1 where there is none.
type violationJSON struct {
	Kind string `json:"kind"`
	Rank int    `json:"rank"`
	Op   int    `json:"op"`
	Text string `json:"text"`
}

func (f *planFlags) verifyProblem(std streams) error {
	r, err := f.planned()
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.savePlan(); err != nil {
		return err
	}
	sealed := newSealing(r.plan)
	report, err := plan.Verify(sealed)
	if err != nil {
		return err
	}
	hash, err := sealed.name()
	if err != nil {
		return err
	}
	return f.tell(sealed, report, hash.String(), r.heading(hash.String()), std)
}

func (f *planFlags) verifyFile(path string, std streams) error {
	given := ""
	f.set.Visit(func(x *pflag.Flag) {
		if x.Name != "json" && x.Name != "quiet" && given == "" {
			given = x.Name
		}
	})
	if given != "" {
		return &requestError{flag: given, problem: fmt.Sprintf("has no meaning with the file %s, "+
			"which says all: leave one of the two out", show(path))}
	}
	text, err := readLimited(path, maxPlanFile)
	if err != nil {
		return &requestError{problem: fmt.Sprintf("%s %v", show(path), err)}
	}
	p, err := plan.ParsePlan(text)
	if err != nil {
		return &requestError{problem: fmt.Sprintf("%s: %s", show(path),
			strings.TrimPrefix(err.Error(), "plan: "))}
	}
	report, err := plan.Verify(p)
	if err != nil {
		return err
	}
	return f.tell(p, report, "", "", std)
}

// tell prints what came of a proof.
func (f *planFlags) tell(src plan.Source, report *plan.Report, hash, heading string,
	std streams,
) error {
	var failed error
	if report.Found > 0 {
		failed = &reported{&checkError{report.Err().Error()}}
	}
	if f.json {
		x := &verifyJSON{OK: failed == nil, PlanHash: hash, Ranks: report.Ranks, Ops: report.Ops,
			Found: report.Found, Violations: []violationJSON{}}
		for _, v := range report.Violations {
			x.Violations = append(x.Violations, violationJSON{v.Kind, v.Rank, v.Op, v.Text})
		}
		return errors.Join(failed, printJSON(std.out, x))
	}
	page := proofVerdict(src, report)
	if !f.quiet {
		page = heading + violationsPage(report) + page
	}
	return errors.Join(failed, printText(std.out, page))
}

// proofVerdict is what came of a proof for a person.
func proofVerdict(src plan.Source, r *plan.Report) string {
	if r.Found > 0 {
		return fmt.Sprintf("FAIL: %d violations in %d ops of %d ranks\n", r.Found, r.Ops, r.Ranks)
	}
	return fmt.Sprintf("PASS: %d ops of %d ranks, %s: every allowed pair once, every token at "+
		"home once,\nsends and receives in pairs, nothing waits for ever, no slot holds two "+
		"blocks, results at home\n", r.Ops, r.Ranks, passWords(src.Passes()))
}

// violationsPage lists the broken rules.
func violationsPage(r *plan.Report) string {
	var b strings.Builder
	for i, v := range r.Violations {
		fmt.Fprintf(&b, "%d. %s", i+1, v.Kind)
		if v.Rank >= 0 {
			fmt.Fprintf(&b, ", rank %d", v.Rank)
		}
		if v.Op >= 0 {
			fmt.Fprintf(&b, " op %d", v.Op)
		}
		text := strings.ReplaceAll(v.Text, "; the other is", "\n   the other is")
		fmt.Fprintf(&b, "\n   %s\n", text)
	}
	if more := r.Found - len(r.Violations); more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return b.String()
}
