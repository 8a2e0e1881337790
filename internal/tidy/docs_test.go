package tidy

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Documents promise things and name the tests that keep them. These checks see to it that the
// tests are there, that commands select something, that links lead somewhere, and that the table of
// invariants lists what the packages' own comments say.

// testNames are the tests, fuzz targets, benchmarks and examples by folder.
func testNames(sources []source) map[string][]string {
	kind := regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)([A-Z_]|$)`)
	out := map[string][]string{}
	for _, s := range sources {
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && s.isTest() && f.Recv == nil && kind.MatchString(f.Name.Name) {
				out[path.Dir(s.path)] = append(out[path.Dir(s.path)], f.Name.Name)
			}
		}
	}
	return out
}

// isDocument tells whether a file is read by people: Markdown, or a package's comment.
func isDocument(f file) bool {
	return path.Ext(f.path) == ".md" || path.Base(f.path) == "doc.go"
}

// checkNamedTests finds tests that documents name and nobody wrote.
func checkNamedTests(files []file, tests map[string][]string) []string {
	all := map[string]bool{"TestMain": true}
	for name := range maps.Values(tests) {
		for _, n := range name {
			all[n] = true
		}
	}
	name := regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w*`)
	var out []string
	for _, f := range files {
		if !isDocument(f) {
			continue
		}
		for n, line := range numbered(f) {
			for _, w := range name.FindAllString(line, -1) {
				if !all[w] {
					out = append(out, fmt.Sprintf("%s:%d names %s, which is no test: rename it "+
						"here, or say what keeps the promise now", f.path, n, w))
				}
			}
		}
	}
	return out
}

// numbered are the lines of a file from 1 on.
func numbered(f file) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range strings.Lines(string(f.text)) {
			n++
			if !yield(n, strings.TrimRight(line, "\r\n")) {
				return
			}
		}
	}
}

// checkCommands finds go test commands in Markdown whose patterns select nothing: such a command
// passes and shows nothing.
func checkCommands(files []file, tests map[string][]string) []string {
	command := regexp.MustCompile("go test [^`]*")
	var out []string
	for _, f := range files {
		if path.Ext(f.path) != ".md" {
			continue
		}
		for n, line := range numbered(f) {
			for _, c := range command.FindAllString(strings.ReplaceAll(line, `\|`, "|"), -1) {
				for _, bad := range selectsNothing(words(c), tests) {
					out = append(out, fmt.Sprintf("%s:%d: %s: %s", f.path, n, c, bad))
				}
			}
		}
	}
	return out
}

// words splits a command as a shell would that knows only quotes and comments.
func words(command string) []string {
	word := regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	var out []string
	for _, w := range word.FindAllString(command, -1) {
		if strings.HasPrefix(w, "#") {
			break
		}
		out = append(out, strings.Trim(w, `'"`))
	}
	return out
}

// selectsNothing says which patterns of a go test command match no function of its packages. The
// pattern xxx is there to match nothing.
func selectsNothing(command []string, tests map[string][]string) []string {
	kinds := map[string]*regexp.Regexp{
		"run": regexp.MustCompile("^(Test|Fuzz|Example)"), "bench": regexp.MustCompile("^Bench"),
		"fuzz": regexp.MustCompile("^Fuzz"),
	}
	alone := []string{"v", "race", "short", "benchmem", "json"}
	patterns, packages := map[string]string{}, []string{}
	for i := 2; i < len(command) && command[i] != "-args"; i++ {
		flag, isFlag := strings.CutPrefix(command[i], "-")
		name, value, joined := strings.Cut(flag, "=")
		switch {
		case !isFlag:
			packages = append(packages, command[i])
			continue
		case !joined && !contains(alone, name) && i+1 < len(command):
			i++
			value = command[i]
		}
		if kinds[name] != nil && value != "xxx" {
			patterns[name] = value
		}
	}
	var out []string
	names := selected(packages, tests)
	if len(names) == 0 {
		return []string{"its packages have no tests"}
	}
	for _, flag := range slices.Sorted(maps.Keys(patterns)) {
		for alternative := range strings.SplitSeq(patterns[flag], "|") {
			top, _, _ := strings.Cut(alternative, "/")
			pattern, err := regexp.Compile(top)
			if err != nil || !slices.ContainsFunc(names, func(n string) bool {
				return kinds[flag].MatchString(n) && pattern.MatchString(n)
			}) {
				out = append(out, fmt.Sprintf("-%s %s matches nothing there", flag, alternative))
			}
		}
	}
	return out
}

