package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// lattice is latticeText, read.
type lattice struct {
	sets    map[string][]string
	nodes   []string // in the order of the text
	allowed map[[2]string]bool
}

// readLattice reads the notation described at latticeText.
func readLattice(text string) (*lattice, error) {
	l := &lattice{
		sets:    map[string][]string{"NONE": nil},
		allowed: map[[2]string]bool{},
	}
	var plain strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		plain.WriteString(line + " ")
	}
	for rule := range strings.SplitSeq(plain.String(), ";") {
		rule = strings.TrimSpace(rule)
		if rule == "" {
			continue
		}
		if name, members, ok := strings.Cut(rule, "="); ok {
			l.sets[strings.TrimSpace(name)] = l.expand(members)
			continue
		}
		low, high, ok := strings.Cut(rule, "<")
		if !ok || strings.Contains(high, "<") {
			return nil, fmt.Errorf("lattice rule %q is neither `X = a, b` nor `a, b < c, d`", rule)
		}
		for _, importer := range l.expand(high) {
			l.add(importer)
			for _, imported := range l.expand(low) {
				l.allowed[[2]string{importer, imported}] = true
			}
		}
	}
	l.sets["ALL"] = l.nodes
	for pair := range l.allowed {
		if !contains(l.nodes, pair[1]) {
			return nil, fmt.Errorf("%s may import %s, which has no rule of its own: write "+
				"`NONE < %s`", pair[0], pair[1], pair[1])
		}
	}
	return l, nil
}

func (l *lattice) add(node string) {
	if !contains(l.nodes, node) {
		l.nodes = append(l.nodes, node)
	}
}

// expand turns a list of packages and sets into packages.
func (l *lattice) expand(list string) []string {
	var out []string
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		if members, ok := l.sets[word]; ok {
			out = append(out, members...)
		} else if word != "" {
			out = append(out, word)
		}
	}
	return out
}

// node is the package's entry in the lattice: itself, or the longest p/... that covers it.
func (l *lattice) node(pkg string) (string, bool) {
	best := ""
	for _, n := range l.nodes {
		if n == pkg {
			return n, true
		}
		base, ok := strings.CutSuffix(n, "/...")
		if ok && len(n) > len(best) && within(pkg, base) {
			best = n
		}
	}
	return best, best != ""
}

// reason is the first ban that fits; ok is false if none does.
func (l *lattice) reason(importer, imported string) (string, bool) {
	for _, b := range bans() {
		if contains(l.expand(b.importers), importer) && contains(l.expand(b.what), imported) {
			return b.reason, true
		}
	}
	return "", false
}

// within says whether the path is base or lies below it.
func within(p, base string) bool { return p == base || strings.HasPrefix(p, base+"/") }

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// checkImports judges every import of the sources: of files that are not tests by all rules, of
// tests only that third-party modules are known.
func (l *lattice) checkImports(sources []source) []string {
	var out []string
	unknown := map[string]bool{}
	for _, s := range sources {
		from, ok := l.node(s.pkg())
		if !ok {
			if !unknown[s.pkg()] {
				unknown[s.pkg()] = true
				out = append(out, fmt.Sprintf("package %s is not in the lattice: add it to "+
					"latticeText in internal/tidy/rules_test.go, in its layer, with what it "+
					"may import, and to bans() with why not the rest", s.pkg()))
			}
			continue
		}
		for _, spec := range s.ast.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				p = spec.Path.Value
			}
			if text := l.judge(from, p, s.isTest()); text != "" {
				out = append(out, fmt.Sprintf("%s: %s imports %s: %s", s.at(spec.Pos()),
					s.pkg(), p, text))
			}
		}
	}
	return out
}

// judge says why a package of the lattice may not import the path, or "".
func (l *lattice) judge(from, importPath string, test bool) string {
	first, _, _ := strings.Cut(importPath, "/")
	switch {
	case within(importPath, modulePath):
		if test {
			return ""
		}
		return l.judgeOwn(from, importPath)
	case strings.Contains(first, "."):
		return l.judgeOutside(from, importPath, test)
	case test:
		return ""
	}
	for _, b := range impure() {
		if within(importPath, b.what) && contains(l.expand(b.importers), from) {
			return b.reason
		}
	}
	return ""
}

