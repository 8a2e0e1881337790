package tiles

import (
	"errors"
	"os/exec"
)

// Env is the environment variable that Run sets for the command, to Interpreted.
const (
	Env         = "KVLOOM_TILES"
	Interpreted = "interpreted"
)

// ErrUnavailable is what Run's error wraps where processes cannot be traced: another platform, or
// a machine that forbids it. The error's text has the reason; the command did not run, or was
// killed.
var ErrUnavailable = errors.New("programs with tiles cannot be interpreted here")

// Stats says what Run did.
type Stats struct {
	Count   map[Op]int // executed instructions
	Plain   int        // other instructions executed between them
	Stops   int        // how often a thread was stopped for them
	Threads int        // threads and processes that were traced
	Faults  []*Fault   // the first MaxFaults that were delivered
}

// MaxFaults bounds Stats.Faults.
const MaxFaults = 16

// Run starts the command and waits for it, as cmd.Run does, and executes for its threads the
// instructions of tiles that the processor refuses. It sets cmd.SysProcAttr.Ptrace and Setpgid. The
// error is that of cmd.Start or cmd.Wait, one that wraps ErrUnavailable, or one of tracing. To stop
// the command early, make it by exec.CommandContext.
func Run(cmd *exec.Cmd) (Stats, error) { return run(cmd) }
