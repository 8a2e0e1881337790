// Package cpu is the default device: a world of memory and arithmetic in one process, on the CPU.
// It owns the blocks of all ranks of the process (Arena), what ops mean on them (Store), the
// workers that do the arithmetic (Pool), and the machine that answers a rank's launches (Device).
//
//	rank 3  --Launch-->  Device 3    three FIFO streams (cudakern.Streams), up to three ops at once
//	        <--Done----     |  Begin: find blocks, take memory, cut into tasks
//	                        v
//	        Pool     [worker][worker]...     tasks of all ranks' ops take turns: Job.Run
//	                        |
//	                        v
//	        Store    rank 3: scratch slots of the round at hand | sessions: home.q home.kv ...
//	          ^             |block            |block
//	 Post,Hop |             v                 v
//	 links ---+      Arena  [2 holders]   [1 holder]   idle: 64 B.. 4 KiB..
//
// A slot is the right to hold one block of so many bytes; a rank claims a round's slots when the
// first of its ops or receives comes, and gives up the scratch slots of the round before. The
// session's slots (those with a role) belong to a state, one layer's one micro-batch, and stay
// from the forward round to the backward one. Blocks are taken when they are written. Hop
// hands an immutable block over by sharing it and an accumulator by moving it.
//
// A block is its parts one behind the other (frame): of T, as accumulators always are, or of BF16
// where the plan's elements have 2 bytes, and of a dkv on its way. Numbers come and go as T: they
// are rounded to BF16 when they are given and, gradients, when they are asked for.
//
// The sink logits of a state join its rows' sums when they become out, and never a part; their
// gradients are added up where delta is made.
//
// # Duties of the caller
//
// Ops come when their dependencies are over, of each rank one round at a time; a send's Hop comes
// after the Post of its receive. Expect, SetInput, SetSink, Output, SinkGrad and Forget are called
// while no round of their state runs; where elements are BF16, Expect before SetInput. A simulation
// calls Do, Post and Hop; a live host gives Devices their envelopes and its links call Post and
// Hop. Store.Close and Pool.Close come when all devices are still.
//
// # Invariants
//
//  1. A block that has more than one holder is never written. A write to a slot whose block is
//     shared, missing or of another size takes a fresh block.
//  2. An accumulator (State, DQ, DKV, Part, DKVWire) has one holder.
//  3. What is read is there: an op whose operand is not in its slot, or is other than the plan
//     says, is an error that names rank, round, op and slot. Releases are not seen here, so a
//     block that should be gone may still be read; Options.Copy with Options.Poison shows that.
//  4. A block is never larger than its slot. Out or part stays in the block of the state that it
//     was made of: out begins where acc did and lse lies where m was.
//  5. Peak counts memory where it is taken, and equals plan.PeakBytes. Sinks are not counted.
//  6. Results do not depend on workers, interleaving, Copy or Poison: tasks are cut by shapes, and
//     sums go in the order of the plan. Pieces of attend-bwd alone are cut by workers too: a piece
//     takes up each sum where the piece before it, which it needs to be over, has left it, so that
//     all sums are made in one order in any cut.
//  7. In the steady state nothing is allocated on the way of an op, and no map is looked up.
//  8. After a flush is answered nothing of the flushed epochs runs or can start.
//  9. A block has the size that plan.Shape.Bytes says; its parts fill it without gaps, each aligned
//     for its elements.
//  10. Nothing but what the plan calls elements, and DKVWire, is ever rounded to BF16, once each;
//     gradients are rounded when they are asked for.
//  11. A rank's share of the sinks' gradient is what its delta ops of the last backward round give,
//     each once, whatever was run before.
//  12. When the first of equal batches that began together is over, no other has more tasks to
//     begin than those of a turn, however few workers there are and whatever a task takes; but
//     for pieces of a backward pass, which wait for each other.
//
// # Concurrency
//
// Arena, Store and Pool may be used by all goroutines at once; a rank's slots are behind one lock,
// which is not held while tasks run. A Device and a Job belong to one goroutine; a Job's tasks
// may run at once. Views that Output gives are plain memory: the duties above protect them.
package cpu
