package tiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"
)

// product is machine code for a probe: C = iterations * A B, of whole tiles.
const product = "488b4220" + // movq 32(%rdx),%rax
	"b940000000" + //     movl $64,%ecx
	"c4e2784900" + //     ldtilecfg (%rax)
	"c4e27b49c0" + //     tilezero %tmm0
	"488b7228" + //       movq 40(%rdx),%rsi
	"488b7a30" + //       movq 48(%rdx),%rdi
	"488b4240" + //       movq 64(%rdx),%rax
	"c4e27b4b0c0e" + // 1: tileloadd (%rsi,%rcx,1),%tmm1
	"488db600040000" + // leaq 1024(%rsi),%rsi
	"c4e27b4b140f" + //   tileloadd (%rdi,%rcx,1),%tmm2
	"4881ee00040000" + // subq $1024,%rsi
	"c4e26a5cc1" + //     tdpbf16ps %tmm2,%tmm1,%tmm0
	"48ffc8" + //         decq %rax
	"75dc" + //           jnz 1b
	"488b4238" + //       movq 56(%rdx),%rax
	"c4e27a4b0408" + //   tilestored %tmm0,(%rax,%rcx,1)
	"c4e27849c0" + //     tilerelease
	"c3"

// newProbe has numbers around 1 that depend on the seed.
func newProbe(code uintptr, seed, iterations int) *probe {
	p := &probe{code: code, cfg: whole(), a: new([1024]byte), b: new([1024]byte),
		c: new([1024]byte), iterations: uint64(iterations)}
	for i := range 512 {
		p.a[2*i+1], p.b[2*i+1] = 0x3F, 0xBF
		p.a[2*i], p.b[2*i] = byte(seed*7+i), byte(seed*3+i*i)
	}
	return p
}

// want is what the probe should compute.
func (p *probe) want() (c [1024]byte) {
	s := &State{}
	if err := s.configure(p.cfg); err != nil {
		panic(err)
	}
	for r := range 16 {
		copy(s.tiles[1][r][:], p.a[64*r:])
		copy(s.tiles[2][r][:], p.b[64*r:])
	}
	for range p.iterations {
		s.multiply(0, 1, 2)
	}
	for r := range 16 {
		copy(c[64*r:], s.tiles[0][r][:])
	}
	return c
}

func inChild() bool { return os.Getenv(Env) == Interpreted }

// child runs a test, or subtest, in another process, whose tiles are interpreted.
func child(ctx context.Context, t testing.TB, test string, out io.Writer) (
	*exec.Cmd, Stats, error,
) {
	pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run="+pattern, "-test.count=1")
	cmd.Stdout, cmd.Stderr = out, out
	stats, err := Run(cmd)
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	return cmd, stats, err
}

// passes wants the child to pass the test.
func passes(t *testing.T) Stats {
	var out bytes.Buffer
	_, stats, err := child(t.Context(), t, t.Name(), &out)
	t.Logf("%+v", stats)
	if err != nil || len(stats.Faults) != 0 && !strings.Contains(t.Name(), "Guard") {
		t.Fatalf("%v, faults %v\n%s", err, stats.Faults, out.String())
	}
	return stats
}

// permit asks the kernel for tiles, as it wants where the processor has them.
func permit() {
	const archPrctl, reqXcompPerm, tileData = 158, 0x1023, 18
	_, _, _ = syscall.Syscall(archPrctl, reqXcompPerm, tileData, 0)
}

// products computes on several goroutines until each has done so many rounds or stop is closed.
func products(t *testing.T, goroutines, rounds int, stop chan struct{}) {
	permit()
	code := machineCode(t, product)
	var work sync.WaitGroup
	for g := range goroutines {
		work.Go(func() {
			for r := range rounds {
				select {
				case <-stop:
					return
				default:
				}
				p := newProbe(code, g*rounds+r, 1+r%3)
				if p.call(); *p.c != p.want() {
					t.Errorf("goroutine %d round %d differs", g, r)
					return
				}
			}
		})
	}
	work.Wait()
}

func TestThreads(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 8, 60
	if !inChild() {
		n := passes(t).Count
		if n[LDTILECFG] != 0 && (n[LDTILECFG] != goroutines*rounds ||
			n[TDPBF16PS] != 2*goroutines*rounds || n[TILELOADD] != 4*goroutines*rounds) {
			t.Errorf("%v", n)
		}
		return
	}
	stop := make(chan struct{})
	var collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	products(t, goroutines, rounds, nil)
	close(stop)
	collector.Wait()
}

// TestSignals sends signals to a child at work, and takes away and makes its threads. Meanwhile
// other children of this process come and go.
func TestSignals(t *testing.T) {
	t.Parallel()
	if !inChild() {
		var others sync.WaitGroup
		others.Go(func() {
			for range 10 {
				if err := exec.Command(os.Args[0], "-test.run=^$").Run(); err != nil {
					t.Errorf("another child: %v", err)
				}
			}
		})
		passes(t)
		others.Wait()
		return
	}
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() { products(t, 3, 1<<30, stop) })
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGUSR1, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGCHLD)
	defer signal.Stop(got)
	for i := range 60 {
		sig := []syscall.Signal{syscall.SIGUSR1, syscall.SIGILL, syscall.SIGTRAP}[i%3]
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		for s := range got {
			if s == sig {
				break
			}
		}
		work.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			_ = syscall.Kill(os.Getpid(), 0)
		})
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(os.Args[0], "-test.run=^$").Run(); err != nil {
		t.Errorf("the child's child: %v", err)
	}
	close(stop)
	work.Wait()
}

