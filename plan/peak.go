package plan

// PeakBytes is the most tensor bytes that a rank holds at once over a forward pass and, unless
// backward is nil, the backward pass that follows it, however often the two are repeated. The
// session's blocks (slots with a role) are held from the pass that first names them, but dO from
// the start, as it may be given with the other inputs; scratch slots for the length of their round.
func PeakBytes(forward, backward *Program) int64 {
	var held [NumRoles]int64
	peak := int64(0)
	if backward != nil {
		for i := range backward.Slots {
			if s := &backward.Slots[i]; s.Role == HomeDO {
				held[HomeDO] = s.Bytes
			}
		}
	}
	for _, p := range []*Program{forward, backward} {
		if p == nil {
			continue
		}
		now := int64(0)
		for i := range p.Slots {
			s := &p.Slots[i]
			if s.Role == Scratch {
				now += s.Bytes
			} else {
				held[s.Role] = max(held[s.Role], s.Bytes)
			}
		}
		for _, b := range held {
			now += b
		}
		peak = max(peak, now)
	}
	return peak
}
