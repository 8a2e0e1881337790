package plan

import "strconv"

var tensorNames = [numTensors]string{ //tidy:table
	"q", "kv", "st", "o", "do", "dl", "dq", "dkv", "part", "visit", "dkvw", "vec",
	"sum",
}

var kindNames = [numKinds]string{ //tidy:table
	"pack", "unpack", "zero", "send", "recv", "attend", "attend-bwd", "delta", "accumulate",
	"finalize", "release", "visit",
}

var roleNames = [NumRoles]string{ //tidy:table
	"scratch", "home.q", "home.kv", "home.o", "home.do", "home.dq", "home.dkv", "head.q", "head.kv",
	"head.o", "vec.in", "sum.out",
}

// String is the tensor's name in plan texts.
func (t Tensor) String() string { return nameOf(tensorNames[:], int(t)) }

// String is the kind's name in plan texts.
func (k Kind) String() string { return nameOf(kindNames[:], int(k)) }

// String is the role's name in plan texts.
func (r Role) String() string { return nameOf(roleNames[:], int(r)) }

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "?" + strconv.Itoa(i)
}

// AppendText adds the program's stable text: a line for the rank, one a slot, one an op.
//
//	rank 3 forward
//	slot 9 scratch 96 B
//	slot 11 home.o keep o[c1.1 h0:4] 128 B
//	16 send rkv[c0 h1:2]@s9 ->5/0 t4 after 15
//	17 attend rq[c1 h2:4]@s7 rkv[c0 h1:2]@s9 +st[c1 h2:4]@s8 t3 after 15 14
//
// Slots with a frame say in, keep or both. Accesses are r read, w write, + add, c hand on; sets
// have their names in the header; h is the run of heads, s the slot; -> and <- give peer and lane,
// t the tick.
func (p *Program) AppendText(out []byte, h *Header) []byte {
	out = append(out, "rank "...)
	out = strconv.AppendInt(out, int64(p.Rank), 10)
	out = append(out, ' ')
	out = append(out, p.Pass.String()...)
	out = append(out, '\n')
	for i := range p.Slots {
		out = p.appendSlot(out, h, i)
	}
	for i := range p.Ops {
		out = p.AppendOp(out, h, i)
		out = append(out, '\n')
	}
	return out
}

func (p *Program) appendSlot(out []byte, h *Header, i int) []byte {
	s := &p.Slots[i]
	out = append(out, "slot "...)
	out = strconv.AppendInt(out, int64(i), 10)
	out = append(out, ' ')
	out = append(out, s.Role.String()...)
	if s.In {
		out = append(out, " in"...)
	}
	if s.Keep {
		out = append(out, " keep"...)
	}
	if s.In || s.Keep {
		out = append(out, ' ')
		out = appendRegion(out, h, s.Tensor, s.Set, s.Heads.Lo, s.Heads.Hi)
	}
	out = append(out, ' ')
	out = strconv.AppendInt(out, s.Bytes, 10)
	return append(out, " B\n"...)
}

// AppendOp adds the text of op i, without a line end.
func (p *Program) AppendOp(out []byte, h *Header, i int) []byte {
	op := &p.Ops[i]
	out = strconv.AppendInt(out, int64(i), 10)
	out = append(out, ' ')
	out = append(out, op.Kind.String()...)
	for _, a := range p.Args(i) {
		out = append(out, ' ', "rw+c?"[min(a.Access, 4)])
		out = appendRegion(out, h, a.Tensor, a.Set, a.Heads.Lo, a.Heads.Hi)
		out = append(out, "@s"...)
		out = strconv.AppendInt(out, int64(a.Slot), 10)
	}
	if op.Kind.Link() {
		arrow := " <-"
		if op.Kind == Send {
			arrow = " ->"
		}
		out = append(out, arrow...)
		out = strconv.AppendInt(out, int64(op.Peer), 10)
		out = append(out, '/')
		out = strconv.AppendInt(out, int64(op.Lane), 10)
	}
	out = append(out, " t"...)
	out = strconv.AppendInt(out, int64(op.Tick), 10)
	for k, d := range p.Deps(i) {
		if k == 0 {
			out = append(out, " after"...)
		}
		out = append(out, ' ')
		out = strconv.AppendInt(out, int64(d), 10)
	}
	return out
}

func appendRegion(out []byte, h *Header, t Tensor, set SetID, lo, hi int32) []byte {
	out = append(out, t.String()...)
	out = append(out, '[')
	out = append(out, nameOf(h.Names, int(set))...)
	out = append(out, " h"...)
	out = strconv.AppendInt(out, int64(lo), 10)
	out = append(out, ':')
	out = strconv.AppendInt(out, int64(hi), 10)
	return append(out, ']')
}
