package cpu

// Asleep is how many workers wait for something to do.
func (p *Pool) Asleep() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asleep
}
