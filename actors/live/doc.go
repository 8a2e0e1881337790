// Package live owns the world in which machines run on the wall clock: it hosts each
// actors.Machine as an actor of protoactor-go, carries envelopes between them inside one process,
// serves their alarms, and stops and reports the ones that fail.
//
//	 rank 0 (actor)            rank 1 (actor)            scheduler (actor)
//	+----------------+        +----------------+        +----------------+
//	| urgent | lane  |        | urgent | lane  |        | urgent | lane  |   mailboxes, each bounded
//	|  Step(now, in, out)     |  Step          |        |  Step          |
//	+---|------------+        +----------------+        +--------^-------+
//	    | out.Mail                                               | Down, once an incarnation
//	    v                                                        |
//	  Host.Send --- actor: its mailbox --- full? stop it --------+
//	         \----- link, owner: a function, called here and now
//
// # Lanes
//
// Abort, Stop, Down and Ping go on the urgent lane of a mailbox, which is served first and has a
// limit of its own, UrgentLimit; all other envelopes go on the other lane and count against the
// limit given to Spawn. A machine's alarm takes no place at all, and is served after all that had
// come when it fired: a machine that judges "nothing came" has seen what came.
//
// # Duties of the caller
//
// Machines keep the contract of actors.Machine: Step does not block. Functions given to Handle and
// OnNote do not block either, since they run on the goroutine of whoever sends. Close is called
// once the gang has been stopped by the scheduler's own Close, or to end it without ceremony.
//
// # Invariants
//
//  1. A machine is stepped by one goroutine at a time, first with Start.
//  2. Envelopes from one address to another arrive in the order in which they were sent, in each
//     lane. Only the urgent lane overtakes.
//  3. Send never blocks. A mailbox at its limit is a fault: that actor is stopped, and Down says
//     Overflow.
//  4. An actor that panics, overflows or is killed is never started again by the host. Down is
//     sent exactly once for its incarnation, and nothing of that incarnation comes after it.
//  5. Mail for an actor that is gone, or for an address that nobody has, is dropped and counted.
//  6. An alarm that was cleared, or set anew, is not delivered.
//  7. In the steady state an envelope costs no allocation.
//  8. After Close no goroutine and no timer of the host is left.
//
// # Concurrency
//
// All methods may be called from any goroutine, also from functions given to Handle and OnNote,
// but for two that wait for a machine's step to end and so must not be called from inside it:
// Close, and Spawn at the address of an actor that is just leaving.
package live
