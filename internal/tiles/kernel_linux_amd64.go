package tiles

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// Numbers of the kernel that package syscall lacks.
const (
	sysReadv  = 310 // process_vm_readv
	sysWritev = 311 // process_vm_writev

	ptraceGetSigInfo = 0x4202
	ptraceSetSigInfo = 0x4203
	ptraceExitKill   = 0x100000 // PTRACE_O_EXITKILL

	waitPid     = 1         // P_PID
	waitGroup   = 2         // P_PGID
	waitExited  = 0x4       // WEXITED
	waitStopped = 0x2       // WSTOPPED
	waitLeave   = 0x1000000 // WNOWAIT: the event stays
	cldTrapped  = 4
	cldStopped  = 5

	siKernel   = 0x80
	illIllOpn  = 2
	segvMapErr = 1
	segvAccErr = 2
)

// sigInfo is siginfo_t of a fault.
type sigInfo struct {
	signo, errno, code, _ int32
	addr                  uint64
	_                     [104]byte
}

// waited is siginfo_t of an event of a child.
type waited struct {
	pid, code, status int
}

// ended says whether the thread's end is the event; else it stopped.
func (w waited) ended() bool { return w.code != cldTrapped && w.code != cldStopped }

// wait is waitid, for tracees of any kind.
func wait(kind, id int, options uintptr) (waited, error) {
	var info struct {
		signo, errno, code, _ int32
		pid, uid, status      int32
		_                     [100]byte
	}
	for {
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, uintptr(kind), uintptr(id),
			uintptr(unsafe.Pointer(&info)), options|syscall.WALL, 0, 0)
		if e == 0 {
			return waited{int(info.pid), int(info.code), int(info.status)}, nil
		}
		if e != syscall.EINTR {
			return waited{}, e
		}
	}
}

// ptrace is a request that package syscall lacks.
func ptrace(request, tid int, data unsafe.Pointer) error {
	_, _, e := syscall.Syscall6(syscall.SYS_PTRACE, uintptr(request), uintptr(tid), 0,
		uintptr(data), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// memory is the memory of a thread. process_vm_readv keeps to the protection of pages, which
// /proc/pid/mem and PTRACE_PEEKDATA do not: a guard page must fault.
type memory struct {
	tid  int
	hull [32 << 10]byte // scratch of Read
}

// Read reads rows that lie close with what is between them in one piece: a piece is what costs
// time. Where that is not all readable it reads them alone.
func (m *memory) Read(spans []Span) (int, error) {
	last := spans[len(spans)-1]
	start, end := spans[0].Addr, last.Addr+uint64(len(last.Bytes))
	if size := end - start; len(spans) > 1 && end > start && size <= uint64(len(m.hull)) {
		n, err := m.move(sysReadv, []Span{{start, m.hull[:size]}})
		if err == nil && n == int(size) {
			total := 0
			for _, s := range spans {
				total += copy(s.Bytes, m.hull[s.Addr-start:])
			}
			return total, nil
		}
	}
	return m.move(sysReadv, spans)
}

// Write writes the spans.
func (m *memory) Write(spans []Span) (int, error) { return m.move(sysWritev, spans) }

func (m *memory) move(call uintptr, spans []Span) (int, error) {
	var here [maxRows]syscall.Iovec
	var there [maxRows]struct{ base, length uint64 }
	pieces := 0
	for i, s := range spans {
		here[i].Base = &s.Bytes[0]
		here[i].SetLen(len(s.Bytes))
		if p := max(pieces, 1) - 1; i > 0 && there[p].base+there[p].length == s.Addr {
			there[p].length += uint64(len(s.Bytes))
			continue
		}
		there[pieces].base, there[pieces].length = s.Addr, uint64(len(s.Bytes))
		pieces++
	}
	n, _, e := syscall.Syscall6(call, uintptr(m.tid), uintptr(unsafe.Pointer(&here)),
		uintptr(len(spans)), uintptr(unsafe.Pointer(&there)), uintptr(pieces), 0)
	switch e {
	case 0:
		return int(n), nil
	case syscall.EFAULT:
		return 0, nil
	case syscall.EPERM, syscall.ENOSYS:
		return 0, fmt.Errorf("%w: process_vm_readv: %w", ErrUnavailable, e)
	}
	return 0, e
}

// mapped says whether there is memory at all, be it protected.
func (m *memory) mapped(addr uint64) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", m.tid))
	if err != nil {
		return false
	}
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], int64(addr))
	return err == nil
}

// window is a piece of the program.
type window struct {
	bytes [512]byte
	start uint64
	n     int
}

// at is the text at pc: at least an instruction's length, unless the memory ends there.
func (w *window) at(m *memory, pc uint64) ([]byte, error) {
	const longest = 15
	if off := pc - w.start; off+longest <= uint64(w.n) && off < uint64(w.n) {
		return w.bytes[off:w.n], nil
	}
	// It may end in a page that is not there: then what comes before is read.
	n, err := m.move(sysReadv, []Span{{pc, w.bytes[:]}})
	w.start, w.n = pc, n
	return w.bytes[:n], err
}
