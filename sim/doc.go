// Package sim owns the virtual world: the same scheduler and rank machines as a live gang, with
// devices, links, mail and clocks of its own, on one thread, in virtual time, from one seed. It
// computes nothing unless an Executor is given; then results are those of a live run.
//
//	     +-------------------------------------------------------------------+
//	     | queue of events, earliest first, then in the order of their making|
//	     +-------------------------------------------------------------------+
//	       | pop: now = its time                                     ^ push
//	       v                                                         |
//	deliver  Step of a rank or the scheduler; device, link, owner    | mail: Costs.Mail + noise
//	op       a device op is over: Executor.Do, Done, next of stream  | op: Costs.Op + noise
//	block    a block is at the receiver: Executor.Hop, Arrived, Sent | link free, then occupy,
//	alarm    a machine's Timer, unless set anew or dropped           |   then latency + noise
//	pause    a rank is deaf; resume: it hears what it missed         |
//
//	a link      [block A    ][block B    ]          occupies: one block at a time, in order of put
//	                        + latency -> arrives    latency occupies nothing
//
// A Modelled prices all that by a plan.Topology, and draws the weather of a seed. Config.Spans is
// told what each op and block occupies, for a timeline; see Span.
//
// Legend of Config.Trace: At is the virtual nanosecond, What a word of the left column, Env the
// envelope (of an op, its Launch; of a block, its Put). Result.TraceHash folds the time, word,
// kind, addressee, round, op, lane and tick of every event in the life of the world.
//
// A block is copied when it arrives and an op computes when its time is over: the latest moments
// that the model allows, so that a slot written too early shows as a wrong result or a violation.
//
// The checker knows programs, neither workers nor devices: an op may start to touch its slots only
// when every earlier op of the program that conflicts on one of them is over, and a complete round
// has attended as many pairs as the mask allows. It can fail, and poison too
// (TestCheckerSeesDependencies, TestCheckerCountsPairs, TestPoisonShowsLateReaders).
//
// # Duties of the caller
//
// Costs are pure functions of their arguments, and Mail between two addresses does not vary, else
// their order would (noise keeps it). Book holds every round that Run is asked for, in order from
// First. Trace, Spans, Progress, Stop and an Executor do not call the World. Look at
// Result.Violations: they are not errors of Run.
//
// # Invariants
//
//	V1  The same Config gives the same events, hash and results.
//	V2  Noise never reorders the envelopes between two addresses, nor the blocks of a lane (source,
//	    destination, lane number).
//	V3  Link ends and devices know the epoch themselves: what was flushed does not land.
//	V4  Delays change no digest: any seed gives the bits of a live run (package integration:
//	    TestDigestsDoNotDependOnTiming).
//	V5  With two slots of each kind hops hide behind arithmetic; a lockstep twin of the plan misses
//	    the same bounds (TestForwardHidesHops, TestBackwardHidesHops, TestFewerSlotsCost,
//	    TestLatency, TestQueueDepth).
//	V6  A run ends: in completion, a verdict (*Failure), ErrStuck when nothing is left to happen,
//	    at MaxEvents, or when Stop says so (TestStopAndProgress). A mailbox beyond its limit is an
//	    error, not a longer queue.
//	V7  The queue gives events by time, then in the order of their making, however many share a
//	    time (TestQueueOrder, TestQueueForgets).
//	V8  Spans of one stream, and of one link, do not overlap; each device op and each send has one,
//	    and telling them changes no event (TestSpans).
//	V9  In calm weather an op, a transfer and a letter take what the topology says; a seed's weather
//	    adds at most a twentieth to an op or transfer, whatever came before (TestModelledPrices,
//	    TestModelledMail, TestWork, TestWeather).
//
// # Concurrency
//
// A World belongs to one goroutine. Worlds are independent and may share plans and books that
// nobody changes.
package sim
