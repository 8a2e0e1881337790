//go:build amd64 && !noasm

package simd

import "strings"

// processor is what instruction sets are found by: CPUID, XGETBV, and the system's permission to
// use tiles, which says why not where it is refused.
type processor struct {
	cpuid  func(leaf, sub uint32) (a, b, c, d uint32)
	xgetbv func() uint32
	permit func() string
}

// Detect asks the processor, and the operating system's mask of the registers that it saves (Intel,
// Software Developer's Manual, volume 1, 13.3, 14.3 and 18.3).
func Detect() Features {
	p := processor{cpuid: cpuid, xgetbv: xgetbv, permit: permitTiles}
	return p.detect()
}

// feature is one bit that a processor answers with.
type feature struct {
	name string
	bit  uint
	word uint32
}

// detect finds what each instruction set lacks.
func (p *processor) detect() Features {
	const (
		ymm   = 0b110      // SSE and AVX state
		zmm   = 0b11100110 // and mask registers, upper halves, upper registers
		tiles = 0b11 << 17 // their shapes and data
	)
	var f Features
	top, vendor, ecx, edx := p.cpuid(0, 0)
	amd := vendor == 0x68747541 && edx == 0x69746e65 && ecx == 0x444d4163 // AuthenticAMD
	_, _, c1, _ := p.cpuid(1, 0)
	saved := uint32(0)
	if c1>>27&1 != 0 { // OSXSAVE: XGETBV may be asked
		saved = p.xgetbv()
	}
	var b7, d7, a71 uint32
	if top >= 7 {
		_, b7, _, d7 = p.cpuid(7, 0)
		a71, _, _, _ = p.cpuid(7, 1)
	}
	narrow := []feature{{"AVX", 28, c1}, {"FMA", 12, c1}, {"AVX2", 5, b7}}
	wide := append(narrow[:3:3], feature{"BMI2", 8, b7}, feature{"AVX512F", 16, b7},
		feature{"AVX512DQ", 17, b7}, feature{"AVX512BW", 30, b7}, feature{"AVX512VL", 31, b7})
	pairs := append(wide[:8:8], feature{"AVX512_BF16", 5, a71})
	matrix := append(pairs[:9:9], feature{"AMX-TILE", 24, d7}, feature{"AMX-BF16", 22, d7})
	f.missing[AVX2] = lacks(narrow, saved, ymm)
	f.missing[AVX512] = lacks(wide, saved, zmm)
	f.pairs = lacks(pairs, saved, zmm)
	f.missing[AVX512BF16] = f.pairs
	if f.missing[AVX512BF16] == "" && !amd { // Intel's do half as many as of float32
		f.missing[AVX512BF16] = "only AMD's processors are known to multiply pairs of bf16 " +
			"faster than float32"
	}
	f.missing[AMX] = lacks(matrix, saved, zmm|tiles)
	f.permit = p.permit
	return f
}

// lacks says which features are not there, or that the system does not save the registers of mask.
func lacks(need []feature, saved, mask uint32) string {
	var names []string
	for _, x := range need {
		if x.word>>x.bit&1 == 0 {
			names = append(names, x.name)
		}
	}
	switch {
	case len(names) > 0:
		return "the processor lacks " + strings.Join(names, ", ")
	case saved&mask != mask:
		return "the operating system does not save their registers"
	}
	return ""
}
