// Package tidy holds the laws of this source tree as tests; it has no other code.
//
//	L6  cmd/kvloom   train   examples   integration        compose, never decide
//	L5  kvloom                                             live composition root
//	L4  sched                                  |
//	L3  rank   ringbus   headshuffle           |  actors/live   transport/inproc
//	L2  plan   balance                         |  cudakern/cpu  sim
//	L1  mesh  attn  actors  transport  cudakern|
//	L0  internal/...                           |
//	              PURE                         |            WORLDS
//
// rules_test.go says which package may import which, and why not the others; what pure packages
// may not touch at all; and where each third-party module may be used. lattice_test.go enforces
// it, and that only commands read the environment. tidy_test.go keeps comments, lengths,
// package-level state and words in order.
//
// Duties of whoever adds a package: give it a line in the lattice. Of whoever adds a third-party
// module: give it a line in the table outside and one in docs/dependencies.md.
//
// Invariants:
//
//  1. Every ban has a reason, and a failure prints it. A test walks all pairs of packages to see
//     that none is banned without one.
//  2. Every check is run on small fake packages that break it, so each check can fail.
//  3. There is no list of exemptions. A file that cannot obey is split, or the law is changed for
//     all.
//
// Only direct imports of files that are not tests are judged: the lattice is complete, so what is
// reached through another package was judged there. Files are read whatever their build tags say.
//
// The tests only read files and share nothing, so they may run beside any other.
package tidy