// selected are the functions of the folders that a command names; none is this one.
func selected(packages []string, tests map[string][]string) []string {
	if len(packages) == 0 {
		packages = []string{"."}
	}
	var out []string
	for _, p := range packages {
		base, below := strings.CutSuffix(p, "/...")
		base = path.Clean(strings.TrimSuffix(base, "/"))
		for dir, names := range tests {
			if dir == base || below && (base == "." || within(dir, base)) {
				out = append(out, names...)
			}
		}
	}
	return out
}

// checkLinks finds links in Markdown to files that are not there.
func checkLinks(files []file) []string {
	link := regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
	there := map[string]bool{".": true}
	for _, f := range files {
		for p := f.path; p != "."; p = path.Dir(p) {
			there[p] = true
		}
	}
	var out []string
	for _, f := range files {
		if path.Ext(f.path) != ".md" {
			continue
		}
		for n, line := range numbered(f) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				to := m[1]
				if !strings.Contains(to, "://") && !there[path.Join(path.Dir(f.path), to)] {
					out = append(out, fmt.Sprintf("%s:%d links to %s, which is not there", f.path,
						n, to))
				}
			}
		}
	}
	return out
}

// invariants are the numbers of the invariants that a package's comment lists.
func invariants(s source) []string {
	if path.Base(s.path) != "doc.go" || s.ast.Doc == nil {
		return nil
	}
	_, text, _ := strings.Cut(s.ast.Doc.Text(), "Invariants")
	text, _, _ = strings.Cut(text, "\n# ")
	id := regexp.MustCompile(`(?m)^(?:\t([A-Z]\d+)\s| +(\d+)\. )`)
	var out []string
	for _, m := range id.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1]+m[2])
	}
	return out
}

// invariantsPage is where the invariants of all packages stand, a section each.
const invariantsPage = "docs/invariants.md"

// checkInvariants compares the page with the packages' comments: a section for each package, a row
// for each invariant, a test or a reason in each row.
func checkInvariants(page file, sources []source) []string {
	var out []string
	rows, section := map[string][]string{}, ""
	row := regexp.MustCompile(`^\| ([A-Z]?\d+) \|.*\| ([^|]*) \|$`)
	for n, line := range numbered(page) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = name
		}
		if m := row.FindStringSubmatch(line); m != nil {
			rows[section] = append(rows[section], m[1])
			if len(strings.TrimSpace(m[2])) < 5 {
				out = append(out, fmt.Sprintf("%s:%d: %s of %s has neither a test nor a reason",
					page.path, n, m[1], section))
			}
		}
	}
	for _, s := range sources {
		want := invariants(s)
		if got := rows[s.pkg()]; !slices.Equal(got, want) {
			out = append(out, fmt.Sprintf("%s, section %s, has rows %v; %s lists %v", page.path,
				s.pkg(), got, s.path, want))
		}
		if path.Base(s.path) == "doc.go" {
			delete(rows, s.pkg())
		}
	}
	for _, left := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, fmt.Sprintf("%s has rows for %s, which has no doc.go", page.path, left))
	}
	return out
}

func TestDocumentsNameTests(t *testing.T) {
	report(t, checkNamedTests(textFiles(t), testNames(parseAll(t, goFiles(t)))))
}

func TestCommandsInDocuments(t *testing.T) {
	report(t, checkCommands(textFiles(t), testNames(parseAll(t, goFiles(t)))))
}

