// Package actors owns what a machine is and how machines speak: the contract of Step, addresses,
// envelopes with their kinds, epochs, faults and time. It has no machine and no host; both sides
// of the seam meet in these words only.
//
//	                 +---------------------- host: a world ----------------------+
//	  Envelope  -->  | mailbox --> Machine.Step(now, in, out) --> Outbox         | --> Envelopes
//	                 |                pure, never blocks          Mail Notes Alarm
//	                 +-----------------------------------------------------------+
//
//	owner --Submit,Cancel,Close--> scheduler --Propose,Grant,Abort,Stop,Ping--> rank 0..N-1
//	      <-Complete,Failed,Lost--           <-Hello,Confirm,RoundDone,Late,
//	        Closed                             Aborted,Stopped,Pong--
//
//	rank r --Launch,Flush--> device r              rank r --Post,Put,Flush--> link r
//	       <-Done,Flushed,Broken--                        <-Credit,Sent,Arrived,Flushed,Broken--
//
//	one transfer:   dst --Post-->        --Credit--> src --Put-->        --Arrived--> dst
//	                                                             --Sent-->    src
//
//	epoch e   rounds granted ... Abort e, Flush e, Flushed e, Aborted e | epoch e+1 Grant ...
//	                              nothing of e touches a slot any more -^
//
// A device and a link are addresses that answer messages, like everybody else. Tensor bytes never
// go in an envelope: a Put names an op, and the world moves the block.
//
// # Duties of the caller
//
// A host sends Start first, steps a machine from one goroutine at a time, keeps the order of the
// envelopes between two addresses (only Abort, Stop, Down and Ping may overtake others), serves one
// alarm a machine, the one set last, as a Timer envelope, and sends everything in Mail before the
// next step. It calls Outbox.Reset before each Step. When an actor is gone it says Down once for
// that incarnation.
//
// A machine sends only through its outbox, keeps no reference to it, and drops and counts what an
// older epoch sent. It reads the fields that a kind's comment names; the rest are zero.
//
// # Invariants
//
//	A1  The same state and the same envelope at the same time give the same outbox (package rank:
//	    TestSameInputsSameOutputs). So a run in virtual time repeats, and a live one follows the
//	    same code.
//	A2  An Envelope is flat and by value: no pointer, no slice, no string; 88 bytes. It could cross
//	    a process border as it is.
//	A3  Time is nanoseconds since the world began and is given to a machine, never read by it.
//	A4  Epochs only rise. What an older one sent changes nothing (package rank:
//	    TestOldWordsAreDropped; package sched: TestOldEpoch).
//	A5  After Flushed of an epoch nothing of it can touch a slot of the rank, as source or target.
//	A6  An actor that failed is never started again under the same incarnation.
//
// # Concurrency
//
// Addresses and envelopes are values. An Outbox and a Machine belong to the goroutine that steps.
package actors
