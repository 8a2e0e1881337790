package simd

import (
	"fmt"
	"strings"
)

// ISA is an instruction set that attention kernels are written for.
type ISA uint8

// The instruction sets, slower ones first.
const (
	Portable   ISA = iota // package kernel, in Go
	AVX2                  // AVX2 and FMA
	AVX512                // AVX-512 F, DQ, BW and VL
	AVX512BF16            // of bf16, products of pairs where those are fast; of others, AVX512
	AMX                   // of bf16, products of tiles; of others, AVX512
)

var isaNames = [...]string{"portable", "avx2", "avx512", "avx512bf16", "amx"}

// String is the name that ParseISA reads.
func (i ISA) String() string {
	if int(i) < len(isaNames) {
		return isaNames[i]
	}
	return fmt.Sprintf("ISA(%d)", uint8(i))
}

// ParseISA reads a name: portable, avx2, avx512, avx512bf16 or amx.
func ParseISA(name string) (ISA, error) {
	for i, n := range isaNames {
		if n == name {
			return ISA(i), nil
		}
	}
	return 0, fmt.Errorf("simd: no instruction set is called %q: use one of %s", name,
		strings.Join(isaNames[:], ", "))
}

// Features is what the processor and the operating system offer.
type Features struct {
	missing [len(isaNames)]string // what an instruction set lacks here; empty: nothing
	pairs   string                // what AVX512BF16 lacks, were it fast on every processor
	permit  func() string         // asks for AMX, if it lacks nothing; says why it is refused
}

// lack is what isa lacks here. The system is asked for the use of tiles only when AMX lacks nothing
// else and is the question, or might be the best.
func (f *Features) lack(isa ISA) string {
	if why := f.missing[isa]; why != "" || isa != AMX {
		return why
	}
	return f.permit()
}

// Supported is nil where the kernels of isa run here, or an error with the reason why not.
func (f *Features) Supported(isa ISA) error {
	if int(isa) >= len(f.missing) {
		return fmt.Errorf("simd: %v is not known", isa)
	}
	if why := f.lack(isa); why != "" {
		return fmt.Errorf("simd: no %v kernels: %s", isa, why)
	}
	return nil
}

// Best is the fastest instruction set that is supported.
func (f *Features) Best() ISA {
	for i := AMX; i > Portable; i-- {
		if f.lack(i) == "" {
			return i
		}
	}
	return Portable
}

// Supported is Features.Supported of this machine.
func Supported(isa ISA) error {
	f := Detect()
	return f.Supported(isa)
}

// Best is Features.Best of this machine.
func Best() ISA {
	f := Detect()
	return f.Best()
}

// lanes is the queries side by side in a panel.
func (i ISA) lanes() int {
	if i >= AVX512 {
		return 48
	}
	return 24
}
