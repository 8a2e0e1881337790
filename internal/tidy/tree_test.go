package tidy

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/kvloom/kvloom"

// rootName is what the package in the module's root folder is called in the lattice.
const rootName = "kvloom"

// file is one file of the tree or of a test's fake tree. The path is relative to the module's
// root and has slashes.
type file struct {
	path string
	text []byte
}

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// pkg is the folder of the file in the words of the lattice.
func (f file) pkg() string {
	if dir := path.Dir(f.path); dir != "." {
		return dir
	}
	return rootName
}

// source is a parsed Go file.
type source struct {
	file
	fset *token.FileSet
	ast  *ast.File
}

func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

func (s source) at(p token.Pos) string { return s.path + ":" + strconv.Itoa(s.line(p)) }

// importName is the name under which the file uses the import path, or "" if it does not import
// it. A dot import gives ".".
func (s source) importName(importPath string) string {
	for _, spec := range s.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// uses lists the places where the file names one of the functions of the import path.
func (s source) uses(importPath string, names ...string) []string {
	name := s.importName(importPath)
	if name == "" {
		return nil
	}
	if name == "." {
		return []string{s.path + ": dot import of " + importPath + ": import it by its name"}
	}
	var out []string
	ast.Inspect(s.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok || x.Name != name || x.Obj != nil {
			return true
		}
		for _, want := range names {
			if sel.Sel.Name == want {
				out = append(out, s.at(sel.Pos())+": "+importPath+"."+want)
			}
		}
		return true
	})
	return out
}

// parseAll parses the Go files among files; one that does not parse fails the test.
func parseAll(t *testing.T, files []file) []source {
	t.Helper()
	var out []source
	for _, f := range files {
		if !strings.HasSuffix(f.path, ".go") {
			continue
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, f.path, f.text, parser.ParseComments)
		if err != nil {
			t.Errorf("%s does not parse: %v", f.path, err)
			continue
		}
		out = append(out, source{f, fset, tree})
	}
	return out
}

// fake makes Go files of texts by path, in the order of the paths.
func fake(texts map[string]string) []file {
	var out []file
	for p, text := range texts {
		out = append(out, file{p, []byte(text)})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].path < out[j].path })
	return out
}

// moduleRoot is the nearest folder upwards that has a go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod in this folder or above it: run the test inside the module")
		}
		dir = up
	}
}

// goFiles reads the module's Go files: those the go command could build under some tags.
func goFiles(t *testing.T) []file {
	t.Helper()
	return walk(t, func(name string) bool {
		return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata"
	}, func(p string) bool {
		base := path.Base(p)
		return strings.HasSuffix(p, ".go") && base[0] != '.' && base[0] != '_'
	})
}

// textFiles reads every text file of the tree, hidden folders too; build output is left out.
func textFiles(t *testing.T) []file {
	t.Helper()
	all := walk(t, func(name string) bool {
		return name == ".git" || name == "bin" || name == "node_modules"
	}, func(p string) bool {
		ext := path.Ext(p)
		return ext != ".test" && ext != ".prof" && ext != ".out"
	})
	var out []file
	for _, f := range all {
		if bytes.IndexByte(f.text[:min(len(f.text), 8192)], 0) < 0 {
			out = append(out, f)
		}
	}
	return out
}

// walk reads the files of the module that keep accepts, in the order of their paths, without the
// folders whose name skip accepts and without nested modules.
func walk(t *testing.T, skip, keep func(string) bool) []file {
	t.Helper()
	root := moduleRoot(t)
	var out []file
	err := filepath.WalkDir(root, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, full)
		if err != nil || rel == "." {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(full, "go.mod")); err == nil || skip(d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !keep(rel) {
			return nil
		}
		text, err := os.ReadFile(full)
		if os.IsNotExist(err) {
			return nil // an editor's or a test's passing file
		}
		out = append(out, file{rel, text})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatalf("no files found under %s: the checks would pass without looking", root)
	}
	return out
}

// report fails the test with one error per finding.
func report(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

// wantFindings checks that there is exactly one finding for each of the wanted texts, in any
// order, and no other.
func wantFindings(t *testing.T, got []string, want ...string) {
	t.Helper()
	left := append([]string(nil), got...)
	for _, w := range want {
		found := -1
		for i, g := range left {
			if strings.Contains(g, w) {
				found = i
				break
			}
		}
		if found < 0 {
			t.Errorf("no finding says %q in:\n  %s", w, strings.Join(got, "\n  "))
			continue
		}
		left = append(left[:found], left[found+1:]...)
	}
	for _, g := range left {
		t.Errorf("unwanted finding: %s", g)
	}
}
