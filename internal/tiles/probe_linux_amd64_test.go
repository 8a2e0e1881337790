package tiles

import (
	"bytes"
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// machineCode puts code where it may be executed, and leaves it there.
func machineCode(t testing.TB, text string) uintptr {
	m, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	copy(m, unhex(text))
	if err := syscall.Mprotect(m, syscall.PROT_READ|syscall.PROT_EXEC); err != nil {
		t.Fatal(err)
	}
	return uintptr(unsafe.Pointer(&m[0]))
}

// probe is a func value of machine code. Such a value points to the code's address and what the
// code may look at; the pointer is passed in rdx. Code may change rax, rcx, rsi, rdi and flags.
type probe struct {
	code       uintptr
	x          [3]uint64 // at 8(%rdx)
	cfg        *[64]byte // at 32(%rdx)
	a, b, c    *[1024]byte
	iterations uint64
}

func (p *probe) call() {
	(*(*func())(unsafe.Pointer(&p)))()
	runtime.KeepAlive(p)
}

// TestPlain executes instructions on the processor and here: they leave the same registers and
// flags. Jumps go over an instruction.
func TestPlain(t *testing.T) {
	const before = "53" + // pushq %rbx
		"4889d3" + //   movq %rdx,%rbx
		"ff7308" + //   pushq 8(%rbx)
		"9d" + //       popfq
		"488b4310" + // movq 16(%rbx),%rax
		"488b4b18" //   movq 24(%rbx),%rcx
	const after = "48894310" + "48894b18" + "9c" + "8f4308" + "5b" + "c3" // and back
	snippets := map[string]string{
		"addq $16,%rax": "4883c010", "addq $0x12345,%rax": "480545230100",
		"subq $0x12345,%rax": "482d45230100", "cmpq $0x12345,%rax": "483d45230100",
		"addq $0x12345,%rcx": "4881c145230100", "addq %rcx,%rax": "4801c8",
		"addq %rcx,%rax (03)": "4803c1", "subq $-128,%rax": "4883e880",
		"subq $0x7654321,%rcx": "4881e921436507", "subq %rax,%rcx": "4829c1",
		"subq %rcx,%rax (2b)": "482bc1", "cmpq %rcx,%rax": "4839c8",
		"cmpq %rcx,%rax (3b)": "483bc1", "cmpq $5,%rcx": "4883f905", "incq %rax": "48ffc0",
		"decq %rcx": "48ffc9", "movq %rax,%rcx": "4889c1", "movq %rcx,%rax (8b)": "488bc1",
		"movq $-7,%rax": "48c7c0f9ffffff", "leaq (%rax,%rcx,4),%rax": "488d0488",
		"leaq -0x40(%rcx),%rax": "488d41c0", "leaq 0x1000(,%rax,8),%rcx": "488d0cc500100000",
		"leaq 0x10(%rip),%rax": "488d0510000000", "movq 16(%rbx),%rcx": "488b4b10",
		"jmp near": "eb0348ffc1", "jmp": "e90300000048ffc1",
	}
	for cc := range 16 {
		digit := "0123456789abcdef"[cc : cc+1]
		snippets["jcc near "+digit] = "7" + digit + "0348ffc1"
		snippets["jcc "+digit] = "0f8" + digit + "0300000048ffc1"
	}
	number := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 20), rapid.SampledFrom([]uint64{
		1<<63 - 1, 1 << 63, 1<<64 - 1, 1 << 31, 1<<63 + 5}))
	for name, snippet := range snippets {
		p := &probe{code: machineCode(t, before+snippet+after)}
		text := unhex(snippet + after)
		rapid.Check(t, func(t *rapid.T) {
			p.x = [3]uint64{0x202 | rapid.Uint64().Draw(t, "flags")&flagsOfSum,
				number.Draw(t, "rax"), number.Draw(t, "rcx")}
			regs := [16]uint64{p.x[1], p.x[2], 0, uint64(uintptr(unsafe.Pointer(p)))}
			flags, mem := p.x[0], &memory{tid: os.Getpid()}
			start := uint64(p.code) + uint64(len(before)/2)
			for pc, end := start, start+uint64(len(snippet)/2); pc != end; {
				next, ok := plain(text[pc-start:], pc, &regs, &flags, mem)
				if !ok {
					t.Fatalf("%s: not known at %d", name, pc-start)
				}
				pc = next
			}
			old := p.x
			p.call()
			if got := [3]uint64{flags, regs[0], regs[1]}; got != p.x {
				t.Fatalf("%s on %#x: got %#x, the processor has %#x", name, old, got, p.x)
			}
		})
	}
}

func TestPlainRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"addq 8(%rax),%rcx": "48034808", "movq %rcx,8(%rax)": "48894808", "addl $1,%eax": "83c001",
		"adcq $1,%rax": "4883d001", "imulq %rcx,%rax": "480fafc1", "xorq %rax,%rax": "4831c0",
		"sbbq %rax,%rcx": "4819c1", "vzeroupper": "c5f877", "ret": "c3", "pushq %rax": "50",
		"callq *%rax": "ffd0", "callq *%rax with REX": "48ffd0", "movq 8,%rax": "488b042508000000",
	} {
		regs, flags := [16]uint64{0: 1, 1: 2}, uint64(0x202)
		_, ok := plain(append(unhex(text), make([]byte, 8)...), 0, &regs, &flags,
			&memory{tid: os.Getpid()})
		if ok || regs != [16]uint64{0: 1, 1: 2} || flags != 0x202 {
			t.Errorf("%s: %v, %v, %#x", name, ok, regs, flags)
		}
	}
}

// TestMemory moves rows of this process, near and far from one another.
func TestMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, n := rapid.IntRange(1, 16).Draw(t, "rows"), rapid.IntRange(1, 64).Draw(t, "bytes")
		stride := n + rapid.SampledFrom([]int{0, 0, 1, 200, 5000}).Draw(t, "gap")
		there := rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "there")
		there = bytes.Repeat(there, 16*5064/len(there)+1)
		want, spans, m := bytes.Clone(there), []Span{}, &memory{tid: os.Getpid()}
		for r := range rows {
			addr := uint64(uintptr(unsafe.Pointer(&there[r*stride])))
			spans = append(spans, Span{addr, make([]byte, n)})
		}
		if done, err := m.Read(spans); err != nil || done != rows*n {
			t.Fatal(done, err)
		}
		for r, s := range spans {
			if !bytes.Equal(s.Bytes, there[r*stride:][:n]) {
				t.Fatalf("row %d of %d bytes every %d: read %v", r, n, stride, s.Bytes)
			}
			for i := range s.Bytes {
				s.Bytes[i] ^= 0x55
				want[r*stride+i] ^= 0x55
			}
		}
		if done, err := m.Write(spans); err != nil || done != rows*n || !bytes.Equal(there, want) {
			t.Fatalf("%d rows of %d bytes every %d: written %d, %v", rows, n, stride, done, err)
		}
	})
}
