// Package tiles executes AMX instructions (Intel's matrix tiles, bf16) where the processor has
// none, so that tests can run kernels that use them: it traces the test and interprets.
//
//	test ---- Run(cmd): the test's own binary once more ---> child, KVLOOM_TILES=interpreted
//	  |                                                        |
//	  |   tracer, one locked thread        threads of the child, each with a State of the tracer's
//	  |     waits for any stop         <-----  SIGILL at an instruction of tiles
//	  |     reads registers and code
//	  |     Decode, Exec, the memory by process_vm_readv;
//	  |       so with all that follow, and with moves, sums and jumps of a loop between them
//	  |     writes the registers       ----->  goes on behind them
//	  |     or makes a fault's signal  ----->  SIGILL, or SIGSEGV with its address
//	  |     passes on other signals    <---->  SIGURG, SIGPROF, ...
//	Stats
//
// Decode and State know nothing of processes and work on any platform; run_linux_amd64.go is the
// tracer. Elsewhere, and where tracing is forbidden, Run says ErrUnavailable: skip such a test.
//
// What the instructions do follows volume 2 of Intel's manual (LDTILECFG to TDPBF16PS, exception
// classes AMX-E1 to E6). Relied on in particular:
//
//   - Palette 0 is the initial state, palette 1 has 8 tiles of at most 16 rows of 64 bytes. A
//     reserved byte, a size beyond that, or one of rows and colsb alone being 0 is #GP, and the
//     old configuration stays. A new one clears all tiles.
//   - A tile that is used must be configured, its rows must be multiples of 4 bytes, and start_row
//     must be one of them, else #UD. A load or store that faults keeps the rows that it has done
//     and leaves in start_row where it goes on; every instruction that ends sets it to 0.
//   - Loads, TILEZERO and products leave 0 beyond colsb and rows of the tile that they write.
//   - TDPBF16PS adds to element (m,n), over k ascending, from +0: first elements of the pairs in
//     one sum, second ones in another, each product and addition rounded once to nearest even;
//     then the two sums are added, then that to C. Subnormal inputs are zeros, results that are
//     subnormal after rounding become zeros, MXCSR is not used. A NaN comes out quiet; which of
//     several is not said there, and not relied on.
//
// A product takes 5 us, a load 1 us, a stop of a thread some 20 us: a loop of two loads and a
// product runs 300,000 of them a second (BenchmarkRun, Zen 5), and an eighth of that where moves
// and jumps stop it.
//
// # Duties of the caller
//
// The package serves tests; nothing else imports it. The child learns from KVLOOM_TILES that tiles
// are there: neither CPUID nor the kernel say so. On a processor that has them, where nothing is
// stopped, the child asks the kernel for permission first (arch_prctl ARCH_REQ_XCOMP_PERM), and
// Stats stay empty. No test depends on how long an instruction takes.
//
// A signal's handler finds the tiles as the thread left them, where hardware clears them for the
// handler and brings them back: so no handler may use them. Only threads and what they become by
// exec are followed, no forks. SIGSTOP does not hold the child. It has a process group of its own,
// so a terminal's interrupt reaches it by the end of its parent only.
//
// # Invariants
//
//	Z1  Encodings are understood as the assembler writes them, and nothing else is (TestDecode,
//	    TestDecodeRefuses).
//	Z2  A product has the bits of exact arithmetic rounded where the manual rounds
//	    (TestProductIsExact, TestRounding), also where the fast way is taken
//	    (TestPlainSumsAreExact).
//	Z3  Each rule broken is the manual's fault, and the state is as before (TestFaults).
//	Z4  A fault on memory names the first byte that cannot be touched, rows before it are done, and
//	    the instruction can be repeated (TestFaultsOfMemory, TestGuardPage).
//	Z5  Threads have tiles of their own, whatever signals and collections stop them (TestThreads).
//	Z6  Instructions between those of tiles leave registers and flags as the processor does
//	    (TestPlain); what is not known is left to it (TestPlainRefuses, TestEnds).
//	Z7  Signals that are not of tiles reach the child unchanged, and its end, however it comes, is
//	    reported as without tracing; other children are left alone (TestSignals, TestEnds).
//	Z8  After Run no thread, process or goroutine of it is left (TestCancel, TestMain).
//
// # Concurrency
//
// Run may be called by several goroutines at once, each with a command of its own. A State belongs
// to one thread.
package tiles
