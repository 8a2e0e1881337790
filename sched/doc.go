// Package sched owns the orchestration of a gang: who is a member, which rounds are granted under
// which plan, how long anybody may be silent, what ends an epoch, and who is to blame. It is the
// control plane: it sees rounds, hashes and deadlines, never a block, an op's meaning or a link. A
// scheduler that stops does not stop a round that is granted.
//
//	forming ----all said Hello----> ready --Submit--> proposing --all confirm--> running
//	  ^  ^                           ^ |                  |                      | |
//	  |  +---a rank went, epoch + 1--|-+                  |                      | |
//	  |                              +--- last round complete on all ranks ------|-+
//	  |                                                   v                      v
//	  +--- Failed to the owner, epoch + 1 ------------- aborting: every rank flushes or is dead
//
//	any phase --Close--> closing --all stopped or dead--> closed
//
//	rounds            0 1 2 3 4 5 6 7              Window 4
//	  slowest rank    done 2 |                     low = 2: Complete 1, Complete 2 were said
//	  fastest rank    done 5       |
//	  granted         up to 6        |             low + Window; a rank stops there
//
// Why an epoch ends: a rank reports (Late, with a fault or a deadline), is gone (Down, or a newer
// incarnation's Hello), is silent (no Confirm, no Pong, no Aborted), holds another plan, or the
// owner cancels. The culprit is the scheduler's verdict: a rank that is gone or does not answer the
// abort; else, for a late op, the end of the chain of waits that begins at the reporter; else the
// reporter. A ring of waits has no culprit, nor has a link that fails between two that live. What
// was waited for is told by a living rank that waited on who is gone.
//
// # Duties of the caller
//
// The owner submits rounds with rising numbers and has at most one Submit waiting behind the one
// at hand; after Failed it submits what it still wants. Config.Plan gives the same hash for the
// same rounds until they are over. A host sends Down for a rank that is gone, with its incarnation
// in A, and starts a rank that was lost anew in a higher incarnation. Deadline is above zero.
//
// # Invariants
//
//	S1  Nothing runs before every rank is here and has confirmed the plan hash of the rounds
//	    (TestForming, TestPlanMismatch, TestConfirmTwice).
//	S2  No rank is granted more than Window rounds beyond the slowest; each round is complete once,
//	    in order, when it is done on all ranks (TestWindow, TestCatchUp).
//	S3  Every wait has a deadline, and its end names a rank: a Hello (TestLateHello), a Confirm
//	    (TestNoConfirm), progress (TestSignOfLife), an answer to an abort (TestSilentInAbort).
//	S4  Failed comes once for an abort, after every rank has answered it or is dead; then the epoch
//	    rises (TestDown, TestSilentInAbort, TestCancel).
//	S5  The verdict is as above (TestVerdict, TestFaultSeen, TestLinkFaultOfTheDead, TestWitness,
//	    TestWitnessLives).
//	S6  Words of older epochs, of older incarnations and of strangers change nothing (TestOldEpoch,
//	    TestStalePong, TestStaleIncarnation, TestStrangers).
//	S7  A rank that is gone is no member until a newer incarnation says Hello, and then of the next
//	    epoch only (TestDown, TestBackWhileAborting, TestBackWhileBusy).
//	S8  Rounds submitted while others run, or while an abort is under way, run afterwards
//	    (TestSubmitWhileRunning, TestSubmitWhileAborting); those that wait are given up with the
//	    rounds at hand when these fail.
//	S9  Close stops every rank, in any phase; Closed is the last word (TestClose, TestCloseTwice,
//	    TestBackWhileClosing). Until then the owner's ping is answered (TestOwnerAsks).
//
// # Concurrency
//
// A Scheduler belongs to whoever steps it; Phase and Epoch are read from there too.
package sched
