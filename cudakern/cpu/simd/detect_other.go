//go:build !amd64 || noasm

package simd

// Detect finds nothing but the portable kernels: this build has no assembly.
func Detect() Features {
	var f Features
	for _, isa := range []ISA{AVX2, AVX512, AVX512BF16, AMX} {
		f.missing[isa] = "this build has no assembly (it is for another processor than amd64, " +
			"or has the tag noasm)"
	}
	return f
}
