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
	memory  memory // of the thread that is stopped
	code    window
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
	// A group of its own: waiting for it takes no other child's end from whom it concerns.
	t.cmd.SysProcAttr.Setpgid, t.cmd.SysProcAttr.Pgid = !t.cmd.SysProcAttr.Setsid, 0
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
		w, err := wait(waitGroup, t.leader, waitExited|waitStopped|waitLeave)
		if err != nil {
			t.fail(fmt.Errorf("wait for threads of process %d: %w", t.leader, err))
			return
		}
		kind := uintptr(waitStopped)
		if w.ended() {
			kind = waitExited
			if w.pid == t.leader {
				return
			}
			delete(t.threads, w.pid)
		}
		// What was seen is taken now, but not another event: a thread that stood may be killed
		// meanwhile, and the first one's end is not for here.
		w, err = wait(waitPid, w.pid, kind|syscall.WNOHANG)
		if err != nil || w.pid == 0 || w.ended() {
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

// Bounds of what one stop executes: instructions of tiles, so that other threads and signals have
// their turn, and others after the last one of tiles, which the processor does faster.
const (
	maxRun     = 256
	maxBetween = 32
)

// illegal executes the instructions where the thread stands, up to one that is not known.
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
	t.memory.tid = tid
	regs := general(&r)
	n, err := t.interpret(th.state, &regs, &r)
	setGeneral(&r, &regs)
	switch f, ok := err.(*Fault); {
	case ok:
		return t.fault(tid, f, &r)
	case err != nil || n == 0: // n == 0: an instruction that is not of tiles
		return syscall.SIGILL, err
	}
	return 0, syscall.PtraceSetRegs(tid, &r)
}

// interpret executes instructions from r.Rip on, which it moves, and says how many of tiles.
func (t *tracer) interpret(s *State, regs *[16]uint64, r *syscall.PtraceRegs) (int, error) {
	t.code = window{}
	n := 0
	for between := 0; n < maxRun && between < maxBetween; {
		text, err := t.code.at(&t.memory, r.Rip)
		if err != nil {
			return n, err
		}
		in, ok := Decode(text)
		if !ok && n == 0 {
			break
		}
		if !ok {
			next, known := plain(text, r.Rip, regs, &r.Eflags, &t.memory)
			if !known {
				break
			}
			r.Rip = next
			between++
			t.stats.Plain++
			continue
		}
		if err := s.Exec(in, r.Rip, regs, &t.memory); err != nil {
			return n, err
		}
		r.Rip += uint64(in.Len)
		t.stats.Count[in.Op]++
		n++
		between = 0
	}
	return n, nil
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
		if t.memory.mapped(f.Addr) {
			info.code = segvAccErr
		}
	}
	if err := syscall.PtraceSetRegs(tid, r); err != nil {
		return syscall.SIGILL, err
	}
	return syscall.Signal(info.signo), ptrace(ptraceSetSigInfo, tid, unsafe.Pointer(&info))
}

// registers are the general registers in the order of their numbers.
func registers(r *syscall.PtraceRegs) [16]*uint64 {
	return [16]*uint64{&r.Rax, &r.Rcx, &r.Rdx, &r.Rbx, &r.Rsp, &r.Rbp, &r.Rsi, &r.Rdi,
		&r.R8, &r.R9, &r.R10, &r.R11, &r.R12, &r.R13, &r.R14, &r.R15}
}

func general(r *syscall.PtraceRegs) (regs [16]uint64) {
	for i, p := range registers(r) {
		regs[i] = *p
	}
	return regs
}

func setGeneral(r *syscall.PtraceRegs, regs *[16]uint64) {
	for i, p := range registers(r) {
		*p = regs[i]
	}
}
