package kvloom

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvloom/kvloom/actors"
)

// Error says why a run failed. Match it with errors.As.
type Error struct {
	Kind  Kind
	Rank  int    // the culprit by the scheduler's verdict; -1 when no rank is to blame
	Link  string // such as 2->3, where a rank waited on the culprit; empty when none did
	Op    string // the op at which it waited, as plan text; empty when none did
	Round int
	Notes []string // what the actors had to say, one line each
	Cause error    // of an aborted call: why its context ended
}

// What an *Error, or an error of a State, can be matched with by errors.Is.
var (
	ErrPeerLost = errors.New("kvloom: a rank is gone or silent")
	ErrTimeout  = errors.New("kvloom: an op is late")
	ErrAborted  = errors.New("kvloom: the caller gave up")
	ErrCorrupt  = errors.New("kvloom: a block or a plan disagrees")
	ErrDevice   = errors.New("kvloom: a device or a link failed")
	ErrLimit    = errors.New("kvloom: a limit was reached")
	// ErrEpoch says that a state has no forward pass to go back from.
	ErrEpoch = errors.New("kvloom: the state has no forward pass in this epoch")
)

// Unwrap gives the cause, such as context.Canceled.
func (e *Error) Unwrap() error { return e.Cause }

// Is matches the sentinel of the error's kind.
func (e *Error) Is(target error) bool {
	switch e.Kind {
	case PeerLost:
		return target == ErrPeerLost
	case Timeout:
		return target == ErrTimeout
	case Aborted:
		return target == ErrAborted
	case Corrupt:
		return target == ErrCorrupt
	case Device:
		return target == ErrDevice
	case Limit:
		return target == ErrLimit
	}
	return false
}

// Kind is the kind of a failure, as the command line's JSON spells it.
type Kind string

// The kinds.
const (
	PeerLost Kind = "peer_lost" // an actor is gone or silent
	Timeout  Kind = "timeout"   // all alive, an op is late
	Aborted  Kind = "aborted"   // the caller gave up
	Corrupt  Kind = "corrupt"   // a block or a plan disagrees
	Device   Kind = "device"    // a device or a link failed
	Limit    Kind = "limit"     // a limit was reached
)

// Error is one line, and one more a note.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kvloom: round %d failed: %s", e.Round, e.Kind)
	if e.Rank >= 0 {
		fmt.Fprintf(&b, ", rank %d", e.Rank)
	}
	if e.Link != "" {
		fmt.Fprintf(&b, ", link %s", e.Link)
	}
	if e.Op != "" {
		fmt.Fprintf(&b, ", waiting at %s", e.Op)
	}
	for _, n := range e.Notes {
		b.WriteString("\n  " + n)
	}
	return b.String()
}

// KindOf is the kind of a fault that an actor reports.
func KindOf(f actors.Fault) Kind {
	switch f {
	case actors.PeerLost:
		return PeerLost
	case actors.TimedOut:
		return Timeout
	case actors.Corrupt, actors.PlanMismatch:
		return Corrupt
	case actors.DeviceFault, actors.LinkFault:
		return Device
	case actors.Overflow:
		return Limit
	}
	return Aborted
}
