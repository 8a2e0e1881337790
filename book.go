package kvloom

import (
	"sync"

	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
)

// book is what ranks, devices and links know of rounds. The session appends rounds before it
// submits them and forgets those that are complete.
type book struct {
	mu     sync.RWMutex
	rounds rank.Rounds
}

func (b *book) entry(round int32) (rank.Entry, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.rounds.At(round)
}

// Script is rank.Book's.
func (b *book) Script(r, round int32) *rank.Script {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.rounds.Script(r, round)
}

// State is rank.Book's.
func (b *book) State(round int32) int32 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.rounds.State(round)
}

// Holds is rank.Book's.
func (b *book) Holds(r, from, to int32) uint64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.rounds.Holds(r, from, to)
}

// wants is what the scheduler demands of a rank.
func (b *book) wants(r, from, to int32) uint64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.rounds.Wants(r, from, to)
}

// Round is cpu.Book's.
func (b *book) Round(r, round int32) (cpu.Round, bool) {
	e, ok := b.entry(round)
	if !ok {
		return cpu.Round{}, false
	}
	s := e.Plan.Scripts[e.Pass][r]
	return cpu.Round{Header: s.Header, Program: s.Program, State: e.State}, true
}

// class is the traffic class of a send, for the meter.
func (b *book) class(r, round, op int32) int {
	e, ok := b.entry(round)
	if !ok {
		return 0
	}
	return int(plan.ClassOf(e.Pass, e.Plan.Scripts[e.Pass][r].Program.Ops[op].Lane))
}

// add appends rounds and gives the numbers from <= r < to.
func (b *book) add(entries []rank.Entry) (from, to int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from = b.rounds.First + int32(len(b.rounds.Entries))
	b.rounds.Entries = append(b.rounds.Entries, entries...)
	return from, from + int32(len(entries))
}

// forget drops the rounds before a number; an older epoch's stragglers find nothing.
func (b *book) forget(before int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := int(before - b.rounds.First)
	if n <= 0 {
		return
	}
	kept := copy(b.rounds.Entries, b.rounds.Entries[n:])
	clear(b.rounds.Entries[kept:])
	b.rounds.Entries = b.rounds.Entries[:kept]
	b.rounds.First = before
}
