package tiles

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"
)

// tracer follows one command. It lives on one thread of the system: only the thread that started a
// traced process may command it.
type tracer struct {
	cmd     *exec.Cmd
	leader  int
	threads map[int]*thread
	stats   Stats
	err     error // of tracing; the command was killed
}

// thread is a traced thread of the command.
type thread struct {
	seen  bool   // its first stop has passed
	state *State // nil until it executes an instruction of tiles
}

func run(cmd *exec.Cmd) (Stats, error) {
	type result struct {
		stats Stats
		err   error
	}
	done := make(chan result)
	go func() {
		// Never unlocked: the thread ends with this goroutine, and whatever it still traced is
		// killed (PTRACE_O_EXITKILL).
		runtime.LockOSThread()
		t := &tracer{cmd: cmd, threads: map[int]*thread{}}
		t.stats.Count = map[Op]int{}
		err := t.run()
		done <- result{t.stats, err}
	}()
	r := <-done
	return r.stats, r.err
}

func (t *tracer) run() error {
	if t.cmd.SysProcAttr == nil {
		t.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	t.cmd.SysProcAttr.Ptrace = true
	// A group of its own: waiting for it takes no other child's end from its parent.
	t.cmd.SysProcAttr.Setpgid = true
	t.cmd.Env = append(t.cmd.Environ(), Env+"="+Interpreted)
	if err := t.cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return err
	}
	t.leader = t.cmd.Process.Pid
	t.follow()
	err := t.cmd.Wait()
	if t.err != nil {
		return t.err
	}
	return err
}

// fail kills the command. What is stopped or stops still has to be waited for.
func (t *tracer) fail(err error) {
	if t.err == nil {
		t.err = err
		_ = t.cmd.Process.Kill() // it may have ended: then there is nothing to kill
	}
}

// follow handles stops until the command's first thread has ended, which is after all others. That
// end is left for cmd.Wait to find.
func (t *tracer) follow() {
	for {
		w, err := waitAny(t.leader)
		if err != nil {
			t.fail(fmt.Errorf("wait for threads of process %d: %w", t.leader, err))
			return
		}
		if w.code != cldTrapped && w.code != cldStopped {
			if w.pid == t.leader {
				return
			}
			delete(t.threads, w.pid)
			var status syscall.WaitStatus
			_, _ = syscall.Wait4(w.pid, &status, syscall.WALL|syscall.WNOHANG, nil)
			continue
		}
		sig := t.stopped(w.pid, syscall.Signal(w.status&0xFF), w.status>>8)
		err = syscall.PtraceCont(w.pid, int(sig))
		if err != nil && !errors.Is(err, syscall.ESRCH) { // it may have been killed meanwhile
			t.fail(fmt.Errorf("continue thread %d: %w", w.pid, err))
		}
	}
}

// stopped handles the stop of a thread and says with which signal it goes on.
func (t *tracer) stopped(tid int, sig syscall.Signal, event int) syscall.Signal {
	th := t.threads[tid]
	if th == nil {
		th = &thread{}
		t.threads[tid] = th
		t.stats.Threads++
	}
	switch {
	case event == syscall.PTRACE_EVENT_EXEC:
		t.threads = map[int]*thread{tid: {seen: true}}
		return 0
	case event != 0:
		return 0
	case !th.seen && tid == t.leader && sig == syscall.SIGTRAP:
		th.seen = true
		err := syscall.PtraceSetOptions(tid, syscall.PTRACE_O_TRACECLONE|
			syscall.PTRACE_O_TRACEEXEC|ptraceExitKill)
		if err != nil {
			t.fail(fmt.Errorf("%w: options of process %d: %w", ErrUnavailable, tid, err))
		}
		return 0
	case !th.seen && sig == syscall.SIGSTOP: // how a new thread begins
		th.seen = true
		return 0
	case sig == syscall.SIGILL && t.err == nil:
		sig, err := t.illegal(tid, th)
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			t.fail(fmt.Errorf("thread %d: %w", tid, err))
		}
		return sig
	}
	return sig
}

// maxRun bounds what one stop executes, so that other threads and signals have their turn.
const maxRun = 1024

// illegal executes the instructions of tiles where the thread stands, until one of another kind.
func (t *tracer) illegal(tid int, th *thread) (syscall.Signal, error) {
	var info sigInfo
	if err := ptrace(ptraceGetSigInfo, tid, unsafe.Pointer(&info)); err != nil {
		return syscall.SIGILL, err
	}
	if info.code <= 0 { // sent by somebody, no instruction
		return syscall.SIGILL, nil
	}
	var r syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &r); err != nil {
		return syscall.SIGILL, err
	}
	if th.state == nil {
		th.state = &State{}
	}
	t.stats.Stops++
	m := memory(tid)
	regs := general(&r)
	var code window
	for range maxRun {
		text, err := code.at(m, r.Rip)
		if err != nil {
			return syscall.SIGILL, err
		}
		in, ok := Decode(text)
		if !ok {
			break
		}
		err = th.state.Exec(in, r.Rip, &regs, m)
		if f, ok := err.(*Fault); ok {
			return t.fault(tid, f, &r)
		}
		if err != nil {
			return syscall.SIGILL, fmt.Errorf("%v at %#x: %w", in.Op, r.Rip, err)
		}
		t.stats.Count[in.Op]++
		r.Rip += uint64(in.Len)
	}
	if r.Rip == info.addr { // an instruction that nobody knows
		return syscall.SIGILL, nil
	}
	return 0, syscall.PtraceSetRegs(tid, &r)
}

// fault makes the signal that the kernel makes of the fault.
func (t *tracer) fault(tid int, f *Fault, r *syscall.PtraceRegs) (syscall.Signal, error) {
	if len(t.stats.Faults) < MaxFaults {
		t.stats.Faults = append(t.stats.Faults, f)
	}
	info := sigInfo{signo: int32(syscall.SIGSEGV), code: siKernel}
	switch f.Kind {
	case UD:
		info = sigInfo{signo: int32(syscall.SIGILL), code: illIllOpn, addr: f.PC}
	case Page:
		info.code, info.addr = segvMapErr, f.Addr
		if memory(tid).mapped(f.Addr) {
			info.code = segvAccErr
		}
	}
	if err := syscall.PtraceSetRegs(tid, r); err != nil {
		return syscall.SIGILL, err
	}
	return syscall.Signal(info.signo), ptrace(ptraceSetSigInfo, tid, unsafe.Pointer(&info))
}

// general has the general registers in the order of their numbers.
func general(r *syscall.PtraceRegs) [16]uint64 {
	return [16]uint64{r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi,
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15}
}
