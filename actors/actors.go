package actors

// Time is nanoseconds since the start of a world: wall clock in a live one, virtual in a simulated
// one. Machines compare and add it; they never read a clock.
type Time int64

// Never is later than any time that happens.
const Never Time = 1<<63 - 1

// Epoch numbers the lives of a gang. What an older epoch sent is dropped and counted.
type Epoch uint32

// Addr names whoever answers messages: a role and, for most roles, a rank.
type Addr struct {
	Role Role
	Rank int32
}

// Role is the kind of an address.
type Role uint8

// The roles. A Device and a Link belong to the rank of the same number: the link is the rank's end
// of all its lanes.
const (
	Nobody Role = iota
	Scheduler
	Rank
	Device
	Link
	Owner // the session that opened the gang: asks for rounds, hears of their end
)

// String is the address in reports, such as rank 3 or device 3.
func (a Addr) String() string {
	names := [...]string{"nobody", "scheduler", "rank", "device", "link", "owner"}
	n := "?"
	if int(a.Role) < len(names) {
		n = names[a.Role]
	}
	if a.Role == Scheduler || a.Role == Owner {
		return n
	}
	return n + " " + itoa(a.Rank)
}

func itoa(n int32) string {
	if n < 0 {
		return "-" + itoa(-n)
	}
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// Kind is what an envelope says. Each kind documents which fields it fills; the rest are zero.
type Kind uint8

// Between the owner and the scheduler.
const (
	// Submit asks for rounds Round <= r < Op under plan hash A (short). Owner -> scheduler.
	Submit Kind = iota + 1
	// Complete says that all rounds before Round are done on all ranks. Scheduler -> owner.
	Complete
	// Failed says that the gang was aborted in Epoch; Fault holds the verdict, Rank in Peer.
	// Scheduler -> owner, once every rank has answered the abort or is declared dead.
	Failed
	// Lost says that rank Peer is gone or declared dead: only a new incarnation brings it back. It
	// comes before the Failed of the same abort. Scheduler -> owner.
	Lost
	// Cancel gives up the submitted rounds: the gang is aborted. Owner -> scheduler.
	Cancel
	// Close ends the gang in good order. Owner -> scheduler.
	Close
	// Closed says that every rank has stopped or is dead. Scheduler -> owner.
	Closed
)

// Between the scheduler and the ranks.
const (
	// Start is the first envelope of every machine. Host -> machine.
	Start Kind = iota + 16
	// Hello says that a rank is there, in incarnation A. Rank -> scheduler.
	Hello
	// Propose names rounds Round <= r < Op and the plan hash A that the scheduler holds for them.
	// Scheduler -> rank.
	Propose
	// Confirm gives the plan hash A that the rank holds for the same rounds. Rank -> scheduler.
	Confirm
	// Grant is leave to run rounds up to Op (exclusive), beginning at Round in a new epoch.
	// Scheduler -> rank.
	Grant
	// RoundDone says that round Round is over on a rank: for A nanoseconds it had nothing to run,
	// and its ops took B nanoseconds of their streams' own time. Rank -> scheduler, which passes it
	// on to the owner with the rank in Peer.
	RoundDone
	// Late says that nothing came for a deadline: op Op of round Round waits, on Peer over Lane
	// when it is a transfer. Also a fault that the rank saw itself (Fault). Rank -> scheduler.
	Late
	// Abort ends Epoch's work. Scheduler -> rank.
	Abort
	// Aborted says that device and link are flushed and no old block can still write a slot; op Op
	// (-1: none) of round Round was the oldest unfinished one, waiting on Peer over Lane; A is the
	// first round not done on this rank. Rank -> scheduler.
	Aborted
	// Stop ends the rank. Scheduler -> rank.
	Stop
	// Stopped says that the rank, its device and its link are idle for good. Rank -> scheduler.
	Stopped
	// Ping asks for a sign of life, Pong is one. Scheduler -> rank -> device, owner -> scheduler.
	Ping
	Pong
	// Down says that the actor at address From is gone; Fault says why. Host -> scheduler.
	Down
)

// Between a rank and its device.
const (
	// Launch queues op Op of round Round on Stream, after the ops in After (the first N of them) on
	// other streams. Rank -> device.
	Launch Kind = iota + 48
	// Done says that op Op of round Round is over; it took A nanoseconds of its stream's own time
	// and B floating-point operations. Device -> rank.
	Done
	// Flush asks a device or a link to drop what is queued and to finish what runs. Rank -> both.
	Flush
	// Flushed says that nothing of Epoch can touch a slot any more. Device, link -> rank.
	Flushed
	// Broken says that op Op of round Round failed; Fault says how. Device, link -> rank.
	Broken
)

// Between a rank and its link, and between links.
const (
	// Post starts a receive: slot and frame are op Op's of round Round; it is the credit for the
	// transfer (Peer, Lane, Tick). Rank -> link.
	Post Kind = iota + 80
	// Credit says that Peer has posted the receive of (Lane, Tick) of round Round. Link -> rank.
	Credit
	// Put starts a send of op Op of round Round and carries the block's header. Rank -> link.
	Put
	// Sent says that the receiver has the block, verified. Link -> rank.
	Sent
	// Arrived says that the block of a posted receive is in its slot and carries its header.
	// Link -> rank.
	Arrived
	// Timer is a rank's or the scheduler's own alarm. Host -> whoever asked.
	Timer
)

// Fault says how something failed.
type Fault uint8

// The faults.
const (
	NoFault  Fault = iota
	PeerLost       // an actor is gone
	TimedOut       // alive, but an op is late
	Corrupt        // a header or a checksum disagrees with the plan
	DeviceFault
	LinkFault
	Overflow     // a mailbox would hold more than the plan allows
	PlanMismatch // a rank holds another plan
	Cancelled    // the owner gave up
)

// String is the fault in reports.
func (f Fault) String() string {
	names := [...]string{"none", "peer lost", "timed out", "corrupt block", "device fault",
		"link fault", "mailbox overflow", "plan mismatch", "cancelled"}
	if int(f) < len(names) {
		return names[f]
	}
	return "fault ?"
}

// Envelope is a message: flat, by value, without pointers, so that it can cross a process border
// as it is. It carries ids, ranges and headers, never tensor bytes.
type Envelope struct {
	To, From Addr
	Kind     Kind
	Fault    Fault
	Stream   uint8
	Tensor   uint8 // header
	N        uint8 // of After
	Epoch    Epoch
	Round    int32
	Op       int32
	Peer     int32 // global rank
	Lane     int32
	Tick     int32
	HeadLo   int32 // header
	HeadHi   int32
	After    [3]int32
	A, B     uint64 // in a header: hash of the token set, short plan hash; N is its pass there,
	// After[0] its state and After[1] its run
}

// Machine is a pure state machine. Step never blocks, spawns, locks or reads a clock; the same
// state and the same envelope give the same output.
type Machine interface {
	Step(now Time, in Envelope, out *Outbox)
}

// Outbox collects what a step sends, the one alarm that it may set, and what it has to say to
// people: notes are rare, one line each, and go to the world's log and to the owner's error.
type Outbox struct {
	Mail  []Envelope
	Notes []string
	Alarm Time // when to send a Timer envelope; Never: leave the alarm as it is
	Clear bool // no alarm any more
}

// Reset empties the outbox for the next step, keeping its memory.
func (o *Outbox) Reset() {
	o.Mail, o.Notes, o.Alarm, o.Clear = o.Mail[:0], o.Notes[:0], Never, false
}

// Note adds a line for people.
func (o *Outbox) Note(line string) { o.Notes = append(o.Notes, line) }

// Send adds an envelope.
func (o *Outbox) Send(e Envelope) { o.Mail = append(o.Mail, e) }

// SetAlarm asks for a Timer envelope at a time, in place of an alarm set before.
func (o *Outbox) SetAlarm(at Time) { o.Alarm, o.Clear = at, false }

// ClearAlarm drops the alarm.
func (o *Outbox) ClearAlarm() { o.Alarm, o.Clear = Never, true }
