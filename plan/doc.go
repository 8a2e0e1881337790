// Package plan owns what a round is: for each rank and pass a Program, ops with explicit
// dependencies over a table of slots, as data. It assembles programs out of builders of the ring
// and the head axis (which live elsewhere and hand themselves in), proves them (Verify), prints
// them (AppendText, AppendPlan) and reads them back (ParsePlan), names them (Hash), counts them
// (Count) and prices them on a modelled cluster (Topology, Cost). It runs nothing and knows no
// clock, device or link.
//
//	Spec{Shape, Mesh, Layout, Options, RingAxis, HeadAxis} -> New -> Plan -> Program(pass, rank)
//
//	forward                              rows x heads            slots of one rank
//	  home.q, home.kv                    run x all heads         live-in
//	    | HeadAxis.Gather: pack, send, recv, unpack
//	  head.q, head.kv                    shard x own heads       kept for the backward pass
//	    | RingAxis.Forward: zero, (recv, send, attend, release) a ring step, finalize
//	  head.o                             shard x own heads       kept; out lies where acc was
//	    | HeadAxis.Scatter
//	  home.o                             run x all heads         live-out
//
//	backward
//	  home.do -Gather-> do -delta-> RingAxis.Backward: attend-bwd, accumulate -> dq, dkv
//	    -Scatter-> home.dq, home.dkv     run x all heads         live-out
//
// With H = 1 a home slot is the head slot too, and exchanges write no op. The life of a slot:
//
//	free --write, whole frame--> live: read, add --hand on, linear only--> consumed
//	  ^                           |                                           |
//	  +--------- release ---------+------------------ release ----------------+
//	In: live from the start. Keep: live at the end, never released.
//	finalize: on one slot the state's life ends and out's, or a part's, begins.
//
// A collective (package collect) is a plan too, of one forward pass: Shape.Collective. Rows are
// then elements of vectors, the heads of Vec its contributors, the ranks of a group:
//
//	vec.in  vec[elements, own contributor] --send, recv--> unpack adds all contributors, in order
//	        --> sum[elements] --send, recv, unpack--> sum.out                 live-out
//
// State, Part, DQ, DKV and DKVWire are linear: only added to, then handed on exactly once. A
// Builder derives each dependency from the slots that an op touches, so reuse of a slot is a
// dependency like any other.
//
// Queries may travel instead of keys. Forward a rank then finalises the state of a visitor as a
// part, which goes home and is merged into the state there; backward q, dO, lse and delta visit in
// one block, and dQ goes home:
//
//	q   --send, recv--> attend -> st -finalize-> part --send, recv--> accumulate on st -> out
//	visit --send, recv--> attend-bwd + dkv at home, + dq --send, recv--> accumulate on dq
//
// Which shards see which is asked of the mask once, for all builders of a plan (sees).
//
// Both ends of a transfer carry peer, lane and tick. A tick is a place in the order of the whole
// plan, the same on all ranks; within a lane transfers start and end in rising tick order, and a
// transfer waits only for transfers of lower ticks, so no round can stop for ever. Ticks of other
// ops are only priorities. What Verify assumes of the run time (M1 to M5) is said there.
//
// # Duties of the caller
//
// Builders ask Tick alike on all ranks, name no empty block in an op, and release what they Take.
// Whoever runs a program starts an op only when all its Deps are over, keeps lanes in tick order
// and resolves a slot to at most Slot.Bytes. Programs, their Args and Deps, and the Header are not
// changed by readers. A plan of unknown origin goes through Verify before it runs.
//
// # Invariants
//
//	P1  A program follows from its Spec, pass and rank alone: built again, in any order, it has the
//	    same text (TestProgramsAreBuiltOnDemand). The text is stable (TestGoldenPlans).
//	P2  An op of a built program waits only for ops before it in the list
//	    (TestDependenciesPointBack). Readers other than tests must not lean on it: Verify takes any
//	    order (TestVerifyTakesAnyOrderOfOps).
//	P3  Every plan that New accepts passes Verify and runs clean under adversarial orders
//	    (TestValidPlansAreAccepted).
//	P4  What Verify accepts runs clean; of broken plans that it refuses at most 3% would have
//	    (TestVerifyHasTeeth). It calls no builder, and accepts plans written by hand
//	    (TestVerifyAcceptsPlansByHand).
//	P5  The sums of ranks prove the same in any order of adding (TestSumsAddInAnyOrder).
//	P6  The hash of a plan tells apart shapes, scales, masks, meshes, placements, layouts and slot
//	    counts, also where programs are the same; defaults spelt out change nothing
//	    (TestPlanHashTellsPlansApart).
//	P7  No operand is empty, and a rank without tokens has a program all the same (TestGoldenPlans,
//	    case 2x3_tiny).
//	P8  Count and StepFlops say what the ops say (TestCountsByHand, TestStepFlopsAddUp).
//	P9  The slot table bounds memory: a program claims its slots when it starts and holds no more;
//	    a session's figure is PeakBytes (package integration: TestMemory).
//	P10 What New refuses cannot run; the error names the value and what would work (package
//	    ringbus: TestTooFewSlotsAreRefused; package mesh: TestValidateHeadsRefuses).
//	P11 A sum of a collective has every contributor's part of its element once, added in order
//	    (package collect: TestBrokenPlansAreRefused, TestVerifyHasTeeth).
//	P12 The text of a plan reads back as the same plan, and what cannot be read is an error that
//	    names the line (TestPlanTextReadsBack, TestParsePlanRefuses, FuzzParsePlan).
//	P13 Cost gives the simulator's makespan within 2%, and its steps add up (TestCostAgreesWithSim,
//	    TestCostAddsUp).
//	P14 What a plan takes the mask to allow, and counts of it, is what the mask allows pair by pair
//	    (TestSeesWhatTheMaskAllows, TestSweepsOfManySpans, TestTilesAgainstPairsOneByOne).
//	P15 A plan is built and proven rank by rank: memory holds the header, tables of it and one
//	    rank's programs, and thousands of documents or ranks take seconds (TestBuildVerifyBudget).
//
// # Concurrency
//
// A Plan and its Header are immutable, and Program may be called by any number of goroutines. A
// Builder belongs to one goroutine and makes one program.
package plan
