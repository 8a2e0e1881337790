// Command _gen writes the assembly of package cudakern/cpu/simd and its Go declarations:
//
//	go run . -dir ../cudakern/cpu/simd
//
// Every kernel is written once for vectors of any width; isa.go holds what differs. Those of pairs of
// bf16, in dot.go and pairs.go, have one width.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	dir := flag.String("dir", ".", "folder of the package, to write to")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes all files to dir.
func run(dir string) error {
	for _, f := range []struct {
		name string
		fill func(g *gen)
	}{
		{"avx512", func(g *gen) { g.kernels(avx512) }},
		{"avx2", func(g *gen) { g.kernels(avx2) }},
		{"dot", (*gen).dots},
		{"amx", (*gen).tiles},
		{"cpu", (*gen).cpu},
	} {
		if err := write(dir, f.name, f.fill); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// write generates one pair of files, <name>_amd64.s and <name>_amd64.go.
func write(dir, name string, fill func(g *gen)) error {
	g := &gen{Context: build.NewContext()}
	g.ConstraintExpr("amd64,!noasm")
	fill(g)
	file, err := g.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return err
	}
	if err := encode(file); err != nil {
		return err
	}
	cfg := printer.Config{Name: "_gen", Pkg: "simd"}
	base := filepath.Join(dir, name+"_amd64")
	if err := save(base+".s", printer.NewGoAsm(cfg), file); err != nil {
		return err
	}
	return save(base+".go", printer.NewStubs(cfg), file)
}

// save prints file to path.
func save(path string, p printer.Printer, file *ir.File) error {
	text, err := p.Print(file)
	if err != nil {
		return err
	}
	return os.WriteFile(path, fold(text), 0o644)
}

// fold puts the parameters of long declarations on a line of their own.
func fold(text []byte) []byte {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		open, end := strings.Index(line, "("), strings.LastIndex(line, ")")
		if strings.HasPrefix(line, "func ") && len(line) > 100 {
			lines[i] = line[:open+1] + "\n\t" + line[open+1:end] + ",\n" + line[end:]
		}
	}
	return []byte(strings.Join(lines, "\n"))
}