func (l *lattice) judgeOwn(from, importPath string) string {
	pkg := rootName
	if importPath != modulePath {
		pkg = strings.TrimPrefix(importPath, modulePath+"/")
	}
	to, ok := l.node(pkg)
	if !ok {
		return "that package is not in the lattice"
	}
	if l.allowed[[2]string{from, to}] {
		return ""
	}
	if why, ok := l.reason(from, to); ok {
		return why
	}
	return "the lattice does not allow it"
}

func (l *lattice) judgeOutside(from, importPath string, test bool) string {
	for _, b := range outside() {
		if !within(importPath, b.what) {
			continue
		}
		if test || contains(l.expand(b.importers), from) {
			return ""
		}
		if contains(l.sets["PURE"], from) {
			return "pure packages use no third-party module: they must stay readable, portable " +
				"and the same for ever; " + b.reason
		}
		return b.reason
	}
	return "an unknown third-party module: choose it in docs/dependencies.md and add it to " +
		"outside() in internal/tidy/rules_test.go"
}

// checkEnvironment finds reads of environment variables below L6. Hidden inputs make two runs of
// one command differ; flags and Config are visible.
func (l *lattice) checkEnvironment(sources []source) []string {
	var out []string
	for _, s := range sources {
		from, ok := l.node(s.pkg())
		if s.isTest() || !ok || contains(l.sets["L6"], from) {
			continue
		}
		found := s.uses("os", "Getenv", "LookupEnv", "Environ", "ExpandEnv")
		found = append(found, s.uses("syscall", "Getenv", "Environ")...)
		for _, f := range found {
			out = append(out, f+" reads the environment in "+s.pkg()+": only commands do; take "+
				"the value as a parameter, where it can be seen, tested and replayed")
		}
	}
	return out
}

// checkConcurrency finds what the import bans cannot: goroutines and channels are words of the
// language.
func (l *lattice) checkConcurrency(sources []source) []string {
	var out []string
	for _, s := range sources {
		if s.isTest() || !contains(l.sets["PURE"], s.pkg()) {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.GoStmt:
				what = "starts a goroutine"
			case *ast.SelectStmt:
				what = "selects"
			case *ast.ChanType:
				what = "has a channel"
			case *ast.SendStmt:
				what = "sends on a channel"
			case *ast.UnaryExpr:
				if n.Op == token.ARROW {
					what = "receives from a channel"
				}
			}
			if what != "" {
				out = append(out, fmt.Sprintf("%s: %s %s: a machine never blocks or spawns; its "+
					"only output is its outbox", s.at(n.Pos()), s.pkg(), what))
			}
			return true
		})
	}
	return out
}

// cycle names packages of the lattice that could import each other, L6 left out: its members may.
func (l *lattice) cycle() []string {
	left := map[string]bool{}
	for _, n := range l.nodes {
		left[n] = !contains(l.sets["L6"], n)
	}
	for {
		removed := false
		for _, n := range l.nodes {
			free := left[n]
			for _, m := range l.nodes {
				free = free && !(left[m] && l.allowed[[2]string{n, m}])
			}
			if free {
				left[n], removed = false, true
			}
		}
		if !removed {
			break
		}
	}
	var out []string
	for n, in := range left {
		if in {
			out = append(out, n)
		}
	}
	sort.Strings(out)
	return out
}

