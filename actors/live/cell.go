package live

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/kvloom/kvloom/actors"
)

// cell is one incarnation of an actor: the machine, its mailbox, its outbox and its alarm.
type cell struct {
	host        *Host
	addr        actors.Addr
	incarnation uint64
	machine     actors.Machine
	box         *mailbox
	out         actors.Outbox
	timer       *time.Timer
	hung        atomic.Bool
	ending      atomic.Pointer[ending]
	gone        chan struct{} // closed when the address may be taken by another
}

// ending is why an actor stops. NoFault is an orderly stop.
type ending struct {
	fault actors.Fault
	why   string
}

func newCell(h *Host, addr actors.Addr, m actors.Machine, incarnation uint64, limit int) *cell {
	c := &cell{
		host: h, addr: addr, machine: m, incarnation: incarnation, gone: make(chan struct{}),
	}
	c.box = newMailbox(limit, c.panicked, c.foreign)
	c.timer = time.AfterFunc(time.Hour, c.fire)
	c.timer.Stop()
	return c
}

// Receive is called by protoactor, with one message at a time.
func (c *cell) Receive(ctx actor.Context) {
	switch message := ctx.Message().(type) {
	case *actors.Envelope:
		if message.Kind == actors.Timer {
			message.To = c.addr
		}
		c.step(*message)
	case *actor.Started:
		c.step(actors.Envelope{To: c.addr, Kind: actors.Start})
	case *actor.Stopping:
		c.leave()
	case *actor.Stopped:
		c.box.end()
	}
}

// step gives the machine one envelope and carries out what it says.
func (c *cell) step(in actors.Envelope) {
	if c.hung.Load() || c.ending.Load() != nil {
		return
	}
	c.out.Reset()
	c.machine.Step(c.host.Now(), in, &c.out)
	for _, note := range c.out.Notes {
		c.host.note(c.addr, note)
	}
	for i := range c.out.Mail {
		c.host.Send(c.out.Mail[i])
	}
	switch {
	case c.out.Alarm != actors.Never:
		c.box.setAlarm(c.out.Alarm)
		c.timer.Reset(time.Duration(c.out.Alarm - c.host.Now()))
	case c.out.Clear:
		c.box.setAlarm(actors.Never)
		c.timer.Stop()
	}
}

func (c *cell) fire() {
	if early := c.box.fire(c.host.Now()); early > 0 {
		c.timer.Reset(time.Duration(early))
	}
}

// stop begins the end, once: no mail is taken any more, and when the step that runs is over the
// actor leaves. It tells whether this call was the one.
func (c *cell) stop(fault actors.Fault, why string) bool {
	if !c.ending.CompareAndSwap(nil, &ending{fault: fault, why: why}) {
		return false
	}
	c.host.dropped.Add(int64(c.box.close()))
	c.box.PostSystemMessage(&actor.Stop{})
	return true
}

// foreign takes what came through the actor's PID: an envelope goes the way of all, nothing else is
// for machines.
func (c *cell) foreign(message any) {
	if e, ok := message.(*actors.Envelope); ok {
		own := *e
		own.To = c.addr
		c.host.Send(own)
		return
	}
	c.host.dropped.Add(1)
}

func (c *cell) panicked(reason any) {
	c.host.log.Error("machine panicked", zap.Stringer("actor", c.addr),
		zap.Uint64("incarnation", c.incarnation), zap.Any("reason", reason), zap.Stack("stack"))
	c.stop(faultOf(c.addr.Role), fmt.Sprintf("its machine panicked: %v", reason))
}

// faultOf is what the loss of an actor of a role is called.
func faultOf(r actors.Role) actors.Fault {
	switch r {
	case actors.Device:
		return actors.DeviceFault
	case actors.Link:
		return actors.LinkFault
	}
	return actors.PeerLost
}

// leave is the actor's last act, on its own goroutine: so Down comes after all that it sent.
func (c *cell) leave() {
	c.stop(faultOf(c.addr.Role), "it was stopped from outside its host")
	c.timer.Stop()
	end := c.ending.Load()
	if end.fault == actors.NoFault {
		close(c.gone)
		return
	}
	c.host.note(c.addr, fmt.Sprintf("%v is gone (%v): %s", c.addr, end.fault, end.why))
	down := actors.Envelope{
		To: actors.Addr{Role: actors.Scheduler}, From: c.addr, Kind: actors.Down,
		Fault: end.fault, A: c.incarnation,
	}
	if c.addr.Role == actors.Scheduler {
		// The owner may start another scheduler from its handler, which runs right here.
		down.To.Role = actors.Owner
		close(c.gone)
		c.host.Send(down)
		return
	}
	c.host.Send(down)
	close(c.gone)
}

// stopFailed is the supervision of all actors: whoever fails is stopped. The default of
// protoactor would start the machine again, in the middle of a round.
type stopFailed struct{}

// HandleFailure stops the actor; Down is said when it leaves.
func (stopFailed) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor,
	child *actor.PID, _ *actor.RestartStatistics, _, _ any) {
	supervisor.StopChildren(child)
}
