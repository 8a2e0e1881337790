// Package rank owns one participant: the machine that runs a rank's program of each round, queuing
// every op as soon as its inputs, slots and credits allow. It owns the ready queues of the device's
// streams, the lane table, the credit book and the header check. It has no branch for attention,
// rings or exchanges: it moves ops.
//
//	an op    waits --all deps counted down--> ready --+-- device op: Launch --Done-------> over
//	                                                  +-- receive:   Post   --Arrived----> over
//	                                                  +-- send:      Put    --Sent-------> over
//	                                                  |     (with the credit of its receive)
//	                                                  +-- release:   at once ------------> over
//
//	           device op -> device op counts down at the Launch: the device keeps their order
//	           all other pairs count down when the earlier op is over
//
//	streams    compute [12 runs][15 queued] | 18 21 24   ready, lowest tick first
//	           in      [14 runs]            |            Launch 15 names event 14
//	           out                          | 9
//	                    depth 2 a stream
//
//	worker     idle --Grant--> running --round done, no more granted--> idle
//	             any --Abort--> flushing --device and link Flushed: Aborted--> (newer Grant) idle
//	             any --Stop---> stopping --device and link Flushed: Stopped--> stopped
//
// Compile turns a Program into a Script once (successors, lanes in tick order, headers); rounds
// share it.
//
// # Duties of the caller
//
// A Book gives the same answer for a round until it is over on all ranks. Device and link answer
// what they are asked, keep the order of streams and lanes, and answer Flush when nothing old can
// touch a slot. Programs have passed plan.Verify; the worker trusts their order. Envelopes carry
// rounds and epochs as the kinds say. Deadline is above zero.
//
// # Invariants
//
//	R1  A device op is launched only when each dependency that is a device op is launched or done
//	    and each that is a transfer or release is over; a transfer only when all are over. Each
//	    dependency counts down exactly once (TestOrder).
//	R2  A launch lists the unfinished dependencies on other streams, three at most; an op with more
//	    waits until some are done, so every event is recorded before it is waited for (TestEvents,
//	    TestWideLaunch).
//	R3  At most Depth launches are queued on a stream, lowest tick first (TestOrder, TestDepth).
//	R4  In a lane transfers start in rising tick order, and lanes do not block each other; a send
//	    starts only with the credit of its own receive, named by lane and tick (TestTransfers).
//	R5  Credits of later rounds and newer epochs are kept, to a limit; words of older epochs or of
//	    rounds that are over are dropped and counted (TestEarlyCredits, TestOldWordsAreDropped,
//	    TestOldEpochsWords).
//	R6  A block whose header disagrees with the program, a credit that no send wants and a round
//	    that the book does not have are reported with both sides, and nothing is over by them
//	    (TestHeaders, TestUnplannedCredit, TestUnknownRound). A rank confirms what it holds, wanted
//	    is what was made for it (TestHoldsAndWants, TestFoldNoticesAll, TestScriptNameKnowsTheSets).
//	R7  A rank runs rounds up to its grant and no further (TestGrants), also with an empty program
//	    (TestEmptyProgram).
//	R8  Aborted and Stopped are said only after device and link are both still (TestAbort,
//	    TestTwiceAborted, TestStop); Aborted names the oldest wait (TestAbortNames).
//	R9  One alarm at most; without progress for a deadline the rank reports what it waits for, once
//	    until it moves (TestTimer, TestNoAlarmWhileIdle). A rank names what it sees, no culprit.
//	R10 In the steady state a step allocates nothing (TestNoGarbage).
//	R11 Two workers that hear the same say the same (TestSameInputsSameOutputs).
//
// # Concurrency
//
// A Worker belongs to whoever steps it. A Script and a Compiled are immutable and shared by all
// goroutines. Rounds are shared only behind a lock of their owner.
package rank
