// Package cudakern owns the contract of a device: its three streams and their events (Streams, the
// order of a device as a pure machine), who owns memory (Memory, Handle), and what an op does when
// it runs (Executor). Devices live in folders below; nothing here assumes that memory is host
// memory, that a launch is synchronous, or that a handle can be looked into outside its space.
//
//	rank --Launch{op, stream, after}--> Push                                   Done{op} --> rank
//	                                      |                                        ^
//	  compute  [12 runs][15 after 14]     |  queue of at most MaxQueue a stream    |
//	  in       [14 runs]                  v                                        |
//	  out      [9 waits for 12]         Next: first of an idle stream whose     Finish: the op's
//	                                    events are recorded starts              event is recorded
//
//	launch   queued --Next--> running --Finish--> done(round): releases who waits for its event
//	           |                 |
//	         Flush: dropped    Flush: goes on to its Finish
//
// An op's event is the op's own number in its round. Compute has the arithmetic, In what came from
// elsewhere (unpack, accumulate), Out what goes elsewhere (pack), so that neither waits behind a
// kernel.
//
//	Handle = (space, id, offset, length)    Take 1 holder -> Share n holders -> Free ... memory back
//	   written only while there is one holder; a block shared by reference is never written
//
//	Executor   Do: a device op, whole    Post: a receive's slot is ready    Hop: a block moves
//
// # Duties of the caller
//
// A device takes all that Next gives, runs it, and calls Finish once for each, on the stream that
// it runs on. Launches come in an order in which every event that is named belongs to an op
// launched before, or done, in the same round: then FIFO streams cannot deadlock. Events know
// rounds, not epochs, and Flush forgets none: a round number is not run again on the same Streams,
// also not after an abort. An Executor is called when an op's dependencies are over; it orders
// nothing.
//
// # Invariants
//
//	D1  A stream runs one launch at a time, in the order of Push; streams wait for one another by
//	    events only (TestStreamsAreFIFO, TestStreamsRandom).
//	D2  A launch starts only when each event that it names was recorded in its own round
//	    (TestStreamsWaitForEvents, TestStreamsRandom).
//	D3  A device with work never stands still, and no launch is lost (TestStreamsRandom).
//	D4  A stream holds at most MaxQueue launches; one more, or a stream that does not exist, is an
//	    error that names the op (TestStreamsLimit).
//	D5  Flush drops what has not started and nothing that runs (TestStreamsFlush).
//	D6  Arithmetic is behind one Executor for all worlds, so a simulated run and a live one of the
//	    same plan give the same bits (package integration: TestDigestsDoNotDependOnTiming).
//
// # Concurrency
//
// Streams belong to their device's goroutine. A Memory is called by all ranks of its space at once,
// and so is an Executor, for different ranks.
package cudakern
