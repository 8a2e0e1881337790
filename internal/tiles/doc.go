// Package tiles executes AMX instructions (Intel's matrix tiles, bf16) where the processor has
// none, so that tests can run kernels that use them: it traces the test and interprets.
//
//	test ----- Run(cmd): the test's own binary, once more ---------- child, KVLOOM_TILES=interpreted
//	  |                                                               |
//	  |  tracer, one locked thread           threads of the child     |  LDTILECFG  -> SIGILL
//	  |    waits for any stop        <------   stopped by the kernel -+
//	  |    reads registers and code
//	  |    Decode, Exec on the thread's State, memory by process_vm_readv
//	  |    as many as follow one another
//	  |    writes registers          ------>   goes on behind them
//	  |    or makes the fault's signal ----->  SIGILL, SIGSEGV with its address
//	  |    all other signals as they are ---->
//	 Stats
//
// Decode and State know nothing of processes and work on any platform; run_linux_amd64.go is the
// tracer.
//
// What the instructions do follows volume 2 of Intel's manual (LDTILECFG to TDPBF16PS, exception
// classes AMX-E1 to E6). Relied on in particular:
//
//   - Palette 0 is the initial state, palette 1 has 8 tiles of at most 16 rows of 64 bytes.
//
// Reserved
//
//	  bytes, a size beyond that, or one of rows and colsb alone being 0 is a general protection
//	  fault that leaves the old configuration. A new configuration clears all tiles.
//	- A tile that is used must be configured, with rows of a multiple of 4 bytes; start_row must
//	  lie inside of it. A load or store that faults keeps the rows that it has done and leaves in
//	  start_row where it goes on; every instruction that ends sets it to 0.
//	- Loads, TILEZERO and products leave 0 beyond colsb and rows of the tile that they write.
//	- TDPBF16PS adds to element (m,n), over k ascending, from +0: first elements of the pairs in
//
// one
//
//	sum, second ones in another, each product and addition rounded once to nearest even; then the
//	two sums are added, then that to C. Subnormal inputs are zeros, results that are subnormal
//	after rounding become zeros, MXCSR is not used. A NaN comes out quiet; which of several is
//	not said there, and not relied on.
//
// # Duties of the caller
//
// The package serves tests; nothing else imports it. The child learns from KVLOOM_TILES that tiles
// are there, though neither CPUID nor the kernel say so. On a processor that has them, where
// nothing is stopped, the child asks the kernel for permission first (arch_prctl
// ARCH_REQ_XCOMP_PERM). No test depends on how long an instruction takes.
//
// A signal's handler finds the tiles as the thread left them, where hardware clears them for the
// handler and brings them back: so no handler may use them. Whoever forks without exec leaves the
// tracer: only threads and what they become by exec are followed. Stopping the child by SIGSTOP
// does not hold it.
//
// # Invariants
//
//	Z1  Encodings are understood as the assembler writes them, and nothing else is (TestDecode,
//	    TestDecodeRefuses).
//	Z2  A product has the bits of exact arithmetic rounded where the manual rounds
//	    (TestProductIsExact), also where the fast way is taken (TestPlainSumsAreExact).
//	Z3  Each rule broken is the manual's fault, and the state is as before (TestFaults).
//	Z4  A fault on memory names its first byte that cannot be touched, rows before it are done, and
//	    the instruction can be repeated (TestFaultsOfMemory, TestGuardPage).
//	Z5  Threads have tiles of their own, whatever signals and collections stop them (TestThreads).
//	Z6  Signals that are not of tiles reach the child unchanged, and so does its end (TestSignals,
//	    TestEnds).
//	Z7  After Run no thread, process or goroutine of it is left (TestCancel, TestMain).
//
// # Concurrency
//
// Run may be called by several goroutines at once, each with a command of its own. A State belongs
// to one thread.
package tiles
