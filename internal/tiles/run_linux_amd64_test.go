package tiles

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// product is machine code that computes C = A B of whole tiles. A func value is a pointer to a
// structure that begins with the code's address, and is passed in rdx: the data follow there.
const product = "488b4208" + // movq 8(%rdx),%rax
	"b940000000" + //   movl $64,%ecx
	"c4e2784900" + //   ldtilecfg (%rax)
	"c4e27b49c0" + //   tilezero %tmm0
	"488b4210" + //     movq 16(%rdx),%rax
	"c4e27b4b0c08" + // tileloadd (%rax,%rcx,1),%tmm1
	"488b4218" + //     movq 24(%rdx),%rax
	"c4e27b4b1408" + // tileloadd (%rax,%rcx,1),%tmm2
	"c4e26a5cc1" + //   tdpbf16ps %tmm2,%tmm1,%tmm0
	"488b4220" + //     movq 32(%rdx),%rax
	"c4e27a4b0408" + // tilestored %tmm0,(%rax,%rcx,1)
	"c4e27849c0" + //   tilerelease
	"c3"

// call is a func value of machine code: its address and what it finds behind.
type call struct {
	code uintptr
	cfg  *[64]byte
	a, b *[1024]byte
	c    *[1024]byte
}

func (c *call) do() { (*(*func())(unsafe.Pointer(&c)))() }

// machineCode puts code where it may be executed.
func machineCode(t testing.TB, text string) uintptr {
	m, err := syscall.Mmap(-1, 0, pageSize, syscall.PROT_READ|syscall.PROT_WRITE,
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

// whole configures eight tiles of 16 rows of 64 bytes.
func whole() *[64]byte {
	b := &[64]byte{0: 1}
	for t := range 8 {
		b[16+2*t], b[48+t] = 64, 16
	}
	return b
}

// interpreted runs the test's body in a child whose instructions of tiles are interpreted.
func interpreted(t *testing.T, body func(), check func(Stats)) {
	if os.Getenv(Env) == Interpreted {
		const archPrctl, reqXcompPerm, tileData = 158, 0x1023, 18
		// Where the processor has tiles the kernel wants to be asked; elsewhere it refuses.
		_, _, _ = syscall.Syscall(archPrctl, reqXcompPerm, tileData, 0)
		body()
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	stats, err := Run(cmd)
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	t.Logf("%+v", stats)
	if err != nil {
		t.Fatal(err)
	}
	check(stats)
}

func TestThreads(t *testing.T) {
	const goroutines, rounds = 8, 200
	interpreted(t, func() {
		code := machineCode(t, product)
		stop := make(chan struct{})
		var gc, work sync.WaitGroup
		gc.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		})
		for g := range goroutines {
			work.Go(func() {
				c := call{code, whole(), new([1024]byte), new([1024]byte), new([1024]byte)}
				for r := range rounds {
					for i := range 512 {
						c.a[2*i+1], c.b[2*i+1] = 0x3F, 0x3F
						c.a[2*i] = byte(g*31 + r*7 + i)
						c.b[2*i] = byte(g*17 + r*3 + i)
					}
					c.do()
					if *c.c != multiplied(c.a, c.b) {
						t.Errorf("goroutine %d round %d differs", g, r)
						return
					}
				}
			})
		}
		work.Wait()
		close(stop)
		gc.Wait()
	}, func(s Stats) {
		if n := s.Count[TDPBF16PS]; n != 0 && n != goroutines*rounds {
			t.Errorf("%d products", n)
		}
	})
}

func TestGuardPage(t *testing.T) {
	interpreted(t, func() {
		m, err := syscall.Mmap(-1, 0, 2*pageSize, syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mprotect(m[pageSize:], syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		c := call{machineCode(t, product), whole(), (*[1024]byte)(m[pageSize-1024 : pageSize]),
			(*[1024]byte)(m), new([1024]byte)}
		c.do()
		for _, over := range []int{1, 32, 64, 1000} {
			at := pageSize - 1024 + over
			c.b = (*[1024]byte)(m[at : at+1024])
			want := uintptr(unsafe.Pointer(&m[pageSize]))
			if got := faultAddress(c.do); got != want {
				t.Errorf("%d bytes over: fault at %#x, want %#x", over, got, want)
			}
		}
	}, func(Stats) {})
}

// faultAddress is where f touches memory that it may not.
func faultAddress(f func()) (addr uintptr) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if e, ok := recover().(interface{ Addr() uintptr }); ok {
			addr = e.Addr()
		}
	}()
	f()
	return 0
}

func multiplied(a, b *[1024]byte) (c [1024]byte) {
	s := &State{}
	if err := s.configure(whole()); err != nil {
		panic(err)
	}
	for i := range 16 {
		copy(s.tiles[1][i][:], a[64*i:])
		copy(s.tiles[2][i][:], b[64*i:])
	}
	s.multiply(0, 1, 2)
	for i := range 16 {
		copy(c[64*i:], s.tiles[0][i][:])
	}
	return c
}

const loop = "488b4208488b7210488b7a18b940000000bbf4010000c4e2784900c4e27b49c0c4e27b49c8c4e27b49d0c4e27b49d8c4e27b4b240ec4e27b4b340fc4e27b4b2c0ec4e27b4b3c0fc4e24a5cc4c4e24a5ccd488db600040000c4e2425cd44881c700040000c4e2425cdd4881ee000400004881ef0004000048ffcb75b3488b4220c4e27a4b0408c4e27849c0c3"

func TestSpeed(t *testing.T) {
	var start time.Time
	start = time.Now()
	interpreted(t, func() {
		c := call{machineCode(t, loop), whole(), new([1024]byte), new([1024]byte), new([1024]byte)}
		for range 10 {
			c.do()
		}
	}, func(s Stats) {
		n := 0
		for _, x := range s.Count {
			n += x
		}
		t.Log(n, "instructions", float64(n)/time.Since(start).Seconds())
	})
}
