package cudakern

// Handle names memory of a world: Len bytes from Off in allocation ID of address space Space. A
// handle means nothing outside its space; only the space's Memory resolves it.
type Handle struct {
	Space, ID uint32
	Off, Len  int64
}

// Memory is who owns the bytes of one space. It counts what it gives out where it gives it out.
type Memory interface {
	// Take gives bytes bytes, or says that the limit is reached.
	Take(bytes int64) (Handle, error)
	// Share counts one more holder of a block that nobody writes any more.
	Share(Handle)
	// Free gives up one holder's claim; the last one's returns the memory.
	Free(Handle)
	// Held is the bytes taken now, and the most there ever were.
	Held() (now, peak int64)
}

// Executor does what device ops mean, on memory that it owns. Both worlds call it, so a simulated
// run and a live one of the same plan give the same bits. An executor does not order anything: ops
// come when their dependencies are over. Calls for different ranks may come at the same time.
type Executor interface {
	// Do does a device op of a rank's program of a round, whole.
	Do(rank, round, op int32) error
}

// NoArithmetic is an executor that computes nothing, for simulations of timing alone.
type NoArithmetic struct{}

// Do does nothing.
func (NoArithmetic) Do(_, _, _ int32) error { return nil }