func mustLattice(t *testing.T) *lattice {
	t.Helper()
	l, err := readLattice(latticeText)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestImportLattice(t *testing.T) {
	report(t, mustLattice(t).checkImports(parseAll(t, goFiles(t))))
}

func TestEnvironmentIsReadByCommandsOnly(t *testing.T) {
	report(t, mustLattice(t).checkEnvironment(parseAll(t, goFiles(t))))
}

func TestPurePackagesDoNotSpawnOrBlock(t *testing.T) {
	report(t, mustLattice(t).checkConcurrency(parseAll(t, goFiles(t))))
}

func TestLatticeHasNoCycle(t *testing.T) {
	if c := mustLattice(t).cycle(); c != nil {
		t.Errorf("these packages may import each other in a cycle: %s", strings.Join(c, ", "))
	}
	l, err := readLattice("c < a; a < b; b < c; a < d; d < e; NONE < f; L6 = f")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(l.cycle(), " "); got != "a b c d e" {
		t.Errorf("cycle of a, b, c and what waits for it: got %q, want a b c d e", got)
	}
}

func TestLatticeRefusesWhatItCannotRead(t *testing.T) {
	for _, text := range []string{"mesh", "a < b < c", "NONE < b; a < b"} {
		if _, err := readLattice(text); err == nil {
			t.Errorf("lattice text %q was accepted", text)
		}
	}
}

func TestEveryBanHasAReason(t *testing.T) {
	l := mustLattice(t)
	for _, from := range l.nodes {
		for _, to := range l.nodes {
			if from == to || l.allowed[[2]string{from, to}] {
				continue
			}
			if _, ok := l.reason(from, to); !ok {
				t.Errorf("%s may not import %s, and bans() has no reason why", from, to)
			}
		}
	}
	words := append(bans(), impure()...)
	for _, b := range append(words, outside()...) {
		if len(b.reason) < 15 {
			t.Errorf("the ban of %s for %s has the reason %q, which explains nothing",
				b.what, b.importers, b.reason)
		}
	}
	for _, b := range append(bans(), outside()...) {
		for _, p := range l.expand(b.importers) {
			if !contains(l.nodes, p) {
				t.Errorf("a ban names the package %s, which is not in the lattice", p)
			}
		}
	}
}

// TestLatticeChecksCanFail runs the checks on fake packages, each with a fault, and on their
// harmless twins.
func TestLatticeChecksCanFail(t *testing.T) {
	const own = `import "` + modulePath + `/`
	l := mustLattice(t)
	for _, pure := range l.sets["PURE"] {
		for _, b := range impure() {
			got := l.checkImports(parseAll(t, fake(map[string]string{
				pure + "/a.go":      "package a\n" + `import "` + b.what + `"`,
				pure + "/a_test.go": "package a\n" + `import "` + b.what + `"`,
			})))
			wantFindings(t, got, b.reason)
		}
	}
	cases := []struct{ name, path, text, want string }{
		{"below", "sched/a.go", `import _ "sync/atomic"`, "stepped by one caller"},
		{"v2", "rank/a.go", `import "math/rand/v2"`, "draw in the world"},
		{"renamed", "plan/a.go", `import x "log/slog"`, "reports by messages"},
		{"os in a world", "actors/live/a.go", `import "os"`, ""},
		{"like time", "plan/a.go", `import "timeline"`, ""},
		{"upwards", "mesh/a.go", own + `plan"`, "vocabulary and contracts lie below"},
		{"downwards", "plan/a.go", own + `mesh"`, ""},
		{"world in pure", "rank/a.go", own + `cudakern/cpu"`, "runs unchanged in every world"},
		{"world in world", "sim/a.go", own + `transport/inproc"`, "exchanged alone"},
		{"kernel by its device", "cudakern/cpu/a.go", own + `cudakern/cpu/kernel"`, ""},
		{"sim to root", "sim/a.go", "import k \"" + modulePath + `"`, "live composition root"},
		{"root to sim", "a.go", own + `sim"`, "must not carry the simulator"},
		{"root to rank", "a.go", own + `rank"`, ""},
		{"host to rank", "actors/live/a.go", own + `rank"`, ""},
		{"test of pure", "rank/a_test.go", own + `sim"`, ""},
		{"command", "cmd/kvloom/a.go", own + `sim"`, ""},
		{"below command", "cmd/kvloom/attend/a.go", own + `sim"`, ""},
		{"L0 upwards", "internal/tensors/a.go", own + `plan"`, "internal services are lowest"},
		{"pure to L0", "attn/a.go", own + `internal/tensors"`, "Pass plain values in"},
		{"unknown", "weave/a.go", `import "fmt"`, "package weave is not in the lattice"},
		{"unknown below", "plan/deep/a.go", `import "fmt"`, "package plan/deep is not in"},
		{"to unknown", "a.go", own + `weave"`, "that package is not in the lattice"},
		{"module in pure", "plan/a.go", `import "github.com/spf13/cobra"`, "no third-party"},
		{"actors outside", "a.go", `import "github.com/asynkron/protoactor-go/actor"`,
			"replaced in one folder"},
		{"test module", "sim/a.go", `import "pgregory.net/rapid"`, "serves tests only"},
		{"test module in test", "plan/a_test.go", `import "pgregory.net/rapid"`, ""},
		{"unknown module", "sim/a_test.go", `import "example.com/x"`, "unknown third-party module"},
		{"like a known one", "sim/a_test.go", `import "go.uber.org/zapper"`, "unknown third-party"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			texts := map[string]string{c.path: "package a\n" + c.text}
			got := l.checkImports(parseAll(t, fake(texts)))
			if c.want == "" {
				wantFindings(t, got)
			} else {
				wantFindings(t, got, c.want)
			}
		})
	}
}

