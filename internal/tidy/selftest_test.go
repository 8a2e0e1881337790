package tidy

import (
	"strings"
	"testing"
)

// These tests run each check of tidy_test.go on a fake tree that breaks it and on a harmless
// twin, so that a check that sees nothing is found.

func TestPackageCommentCheckCanFail(t *testing.T) {
	const doc = "// Package a is one.\npackage a\n"
	check := func(texts map[string]string, want ...string) {
		t.Helper()
		wantFindings(t, checkPackageComments(parseAll(t, fake(texts))), want...)
	}
	check(map[string]string{"a/doc.go": doc, "a/b.go": "// Licence.\n\npackage a\n"})
	check(map[string]string{"a/b.go": doc}, "a has no doc.go", "a/b.go: the package comment of a")
	check(map[string]string{"a/doc.go": "package a\n"}, "package a has no package comment")
	check(map[string]string{"a/doc.go": "// A is one.\npackage a\n"}, "does not begin")
	check(map[string]string{"a/doc.go": "// Package ab is one.\npackage a\n"}, "does not begin")
	check(map[string]string{"a/doc.go": doc, "a/e.go": doc}, "a/e.go: package a has a second")
	check(map[string]string{"a/doc.go": doc, "a/b_test.go": "// T.\npackage a_test\n"},
		"belongs in doc.go", "a/doc.go: package a has a second")
	const main = "package main\n"
	check(map[string]string{"cmd/a/x.go": "// A runs.\n" + main, "cmd/a/y.go": main})
	check(map[string]string{"cmd/a/x.go": "package main\n"}, "package cmd/a has no package comment")
	check(map[string]string{"a/b_test.go": "package a\n"}, "a has no doc.go", "no package comment")
	check(map[string]string{"doc.go": "// Package kvloom is one.\npackage kvloom\n"})
}

func TestLengthCheckCanFail(t *testing.T) {
	check := func(p, text string, want ...string) {
		t.Helper()
		wantFindings(t, checkLengths(parseAll(t, fake(map[string]string{p: text}))), want...)
	}
	function := func(lines int) string {
		return "package a\nfunc f() {\n" + strings.Repeat("\tf()\n", lines-2) + "}\n"
	}
	check("a.go", function(70))
	check("a.go", function(71), "a.go:2: f has 71 lines")
	check("a_test.go", function(71))
	literal := strings.Replace(function(71), "func f()", "var f = func()", 1)
	check("a.go", literal, "a.go:2: function literal has 71 lines")

	check("a.go", "package a\n"+strings.Repeat("\n", 499))
	check("a.go", "package a\n"+strings.Repeat("\n", 500), "a.go has 501 lines")
	check("a_test.go", "package a\n"+strings.Repeat("\n", 799))
	check("a_test.go", "package a\n"+strings.Repeat("\n", 800), "a_test.go has 801 lines")

	check("a.go", "package a\n//"+strings.Repeat("ä", 98)+"\n")
	check("a.go", "package a\n//"+strings.Repeat("x", 99)+"\n", "a.go:2: the line has 101 columns")
	check("a.go", "package a\n\t//"+strings.Repeat("x", 95)+"\n", "101 columns")
	check("a.go", "package a\n// https://"+strings.Repeat("x", 99)+"\n")
}

func TestColumns(t *testing.T) {
	for line, want := range map[string]int{"": 0, "\t": 4, "a\t": 4, "abcd\t": 8, "\té": 5} {
		if got := columns(line); got != want {
			t.Errorf("columns(%q) = %d, want %d", line, got, want)
		}
	}
}

func TestInitCheckCanFail(t *testing.T) {
	got := checkInit(parseAll(t, fake(map[string]string{
		"a.go":      "package a\nfunc init() {}\n",
		"b.go":      "package a\ntype T int\nfunc (T) init() {}\nfunc initial() {}\n",
		"a_test.go": "package a\nfunc init() {}\n",
	})))
	wantFindings(t, got, "a.go:2: init")
}

