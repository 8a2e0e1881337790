//go:build amd64 && !noasm

package simd

import "strings"

// feature is one bit that a processor answers with.
type feature struct {
	name string
	bit  uint
	word uint32
}

// Detect asks the processor, and the operating system's mask of the registers that it saves (Intel,
// Software Developer's Manual, volume 1, 13.3 and 14.3).
func Detect() Features {
	const (
		ymm = 0b110      // SSE and AVX state
		zmm = 0b11100110 // and mask registers, upper halves, upper registers
	)
	var f Features
	f.missing[AMX] = "this version has none"
	top, _, _, _ := cpuid(0, 0)
	_, _, c1, _ := cpuid(1, 0)
	saved := uint32(0)
	if c1>>27&1 != 0 { // OSXSAVE: XGETBV may be asked
		saved = xgetbv()
	}
	b7 := uint32(0)
	if top >= 7 {
		_, b7, _, _ = cpuid(7, 0)
	}
	narrow := []feature{{"AVX", 28, c1}, {"FMA", 12, c1}, {"AVX2", 5, b7}}
	wide := append(narrow[:3:3], feature{"BMI2", 8, b7}, feature{"AVX512F", 16, b7},
		feature{"AVX512DQ", 17, b7}, feature{"AVX512BW", 30, b7}, feature{"AVX512VL", 31, b7})
	f.missing[AVX2] = lacks(narrow, saved&ymm == ymm)
	f.missing[AVX512] = lacks(wide, saved&zmm == zmm)
	f.missing[AVX512BF16] = lacksPairs(top, lacks(wide, saved&zmm == zmm))
	return f
}

// lacks says which features are not there.
func lacks(need []feature, saved bool) string {
	var names []string
	for _, x := range need {
		if x.word>>x.bit&1 == 0 {
			names = append(names, x.name)
		}
	}
	switch {
	case len(names) > 0:
		return "the processor lacks " + strings.Join(names, ", ")
	case !saved:
		return "the operating system does not save their registers"
	}
	return ""
}

// lacksPairs says why products of pairs of bf16 are no gain, if AVX512 lacks nothing. AMD's
// processors do as many of them a cycle as multiply-adds of float32, Intel's half as many.
func lacksPairs(top uint32, avx512 string) string {
	if avx512 != "" || top < 7 {
		return avx512
	}
	a, _, _, _ := cpuid(7, 1)
	_, b, c, d := cpuid(0, 0)
	switch {
	case a>>5&1 == 0:
		return "the processor lacks AVX512_BF16"
	case b != 0x68747541 || d != 0x69746e65 || c != 0x444d4163: // AuthenticAMD
		return "only AMD's processors are known to multiply pairs of bf16 faster than float32"
	}
	return ""
}