func TestEnvironmentCheckCanFail(t *testing.T) {
	const text = "package a\n" + `import "os"` + "\n" + `var x = os.Getenv("HOME")`
	got := mustLattice(t).checkEnvironment(parseAll(t, fake(map[string]string{
		"a.go":                   text,
		"a_test.go":              text,
		"cmd/kvloom/a.go":        text,
		"sim/a.go":               "package a\nimport o \"os\"\nvar x = o.Environ",
		"actors/live/a.go":       "package a\nimport . \"os\"\nvar x = LookupEnv",
		"internal/tensors/a.go":  "package a\nimport \"syscall\"\nvar x, _ = syscall.Getenv(\"A\")",
		"cudakern/cpu/a.go":      "package a\nimport \"os\"\nvar x = os.Args",
		"transport/inproc/a.go":  "package a\nvar os struct{ Getenv int }\nvar x = os.Getenv",
		"internal/tensors/b.go":  "package a\nimport \"os\"\nfunc f() { os.LookupEnv(\"A\") }",
		"internal/tidy/a.go":     "package a\n",
		"integration/rig/a.go":   text,
		"examples/embedded/a.go": text,
	})))
	wantFindings(t, got, "a.go:3: os.Getenv", "sim/a.go:3: os.Environ",
		"actors/live/a.go: dot import of os", "internal/tensors/a.go:3: syscall.Getenv",
		"internal/tensors/b.go:3: os.LookupEnv")
}

func TestConcurrencyCheckCanFail(t *testing.T) {
	const text = `package a
func f(c chan int) {
	go f(nil)
	c <- 1
	<-c
	select {}
}`
	got := mustLattice(t).checkConcurrency(parseAll(t, fake(map[string]string{
		"rank/a.go": text, "rank/a_test.go": text, "actors/live/a.go": text,
	})))
	wantFindings(t, got, "a.go:2: rank has a channel", "a.go:3: rank starts a goroutine",
		"a.go:4: rank sends", "a.go:5: rank receives", "a.go:6: rank selects")
}

// TestDependenciesAreDocumented compares outside(), go.mod and docs/dependencies.md.
func TestDependenciesAreDocumented(t *testing.T) {
	root := moduleRoot(t)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	report(t, checkDocumented(read("go.mod"), read("docs/dependencies.md"), outside()))
	wantFindings(t, checkDocumented("require (\n\ta.b/c v1.2.3 // indirect\n\ta.b/d v1.0.0\n)\n",
		"| `a.b/c` v1.2.3 |\n| `a.b/d` v0.9.0 |\n| `a.b/e` v1.0.0 |\n",
		[]ban{{what: "a.b/c"}, {what: "a.b/d"}, {what: "a.b/e"}, {what: "a.b/f"}}),
		"a.b/d at v1.0.0", "go.mod does not require a.b/e", "go.mod does not require a.b/f")
}

func checkDocumented(goMod, docs string, modules []ban) []string {
	versions := map[string]string{}
	for line := range strings.Lines(goMod) {
		if words := strings.Fields(strings.TrimPrefix(line, "require ")); len(words) >= 2 {
			versions[words[0]] = words[1]
		}
	}
	var out []string
	for _, m := range modules {
		version, ok := versions[m.what]
		if !ok {
			out = append(out, fmt.Sprintf("go.mod does not require %s: take it out of outside() "+
				"and of docs/dependencies.md", m.what))
			continue
		}
		if !strings.Contains(docs, "`"+m.what+"` "+version+" ") {
			out = append(out, fmt.Sprintf("docs/dependencies.md has no row for %s at %s: every "+
				"module is there with its version and why it was chosen", m.what, version))
		}
	}
	return out
}