func TestSleepCheckCanFail(t *testing.T) {
	got := checkSleep(parseAll(t, fake(map[string]string{
		"a_test.go": "package a\nimport \"time\"\nfunc f() {\n\ttime.Sleep(1)\n}\n",
		"b_test.go": "package a\nimport x \"time\"\nvar f = x.Sleep\n",
		"c_test.go": "package a\nimport . \"time\"\nvar f = Sleep\n",
		"d_test.go": "package a\nimport \"time\"\nvar f = time.Now\n",
		"e.go":      "package a\nimport \"time\"\nvar f = time.Sleep\n",
	})))
	wantFindings(t, got, "a_test.go:4: time.Sleep", "b_test.go:3", "c_test.go: dot import")
}

func TestStateCheckCanFail(t *testing.T) {
	check := func(text string, want ...string) {
		t.Helper()
		texts := map[string]string{"plan/a.go": "package plan\n" + text}
		wantFindings(t, checkState(parseAll(t, fake(texts)), []string{"plan"}), want...)
	}
	check("var count int", "plan/a.go:2: package-level variable count")
	check("var m = map[string]int{}", "variable m")
	check("var s = []int{1}", "variable s")
	check("var a, b = [...]int{1}, 2", "variable b")
	check("var (\n\tc int\n\t_ = 1\n)", "plan/a.go:3")
	check("var Table = [...]int{1}", "variable Table")
	check("//tidy:table\nvar Names = []int{1}", "variable Names")
	check("// tidy:table in passing\nvar names = []int{1}", "variable names")

	check("var ErrFull = errors.New(\"full\")\nvar _ I = T{}\nconst c = 1")
	check("var names = [...]string{\"a\"}\nvar grid [2][3]int")
	check("//tidy:table\nvar names = map[int]int{1: 2}")
	check("// Names.\n//\n//tidy:table\nvar names = map[int]int{1: 2}")
	check("func f() { var x int; x++ }")

	check("var grid [2][3]int\nfunc f() {\n\tgrid[0][1] = 1\n}", "plan/a.go:4: the table grid")
	check("var n [2]int\nfunc f() { n[0]++ }", "the table n is written")
	check("var n [2]int\nfunc f() *int { return &n[0] }", "the table n is written")
	check("var n [2]int\nfunc f() { n := 1; n++ }")
	check("var n [2]int\nfunc f() int { return n[0] }")

	sources := parseAll(t, fake(map[string]string{
		"plan/a.go":      "package plan\nvar n [2]int\n",
		"plan/b.go":      "package plan\nfunc f() { n[0] = 1 }\n",
		"plan/c_test.go": "package plan\nvar x int\n",
		"sim/d.go":       "package sim\nvar n [2]int\nvar x int\nfunc f() { n[0] = 1 }\n",
	}))
	wantFindings(t, checkState(sources, []string{"plan"}), "plan/b.go:2: the table n")
}

func TestFolderCheckCanFail(t *testing.T) {
	got := checkFolders(fake(map[string]string{
		"plan/util/a.go": "", "plan/util/b.go": "", "common/x/a.txt": "", "utilities.go": "",
	}))
	wantFindings(t, got, "plan/util:", "common:")
}

func TestFormatCheckCanFail(t *testing.T) {
	got := checkFormat(fake(map[string]string{
		"a.go": "package a\n\nvar x  = 1\n", "b.go": "package a\n\nvar x = 1\n", "c.go": "package",
	}))
	wantFindings(t, got, "a.go is not", "c.go is not")
}

func TestWordCheckCanFail(t *testing.T) {
	got := checkWords(fake(map[string]string{
		"a.md": "fine\nsee /wo" + "rk/x\n",
		"b.go": "`/ro" + "ot/go`",
		"c":    "GOPROXY=https://pro" + "xy.golang.org",
		"d.go": "// TO" + "DO: later",
		"e":    "/ho" + "me/someone/x",
		"f":    "team/wo" + "rk/x ./wo" + "rk/ x/ro" + "ot/y proxies golang.org home/ / work/",
		"g":    "\xff\xfe",
		"h":    "registry.npm" + "js.org",
	}))
	wantFindings(t, got, "a.md:2", "b.go:1", "c:1", "d.go:1", "e:1", "g is not valid UTF-8", "h:1")
}
