// Package transport owns what all links have in common and promise: the header that every block
// carries, the table of open receives of a link end (its credits), and the counter that is put
// around whatever moves blocks. It moves nothing itself; below it there is one folder a world.
//
//	one transfer            link end of src            link end of dst
//
//	  dst: Post  -------------------------------------> Posts.Add      the slot is free: a credit
//	  src: Credit <------------------------------------
//	  src: Put   ------> header stamped, block -------> Posts.Take     src, lane, tick, round, epoch
//	                                                    Header.Check   posted and come, all fields
//	                                                    slot written
//	                                                    header to dst: Header.Check on the rank
//	  src: Sent  <-------------------------------------                dst: Arrived
//
//	  receive    free slot --Post--> open --block comes--> taken       open --Flush--> forgotten
//
// What every link promises: reliable, in order in each lane (source, destination, lane number),
// no lane blocks another; nothing arrives without an open receive; Sent means that the receiver has
// the block, verified, and until then the sender keeps it; bounded by the plan's slots.
//
// # Duties of the caller
//
// A link calls Add when a receive starts and Take once for each block that comes, and Flush before
// it says Flushed. Both ends derive their Header from their own program; the link and
// who receives compare. A
// Meter is used where blocks move, once a block; Hops of one source rank are not concurrent, and
// Sent is read when the links are still. classOf gives an index from 0 to classes-1.
//
// # Invariants
//
//	T1  Stamp and HeaderOf are inverse, and Stamp changes nothing but the header
//	    (TestHeaderCrossesAnEnvelope).
//	T2  Headers that differ in any field disagree, and the error prints both sides
//	    (TestHeaderCheck).
//	T3  Posts hold at most Limit receives; one more is an error that names the rank
//	    (TestPostsLimit).
//	T4  A block takes the receive of its own source, lane, tick, round and epoch, and each receive
//	    is taken once (TestPostsTakeNamesOneTransfer); after Flush none is (TestPostsLimit).
//	T5  A Meter counts exactly the blocks that moved, and their bytes, by source rank and class
//	    (TestMeterCounts).
//
// # Concurrency
//
// Header is a value. Posts belong to their link end: whoever shares one locks it. A Meter may be
// called for different source ranks at the same time, since each counts in places of its own.
package transport
