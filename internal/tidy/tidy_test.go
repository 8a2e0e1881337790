package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"path"
	"regexp"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxFuncLines = 70  // a function that fits a screen can be checked by reading it
	maxColumns   = 100 // two files fit side by side
	maxFileLines = 500 // one file, one thing
	maxTestLines = 800 // tables are long, and splitting them helps nobody
	tabColumns   = 4
)

// checkPackageComments wants one package comment in each folder: in doc.go, or for a command in
// any file. Two comments are printed by go doc one after the other, in the order of file names.
func checkPackageComments(sources []source) []string {
	type folder struct {
		docs             []source
		isMain, hasDocGo bool
		name             string
	}
	folders := map[string]*folder{}
	var order []string
	for _, s := range sources {
		f := folders[s.pkg()]
		if f == nil {
			f = &folder{}
			folders[s.pkg()] = f
			order = append(order, s.pkg())
		}
		if s.ast.Doc != nil {
			f.docs = append(f.docs, s)
		}
		if !s.isTest() {
			f.isMain = f.isMain || s.ast.Name.Name == "main"
			f.name = s.ast.Name.Name
		}
		f.hasDocGo = f.hasDocGo || path.Base(s.path) == "doc.go"
	}
	sort.Strings(order)
	var out []string
	for _, name := range order {
		f := folders[name]
		if !f.hasDocGo && !f.isMain {
			out = append(out, fmt.Sprintf("package %s has no doc.go: write one that says what it "+
				"owns, its caller's duties, its invariants and what may run at once", name))
		}
		if len(f.docs) == 0 {
			out = append(out, fmt.Sprintf("package %s has no package comment", name))
		}
		for i, s := range f.docs {
			switch {
			case i > 0:
				out = append(out, fmt.Sprintf("%s: package %s has a second package comment: "+
					"leave an empty line above the package clause", s.path, name))
			case !f.isMain && path.Base(s.path) != "doc.go":
				out = append(out, fmt.Sprintf("%s: the package comment of %s belongs in doc.go: "+
					"move it, or leave an empty line above the package clause", s.path, name))
			case !f.isMain && !strings.HasPrefix(s.ast.Doc.Text(), "Package "+f.name+" "):
				out = append(out, fmt.Sprintf("%s: the package comment does not begin with "+
					"\"Package %s \"", s.path, f.name))
			}
		}
	}
	return out
}

// checkLengths judges functions, lines and files.
func checkLengths(sources []source) []string {
	var out []string
	for _, s := range sources {
		limit := maxFileLines
		if s.isTest() {
			limit = maxTestLines
		}
		if n := bytes.Count(s.text, []byte("\n")); n > limit {
			out = append(out, fmt.Sprintf("%s has %d lines, more than %d: split it by what its "+
				"parts are about", s.path, n, limit))
		}
		out = append(out, checkColumns(s.file)...)
		if !s.isTest() {
			out = append(out, checkFunctions(s)...)
		}
	}
	return out
}

// checkColumns judges the lines of one file. A line with an address is left alone: it cannot be
// broken. So are files that a program wrote, which nobody edits.
func checkColumns(f file) []string {
	var out []string
	if bytes.HasPrefix(f.text, []byte("// Code generated ")) {
		return nil
	}
	n := 0
	for line := range strings.Lines(string(f.text)) {
		n++
		if strings.Contains(line, "https://") || strings.Contains(line, "http://") {
			continue
		}
		if c := columns(strings.TrimRight(line, "\r\n")); c > maxColumns {
			out = append(out, fmt.Sprintf("%s:%d: the line has %d columns (tab = %d), more than %d",
				f.path, n, c, tabColumns, maxColumns))
		}
	}
	return out
}

func columns(line string) int {
	c := 0
	for _, r := range line {
		if r == '\t' {
			c += tabColumns - c%tabColumns
		} else {
			c++
		}
	}
	return c
}

// checkFunctions judges functions with a name and function literals outside of any; a literal
// inside of one counts with it.
func checkFunctions(s source) []string {
	var out []string
	ast.Inspect(s.ast, func(n ast.Node) bool {
		name := ""
		switch n := n.(type) {
		case *ast.FuncDecl:
			name = n.Name.Name
		case *ast.FuncLit:
			name = "function literal"
		default:
			return true
		}
		first, last := s.line(n.Pos()), s.line(n.End())
		if lines := last - first + 1; lines > maxFuncLines {
			out = append(out, fmt.Sprintf("%s:%d: %s has %d lines, more than %d: name its parts "+
				"and make them functions", s.path, first, name, lines, maxFuncLines))
		}
		return false
	})
	return out
}

// checkInit bans init: it runs before main, in an order that nobody reads, and cannot be tested.
func checkInit(sources []source) []string {
	var out []string
	for _, s := range sources {
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && !s.isTest() && f.Recv == nil && f.Name.Name == "init" {
				out = append(out, s.at(f.Pos())+": init runs unseen at import: call a function "+
					"where its result is needed")
			}
		}
	}
	return out
}

// checkSleep bans time.Sleep in tests: too short it fails on a busy machine, too long it is paid
// at every run.
func checkSleep(sources []source) []string {
	var out []string
	for _, s := range sources {
		if !s.isTest() {
			continue
		}
		for _, f := range s.uses("time", "Sleep") {
			out = append(out, f+" in a test: wait for the event itself, or use virtual time")
		}
	}
	return out
}

