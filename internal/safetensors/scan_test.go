package safetensors

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestScannerAgreesWithJSON draws headers out of pieces, spoils some, and reads them both ways.
func TestScannerAgreesWithJSON(t *testing.T) {
	good := file("{"+entry("q", "F32", "[1,2]", 0, 8)+`,"__metadata__":{"a\u0041":"b","c":""},`+
		`"r":{"more":{"x":[1,-2.5e3,null],"y":{}},"dtype":"I8","shape":[],"data_offsets":[8,9]}}`,
		0, 0, 0, 0, 0, 0, 0, 0, 0)[8:]
	good = good[:len(good)-9]
	if _, err := scanHeader("in.st", good); err != nil {
		t.Fatal(err)
	}
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		text := bytes.Clone(good)
		for range rapid.IntRange(0, 2).Draw(t, "edits") {
			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			n := rapid.IntRange(0, min(3, len(text)-1-at)).Draw(t, "cut")
			in := rapid.SampledFrom([]string{
				"", " ", "0", "1", "-", ".", "e", `"`, `\`, `\u00`, "{", "}", "[", "]",
				",", ":", "null", "true", `"a"`, `"x":1,`, "\n", "é", "\xff", `"dtype":"F32",`,
				"[[", "]]"}).Draw(t, "in")
			text = slices.Concat(text[:at], []byte(in), text[at+n:])
		}
		sameAsSlow(t, text)
		if _, err := scanHeader("in.st", text); err == nil {
			passed++
		}
	})
	if passed == 0 {
		t.Error("no drawn header passed: the test compares refusals only")
	}
	soup := rapid.SliceOfN(rapid.SampledFrom([]string{
		"{", "}", "[", "]", ",", ":", `"a"`, `"shape"`, `"dtype"`,
		`"data_offsets"`, `"__metadata__"`, "0", "-1", "1.5", "1e", "nul", "true", " ", `"\u0061"`,
		`{"a":`, "[0,0]", `{"dtype":"U8","shape":[],`}), 0, 12)
	rapid.Check(t, func(t *rapid.T) {
		sameAsSlow(t, []byte("{"+strings.Join(soup.Draw(t, "pieces"), "")))
	})
}

// TestScannerByHand has what draws rarely meet, each time held against encoding/json too.
func TestScannerByHand(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{`\ud83d\ude00!`, "😀!"}, {`\uD83D\uDE00\u0021`, "😀!"}, {`\ud83d\u0041`, "\ufffdA"},
		{`\ude00\ud83d`, "\ufffd\ufffd"}, {`\ud83dx`, "\ufffdx"}, {`\ud83d\n`, "\ufffd\n"},
		{`\"\\\/\b\f\n\r\t`, "\"\\/\b\f\n\r\t"}, {`é\u00e9`, "éé"}, {`\u0000`, "\x00"},
		{"\x7f", "\x7f"},
	} {
		text := []byte(`{"__metadata__":{"` + c.raw + `":"` + c.raw + `"}}`)
		s, err := scanHeader("in.st", text)
		if err != nil || s.metadata[c.want] != c.want {
			t.Errorf("%q gives %q, %v", c.raw, s.metadata, err)
		}
		sameAsSlow(t, text)
	}
	for _, raw := range []string{
		"\x1f", "\t", "\n", "\x00", `\`, `\x`, `\u`, `\u12`, `\u123g`, `\U0041`,
	} {
		text := []byte(`{"__metadata__":{"` + raw + `":""}}`)
		wantError(t, check(text), "JSON")
		sameAsSlow(t, text)
	}
	for _, n := range []string{"0", "1", "9223372036854775807"} {
		sameAsSlow(t, []byte("{"+x("["+n+"]", 0, 0)+"}"))
		if _, err := scanHeader("in.st", []byte("{"+x("["+n+"]", 0, 0)+"}")); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
	for _, n := range []string{"01", "00", "-0", "+1", "1.", ".1", "1e", "1e+", "1E1", "0x1", "1 1",
		"9223372036854775808", "9999999999999999999", "18446744073709551617",
		"10000000000000000000000001"} {
		text := []byte("{" + x("["+n+"]", 0, 0) + "}")
		if err := check(text); err == nil {
			t.Errorf("%s was read as a dimension", n)
		}
		sameAsSlow(t, text)
	}
}

// repeat gives head, then piece(0), piece(1), ... until about size bytes are full, then tail.
func repeat(size int, head, tail string, piece func(i int) string) []byte {
	b := append(make([]byte, 0, size), head...)
	for i := 0; ; i++ {
		p := piece(i)
		if len(b)+len(p)+len(tail) > size {
			return append(b, tail...)
		}
		b = append(b, p...)
	}
}

// hostile are headers of about size bytes that ask for as much work as they can, by name; refused
// says what the error has, or is empty when the header passes.
func hostile(size int) []struct {
	name, refused string
	text          []byte
} {
	same := func(s string) func(int) string { return func(int) string { return s } }
	const entryEnd = `"dtype":"U8","shape":[0],"data_offsets":[0,0]`
	const open = `{"x":{` + entryEnd + `,"y":`
	dims := strings.Repeat("9,", MaxDims-1) + "0"
	keys := ""
	for i := range maxKeys {
		keys += fmt.Sprintf(`"\u0041%02d":[],`, i)
	}
	return []struct {
		name, refused string
		text          []byte
	}{
		{"tensors", "", repeat(size, `{"x":{`+entryEnd+"}", "}", func(i int) string {
			return fmt.Sprintf(`,"%x":{%s}`, i, entryEnd)
		})},
		{"shapes", "", repeat(size, `{"x":{`+entryEnd+"}", "}", func(i int) string {
			return fmt.Sprintf(`,"%x":{"dtype":"?","shape":[%s],"data_offsets":[0,0]}`, i, dims)
		})},
		{"dtypes", "", repeat(size, `{"x":{`+entryEnd+"}", "}", func(i int) string {
			return fmt.Sprintf(`,"%x":{"dtype":"%x","shape":[],"data_offsets":[0,0]}`, i, i)
		})},
		{"unknown keys", "", repeat(size, `{"x":{`+entryEnd+"}", "}", func(i int) string {
			return fmt.Sprintf(`,"%x":{%s%s}`, i, keys, entryEnd)
		})},
		{"metadata", "", repeat(size, `{"__metadata__":{"":""`, "}}", func(i int) string {
			return fmt.Sprintf(`,"%x":"12345678"`, i)
		})},
		{"numbers", "", repeat(size, open+"[1", "]}}", same(",1"))},
		{"strings", "", repeat(size, open+`[""`, "]}}", same(`,""`))},
		{"objects", "", repeat(size, open+"[{}", "]}}", same(`,{"":{}}`))},
		{"deep", "nest more than 64", repeat(size, open, "", same("["))},
		{"spaces", "", repeat(size, open+"[]", "}}", same(" "))},
		{"a long name", "", repeat(size, `{"`, `":{`+entryEnd+"}}", same("n"))},
		{"a long escaped name", "", repeat(size, `{"`, `":{`+entryEnd+"}}", same(`\ud83d\ude00`))},
		{"a long text", "", repeat(size, `{"__metadata__":{"a":"`, `"}}`, same("é"))},
		{"a long number", "not a whole number", repeat(size, `{"x":{"shape":[`, "", same("1"))},
		{"a long unknown number", "", repeat(size, open+"0.", "1}}", same("0"))},
		{"no end", "ends where", repeat(size, `{"`, "", same("n"))},
	}
}

// check is what New does with a header of a file without data.
func check(text []byte) error {
	s, err := scanHeader("in.st", text)
	if err == nil {
		err = checkTensors("in.st", s.tensors, 0)
	}
	return err
}

// TestHostileHeaders: whatever a header says, reading it takes at most 12 times its own length of
// memory in all, garbage included; the growing tables of names take most of it.
func TestHostileHeaders(t *testing.T) {
	size := 4 << 20
	if testing.Short() {
		size = 1 << 20
	}
	for _, h := range hostile(size) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := check(h.text)
		runtime.ReadMemStats(&after)
		if h.refused == "" && err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
		if h.refused != "" {
			wantError(t, err, h.refused)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 12*uint64(size) {
			t.Errorf("%s: %d bytes for a header of %d", h.name, took, len(h.text))
		}
	}
}

func TestTooManyTensors(t *testing.T) {
	for _, c := range []struct{ head, tail, entry, want string }{
		{"{", "}", `"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, "262144 tensors"},
		{`{"__metadata__":{`, "}}", `"%x":""`, "262144 names"},
	} {
		var b strings.Builder
		b.WriteString(c.head)
		for i := range MaxTensors {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, c.entry, i)
		}
		if err := check([]byte(b.String() + c.tail)); err != nil {
			t.Errorf("as many as the limit: %v", err)
		}
		wantError(t, check([]byte(b.String()+","+fmt.Sprintf(c.entry, MaxTensors)+c.tail)), c.want)
	}
	keys := ""
	for i := range maxKeys {
		keys += fmt.Sprintf(`"k%d":0,`, i)
	}
	const rest = `"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`
	if err := check([]byte(`{"x":{` + keys + rest)); err != nil {
		t.Errorf("as many keys as the limit: %v", err)
	}
	wantError(t, check([]byte(`{"x":{"k":0,`+keys+rest)), "more than 16 keys")
	wantError(t, check([]byte(`{"x":{"k":0,"\u006b":0,`+rest)), `"k" twice`)
	wantError(t, check([]byte(`{"x":{"\u006b":0,"\u006d":0,"\u006b":0,`+rest)), `"k" twice`)
	nested := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	if err := check([]byte(`{"x":{"k":` + nested + "," + rest)); err != nil {
		t.Errorf("as deep as the limit: %v", err)
	}
	wantError(t, check([]byte(`{"x":{"k":[`+nested+"],"+rest)), "64 deep")
}

// BenchmarkHostileHeader reads the longest headers that are let in.
func BenchmarkHostileHeader(b *testing.B) {
	for _, h := range hostile(MaxHeaderBytes) {
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(h.text)))
			for b.Loop() {
				_ = check(h.text) // some that pass when short have too many tensors now
			}
		})
	}
}
