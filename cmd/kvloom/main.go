// Kvloom is exact attention over sequences too long for one device, at the command line.
//
//	kvloom attend                                      the demonstration: 8 ranks, checked
//	kvloom attend --tokens 64K --mesh 2x4 --backward   one problem on a mesh of ranks
//	kvloom attend --in qkv.safetensors --out o.safetensors --check --json
//
// The command reads flags and files, opens a session of the root package, and prints what the
// ranks did: a table, or one JSON object on standard output. Nothing is decided here that changes
// a number.
//
//	args ──> flags ──> request ──> session ──> report ──> table or JSON
//	           │ exit 2: named, before a rank starts        │ exit 0, 1 (check), 3 (run), 130
//
// Standard output has results only; progress (on a terminal), logs and errors go to standard
// error. One interrupt ends the run in order, and says so; a second one kills the process.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal is the system's: it kills
	os.Exit(run(ctx, os.Args[1:], streams{out: os.Stdout, err: os.Stderr}))
}