func TestLinksInDocuments(t *testing.T) { report(t, checkLinks(textFiles(t))) }

func TestInvariantsAreListed(t *testing.T) {
	var docs []source
	for _, s := range parseAll(t, goFiles(t)) {
		if path.Base(s.path) == "doc.go" {
			docs = append(docs, s)
		}
	}
	for _, f := range textFiles(t) {
		if f.path == invariantsPage {
			report(t, checkInvariants(f, docs))
			return
		}
	}
	t.Errorf("%s is not there", invariantsPage)
}

func TestDocumentChecksCanFail(t *testing.T) {
	sources := parseAll(t, fake(map[string]string{
		"a/a_test.go": "package a\nfunc TestGood() {}\nfunc BenchmarkGood() {}\n" +
			"func Example() {}\n",
		"b/b_test.go": "package b\nfunc TestOther() {}\nfunc FuzzOther() {}\nfunc helper() {}\n",
		"b/b.go":      "package b\nfunc TestNot() {}\n",
	}))
	tests := testNames(sources)
	docs := func(text string) []file {
		return []file{{"d.md", []byte(text)}, {"a/x.go", []byte("// TestGone\n")}}
	}
	wantFindings(t, checkNamedTests(docs("TestGood, BenchmarkGood, FuzzOther, Test, Testing\n"),
		tests))
	wantFindings(t, checkNamedTests(docs("x\n(TestNot) TestGone\n"), tests),
		"d.md:2 names TestNot", "d.md:2 names TestGone")

	for _, c := range []struct{ text, want string }{
		{"`go test ./a -run Good -v`", ""},
		{"| `go test -run 'Good\\|Exam' ./a` |", ""},
		{"    go test -run xxx -bench Good -benchtime 1x ./a   # as `x`", ""},
		{"`go test -count=1 ./... -run 'Good|Other' -args -run Gone`", ""},
		{"`go test ./b -fuzz FuzzOther -run Other/part`", ""},
		{"`go test ./a -run Other`", "-run Other matches nothing"},
		{"`go test ./a -run 'Good|Gone'`", "-run Gone matches nothing"},
		{"`go test -bench=Other ./...`", "-bench Other matches nothing"},
		{"`go test ./gone`", "no tests"},
		{"`go test -run Good`", "no tests"},
	} {
		if got := checkCommands(docs(c.text), tests); c.want == "" {
			wantFindings(t, got)
		} else {
			wantFindings(t, got, c.want)
		}
	}
	wantFindings(t, checkLinks(docs("[a](a) [b](a/x.go#L1) [c](https://x.org) [d](y.md)\n")),
		"d.md:1 links to y.md")
}

func TestInvariantCheckCanFail(t *testing.T) {
	const doc = "// Package a is one.\n//\n// # Invariants\n//\n//\tA1  One.\n" +
		"//\tA2  Two (TestX).\n//\n// # Concurrency\n//\n//\tA3  None.\npackage a\n"
	sources := parseAll(t, fake(map[string]string{
		"a/doc.go": doc,
		"b/doc.go": "// Package b is two.\n//\n// Invariants:\n//  1. One.\npackage b\n",
		"c/doc.go": "// Package c is three.\npackage c\n",
	}))
	check := func(text string, want ...string) {
		t.Helper()
		wantFindings(t, checkInvariants(file{invariantsPage, []byte(text)}, sources), want...)
	}
	const a = "## a\n| A1 | x | `TestX` |\n| A2 | y | `TestX` |\n"
	const b = "## b\n| 1 | x | `TestX` |\n"
	check(a + b)
	check(a, "section b, has rows []; b/doc.go lists [1]")
	check(a+b+"## d\n| 1 | x | `TestX` |\n", "rows for d")
	check(a+"## b\n| 1 | x |  - |\n", "1 of b has neither")
	check(strings.Replace(a, "A2", "A3", 1)+b,
		"section a, has rows [A1 A3]; a/doc.go lists [A1 A2]")
}
