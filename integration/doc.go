// Package integration holds the tests of the whole: worlds against one another and against the
// oracle. It has no code of its own.
//
//	problem ──> live session ──┐
//	        ──> simulator ─────┼──> compare bits, gates, counts, bytes
//	        ──> dense oracle ──┘
//
// Duties of the caller: none. Invariants: every test here runs real rank machines on real plans;
// none asserts a duration. Concurrency: tests run one after another but where they say so.
package integration