// checkState finds package-level variables of pure packages. Allowed are errors (Err...), checks
// of interfaces (var _ = ...), and tables: an unexported array, or whatever carries the comment
// //tidy:table; a table may nowhere be assigned to and its address may not be taken.
func checkState(sources []source, pure []string) []string {
	var out []string
	tables := map[string]map[string]*ast.ValueSpec{}
	for _, s := range sources {
		if s.isTest() || !contains(pure, s.pkg()) {
			continue
		}
		if tables[s.pkg()] == nil {
			tables[s.pkg()] = map[string]*ast.ValueSpec{}
		}
		for _, d := range s.ast.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.VAR {
				continue
			}
			for _, sp := range decl.Specs {
				spec := sp.(*ast.ValueSpec)
				for i, name := range spec.Names {
					switch {
					case name.Name == "_" || strings.HasPrefix(name.Name, "Err"):
					case isTable(decl, spec, i):
						tables[s.pkg()][name.Name] = spec
					default:
						out = append(out, fmt.Sprintf("%s: package-level variable %s in the pure "+
							"package %s: two machines would share it. Make it a constant, a "+
							"parameter, or an unexported array or //tidy:table never assigned",
							s.at(name.Pos()), name.Name, s.pkg()))
					}
				}
			}
		}
	}
	for _, s := range sources {
		if !s.isTest() && tables[s.pkg()] != nil {
			out = append(out, checkTables(s, tables[s.pkg()])...)
		}
	}
	return out
}

// isTable says whether name i of the spec is an unexported array or marked as a table.
func isTable(decl *ast.GenDecl, spec *ast.ValueSpec, i int) bool {
	if spec.Names[i].IsExported() {
		return false
	}
	for _, g := range []*ast.CommentGroup{decl.Doc, spec.Doc, spec.Comment} {
		if g == nil {
			continue
		}
		for _, c := range g.List {
			if c.Text == "//tidy:table" {
				return true
			}
		}
	}
	kind := spec.Type
	if kind == nil && i < len(spec.Values) {
		if lit, ok := spec.Values[i].(*ast.CompositeLit); ok {
			kind = lit.Type
		}
	}
	array, ok := kind.(*ast.ArrayType)
	return ok && array.Len != nil
}

// checkTables finds writes to the tables. A local name that hides a table's is told apart by the
// parser's own resolution (Obj); a name from another file of the package has none.
func checkTables(s source, tables map[string]*ast.ValueSpec) []string {
	var out []string
	written := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			case *ast.SliceExpr:
				e = x.X
			case *ast.Ident:
				spec, ok := tables[x.Name]
				if ok && (x.Obj == nil || x.Obj.Decl == any(spec)) {
					out = append(out, fmt.Sprintf("%s: the table %s is written or its address "+
						"taken: a table never changes", s.at(x.Pos()), x.Name))
				}
				return
			default:
				return
			}
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				written(e)
			}
		case *ast.IncDecStmt:
			written(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				written(n.X)
			}
		}
		return true
	})
	return out
}

// checkFolders bans names that say nothing about what is inside.
func checkFolders(files []file) []string {
	vague := []string{"util", "utils", "common", "helper", "helpers", "misc"}
	seen := map[string]bool{}
	var out []string
	for _, f := range files {
		for dir := path.Dir(f.path); dir != "."; dir = path.Dir(dir) {
			if contains(vague, path.Base(dir)) && !seen[dir] {
				seen[dir] = true
				out = append(out, dir+": a folder is named after what it owns")
			}
		}
	}
	return out
}

func checkFormat(files []file) []string {
	var out []string
	for _, f := range files {
		if text, err := format.Source(f.text); err != nil || !bytes.Equal(text, f.text) {
			out = append(out, f.path+" is not formatted: run gofmt -w on it")
		}
	}
	return out
}

// forbidden has the words that no file may have, each with why. They are put together from pieces
// because this file is read too.
func forbidden() map[string]*regexp.Regexp {
	const start = `(^|[^\w.~-])`
	words := func(pieces ...string) *regexp.Regexp {
		return regexp.MustCompile(strings.Join(pieces, ""))
	}
	return map[string]*regexp.Regexp{
		"a path of one machine: use a path relative to the repository or t.TempDir()": words(
			start, `/(wo`, `rk|ro`, `ot|ho`, `me/\w+|Us`, `ers/\w+)/`),
		"a registry's host: the go command chooses it": words(
			`(pro`, `xy|su`, `m)\.golang`, `\.org|registry\.npm`, `js\.org|\bpypi`, `\.org`),
		"work left over: finish it, or say in an issue what is missing": words(
			`\b(TO`, `DO|FIX`, `ME|XX`, `X)\b`),
	}
}

func checkWords(files []file) []string {
	var out []string
	rules := forbidden()
	for _, f := range files {
		if !utf8.Valid(f.text) {
			out = append(out, f.path+" is not valid UTF-8")
			continue
		}
		n := 0
		for line := range strings.Lines(string(f.text)) {
			n++
			for why, rule := range rules {
				if found := rule.FindString(line); found != "" {
					out = append(out, fmt.Sprintf("%s:%d: %q is %s", f.path, n,
						strings.TrimSpace(found), why))
				}
			}
		}
	}
	return out
}

func TestPackageComments(t *testing.T) {
	report(t, checkPackageComments(parseAll(t, goFiles(t))))
}

func TestLengths(t *testing.T) { report(t, checkLengths(parseAll(t, goFiles(t)))) }

func TestNoInit(t *testing.T) { report(t, checkInit(parseAll(t, goFiles(t)))) }

func TestNoSleepInTests(t *testing.T) { report(t, checkSleep(parseAll(t, goFiles(t)))) }

func TestPurePackagesHaveNoState(t *testing.T) {
	report(t, checkState(parseAll(t, goFiles(t)), mustLattice(t).sets["PURE"]))
}

func TestFolderNames(t *testing.T) { report(t, checkFolders(textFiles(t))) }

func TestFormat(t *testing.T) { report(t, checkFormat(goFiles(t))) }

func TestWords(t *testing.T) { report(t, checkWords(textFiles(t))) }
