package tiles

import (
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// TestDecode has what GNU as 2.40 makes of the texts.
func TestDecode(t *testing.T) {
	mem := func(base, index int, scale uint, disp int64) address {
		return address{base, index, scale, disp}
	}
	no := mem(none, none, 0, 0)
	for _, c := range []struct {
		text, hex         string
		op                Op
		dst, first, other int
		at                address
	}{
		{"ldtilecfg (%rax)", "c4e2784900", LDTILECFG, 0, 0, 0, mem(0, none, 0, 0)},
		{"ldtilecfg 0x40(%r9,%r10,4)", "c48278494491" + "40", LDTILECFG, 0, 0, 0,
			mem(9, 10, 2, 64)},
		{"ldtilecfg 0x12345678(%rip)", "c4e278490578563412", LDTILECFG, 0, 0, 0,
			mem(rip, none, 0, 0x12345678)},
		{"sttilecfg 8(%rsp)", "c4e27949442408", STTILECFG, 0, 0, 0, mem(4, none, 0, 8)},
		{"tilerelease", "c4e27849c0", TILERELEASE, 0, 0, 0, no},
		{"tilezero %tmm0", "c4e27b49c0", TILEZERO, 0, 0, 0, no},
		{"tilezero %tmm7", "c4e27b49f8", TILEZERO, 7, 0, 0, no},
		{"tileloadd (%rax,%rbx,1), %tmm1", "c4e27b4b0c18", TILELOADD, 1, 0, 0, mem(0, 3, 0, 0)},
		{"tileloadd 0x80(%r13,%r14,8), %tmm6", "c4827b4bb4f580000000", TILELOADD, 6, 0, 0,
			mem(13, 14, 3, 128)},
		{"tileloadd 0x12345678(,%rcx,2), %tmm2", "c4e27b4b144d78563412", TILELOADD, 2, 0, 0,
			mem(none, 1, 1, 0x12345678)},
		{"tileloadd (%rsp), %tmm3", "c4e27b4b1c24", TILELOADD, 3, 0, 0, mem(4, none, 0, 0)},
		{"tileloadd -64(%rbp,%r12,1), %tmm4", "c4a27b4b6425c0", TILELOADD, 4, 0, 0,
			mem(5, 12, 0, -64)},
		{"tileloaddt1 (%rsi,%rdi,4), %tmm5", "c4e2794b2cbe", TILELOADDT1, 5, 0, 0,
			mem(6, 7, 2, 0)},
		{"tilestored %tmm3, -0x1000(%r15,%r8,1)", "c4827a4b9c0700f0ffff", TILESTORED, 3, 0, 0,
			mem(15, 8, 0, -4096)},
		{"tdpbf16ps %tmm3, %tmm2, %tmm1", "c4e2625cca", TDPBF16PS, 1, 2, 3, no},
		{"tdpbf16ps %tmm5, %tmm0, %tmm7", "c4e2525cf8", TDPBF16PS, 7, 0, 5, no},
	} {
		code := unhex(c.hex)
		want := Inst{c.op, len(code), c.dst, c.first, c.other, c.at}
		if got, ok := Decode(append(code, 0x90, 0x90)); !ok || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", c.text, got, ok, want)
		}
		for n := range code {
			if got, ok := Decode(code[:n]); ok {
				t.Errorf("%s cut to %d bytes: got %+v", c.text, n, got)
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for what, text := range map[string]string{
		"another opcode":            "c4e2785800",
		"TDPBSSD":                   "c4e2635eca",
		"another map":               "c4e1784900",
		"VEX.W":                     "c4e2f84900",
		"VEX.L":                     "c4e27c4900",
		"vvvv of a load":            "c4e2734b0c18",
		"vvvv of LDTILECFG":         "c4e2704900",
		"tile 9 loaded":             "c4627b4b0c18",
		"tile 8 zeroed":             "c4627b49c0",
		"tile 8 as first factor":    "c4c2625cc8",
		"tile 9 as product":         "c462625cca",
		"tile 11 as second factor":  "c4e2225cca",
		"product of memory":         "c4e2625c0a",
		"load without SIB":          "c4e27b4b08",
		"load of a register":        "c4e27b4bc8",
		"load without prefix":       "c4e2784b0c18",
		"LDTILECFG with reg 1":      "c4e2784908",
		"STTILECFG of a register":   "c4e27949c0",
		"TILERELEASE with rm 1":     "c4e27849c1",
		"TILEZERO with rm 1":        "c4e27b49c1",
		"LDTILECFG with F3":         "c4e27a4900",
		"two-byte VEX":              "c5f8490000",
		"vector instruction (FMA)":  "c4e27db8c1",
		"ordinary move of a number": "b940000000",
	} {
		if got, ok := Decode(append(unhex(text), make([]byte, 8)...)); ok {
			t.Errorf("%s: got %+v", what, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) { // whatever the bytes, no panic, no byte beyond the end
		code := append(unhex("c4e27b"), rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "code")...)
		if in, ok := Decode(code); ok && in.Len > len(code) {
			t.Fatalf("%+v of %d bytes", in, len(code))
		}
	})
}