// TestEnds ends the child in several ways while its threads are at work.
func TestEnds(t *testing.T) {
	t.Parallel()
	raw := func(t *testing.T, code string) { newProbe(machineCode(t, code+"c3"), 0, 1).call() }
	for _, c := range []struct {
		name, err, fault string
		do               func(t *testing.T)
	}{
		{"exit", "exit status 3", "", func(*testing.T) { os.Exit(3) }},
		{"kill", "signal: killed", "",
			func(*testing.T) { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }},
		{"panic", "exit status 2", "", func(*testing.T) { panic("on purpose") }},
		{"exec", "exit status 7", "", func(*testing.T) {
			_ = syscall.Exec("/bin/sh", []string{"sh", "-c", "exit 7"}, nil)
		}},
		{"ud2", "exit status 2", "", func(t *testing.T) { raw(t, "0f0b") }},
		{"unconfigured", "exit status 2", "not configured (#UD)",
			func(t *testing.T) { raw(t, "c4e27b49c0") }},
		{"after release", "exit status 2", "not configured (#UD)", // the second in one stop
			func(t *testing.T) { raw(t, "c4e27849c0"+"c4e27b49c0") }},
		{"bad palette", "exit status 2", "palette 191", // b, from its second byte on
			func(t *testing.T) { raw(t, "488b4230"+"c4e278494001") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if inChild() {
				go products(t, 3, 1<<30, nil)
				c.do(t)
				return
			}
			var out bytes.Buffer
			_, stats, err := child(t.Context(), t, t.Name(), &out)
			if err == nil || err.Error() != c.err {
				t.Errorf("got %v, want %s\n%s", err, c.err, out.String())
			}
			if s := fmt.Sprint(stats.Faults); c.fault == "" && s != "[]" ||
				!strings.Contains(s, c.fault) {
				t.Errorf("faults %s, want %q", s, c.fault)
			}
		})
	}
}

// TestCancel ends a child that would run for ever, as soon as it says that it runs.
func TestCancel(t *testing.T) {
	if inChild() {
		fmt.Println("runs")
		products(t, 4, 1<<30, nil)
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd, _, err := child(ctx, t, t.Name(), writer(func(b []byte) (int, error) {
		cancel()
		return len(b), nil
	}))
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v", err)
	}
	if err := syscall.Kill(cmd.Process.Pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d is still there: %v", cmd.Process.Pid, err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestGuardPage(t *testing.T) {
	if !inChild() {
		passes(t)
		return
	}
	permit()
	size := syscall.Getpagesize()
	m, err := syscall.Mmap(-1, 0, 2*size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mprotect(m[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	guard := uintptr(unsafe.Pointer(&m[size]))
	p := newProbe(machineCode(t, product), 1, 1)
	for _, field := range []**[1024]byte{&p.a, &p.b, &p.c} {
		whole := *field
		for _, over := range []int{0, 1, 32, 64, 1000, 1024} {
			at := size - 1024 + over
			*field = (*[1024]byte)(m[at : at+1024])
			copy(m[at:size], whole[:])
			if got := faultAddress(p.call); over > 0 && got != guard || over == 0 && got != 0 {
				t.Errorf("%d bytes over: fault at %#x, the page is at %#x", over, got, guard)
			}
		}
		*field = whole
	}
	if p.call(); *p.c != p.want() {
		t.Error("differs after faults")
	}
}

// faultAddress is where f touches memory that it may not, or 0.
func faultAddress(f func()) (addr uintptr) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if e := recover(); e != nil {
			addr = e.(interface{ Addr() uintptr }).Addr()
		}
	}()
	f()
	return 0
}

// TestLongLoop runs loops that are longer than what one stop executes.
func TestLongLoop(t *testing.T) {
	if !inChild() {
		if s := passes(t); s.Stops > 2*3*11000/maxRun {
			t.Errorf("%d stops: what stands between instructions of tiles is not executed", s.Stops)
		}
		return
	}
	permit()
	p := newProbe(machineCode(t, product), 5, 10000)
	p.call()
	p.iterations = maxRun + 10
	if p.call(); *p.c != p.want() {
		t.Error("differs")
	}
}

// BenchmarkRun counts interpreted instructions a second in TestLongLoop.
func BenchmarkRun(b *testing.B) {
	executed := 0
	for b.Loop() {
		_, stats, err := child(b.Context(), b, "TestLongLoop", os.Stderr)
		if err != nil {
			b.Fatal(err)
		}
		for _, n := range stats.Count {
			executed += n
		}
	}
	b.ReportMetric(float64(executed)/b.Elapsed().Seconds(), "instr/s")
}
