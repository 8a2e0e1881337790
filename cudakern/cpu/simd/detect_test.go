//go:build amd64 && !noasm

package simd

import (
	"strings"
	"testing"
)

// fake is a processor with everything, by Intel or AMD, less what a test takes away.
type fake struct {
	amd            bool
	c1, b7, d7, a7 uint32 // features: leaf 1 ECX, leaf 7 EBX and EDX, leaf 7.1 EAX
	top            uint32
	saved          uint32
	refused        string
	asked          int // how often the system was asked for tiles
}

func whole() fake {
	return fake{
		c1: 1<<12 | 1<<27 | 1<<28, b7: 1<<5 | 1<<8 | 1<<16 | 1<<17 | 1<<30 | 1<<31,
		d7: 1<<22 | 1<<24, a7: 1 << 5, top: 31, saved: 0x600e7,
	}
}

func (f *fake) processor() processor {
	return processor{
		cpuid: func(leaf, sub uint32) (a, b, c, d uint32) {
			switch {
			case leaf == 0 && f.amd:
				return f.top, 0x68747541, 0x444d4163, 0x69746e65
			case leaf == 0:
				return f.top, 0x756e6547, 0x6c65746e, 0x49656e69
			case leaf == 1:
				return 0, 0, f.c1, 0
			case leaf == 7 && sub == 0 && f.top >= 7:
				return 0, f.b7, 0, f.d7
			case leaf == 7 && sub == 1 && f.top >= 7:
				return f.a7, 0, 0, 0
			}
			return ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0) // not to be asked
		},
		xgetbv: func() uint32 {
			if f.c1>>27&1 == 0 {
				panic("XGETBV is asked where there is none")
			}
			return f.saved
		},
		permit: func() string {
			f.asked++
			return f.refused
		},
	}
}

// TestDetect tells processors and systems apart.
func TestDetect(t *testing.T) {
	for _, tc := range []struct {
		name string
		less func(f *fake)
		best ISA
		lack ISA // and why it is not there
		why  string
	}{
		{"all, Intel", func(*fake) {}, AMX, AVX512BF16, "only AMD's"},
		{"all, AMD", func(f *fake) { f.amd = true }, AMX, 0, ""},
		{"no tiles", func(f *fake) { f.d7 = 1 << 22 }, AVX512, AMX, "lacks AMX-TILE"},
		{"no bf16 in tiles", func(f *fake) { f.d7 = 1 << 24 }, AVX512, AMX, "lacks AMX-BF16"},
		{"AMD", func(f *fake) { f.amd, f.d7 = true, 0 }, AVX512BF16, AMX,
			"lacks AMX-TILE, AMX-BF16"},
		{"tiles not saved", func(f *fake) { f.saved = 0x200e7 }, AVX512, AMX, "does not save"},
		{"refused", func(f *fake) { f.refused = "no room" }, AVX512, AMX, "no room"},
		{"no AVX512_BF16", func(f *fake) { f.a7 = 0 }, AVX512, AMX, "lacks AVX512_BF16"},
		{"zmm not saved", func(f *fake) { f.saved = 0x60007 }, AVX2, AVX512, "does not save"},
		{"no AVX512DQ", func(f *fake) { f.b7 &^= 1 << 17 }, AVX2, AMX, "lacks AVX512DQ"},
		{"no BMI2", func(f *fake) { f.b7 &^= 1 << 8 }, AVX2, AVX512, "lacks BMI2"},
		{"no FMA", func(f *fake) { f.c1 &^= 1 << 12 }, Portable, AVX512, "lacks FMA"},
		{"ymm not saved", func(f *fake) { f.saved = 0x600e3 }, Portable, AVX2, "does not save"},
		{"no OSXSAVE", func(f *fake) { f.c1 &^= 1 << 27 }, Portable, AVX2, "does not save"},
		{"old", func(f *fake) { f.top = 6 }, Portable, AVX2, "lacks AVX2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := whole()
			tc.less(&f)
			p := f.processor()
			found := p.detect()
			for _, isa := range []ISA{Portable, AVX2, AVX512, AVX512BF16} {
				_ = found.Supported(isa) // the answer is not the question here
			}
			if f.asked != 0 {
				t.Error("the system is asked for tiles before anybody wants them")
			}
			if tc.lack != 0 {
				err := found.Supported(tc.lack)
				if err == nil || !strings.Contains(err.Error(), tc.why) {
					t.Errorf("%v: %v, want %q", tc.lack, err, tc.why)
				}
			}
			if best := found.Best(); best != tc.best || found.Supported(best) != nil {
				t.Errorf("the best is %v, want %v", best, tc.best)
			}
		})
	}
}
