package plan

// Class groups transfers for counting: what the JSON and the tables show.
type Class uint8

// The classes of traffic.
const (
	A2AForward Class = iota
	KVForward
	KVBackward
	DKVHops
	A2ABackward
	Collective
	QForward
	PartForward
	QBackward
	DQHops
	NumClasses
)

// String is the class's name in JSON.
func (c Class) String() string {
	return [NumClasses]string{"a2a_forward", "kv_forward", "kv_backward", "dkv", "a2a_backward",
		"collective", "q_forward", "part_forward", "q_backward", "dq"}[c]
}

// ClassOf is the class of a transfer on a lane in a pass.
func ClassOf(pass Pass, lane int32) Class {
	switch {
	case lane == LaneCollective:
		return Collective
	case lane == LaneQ || lane == laneQ2:
		if pass == Backward {
			return QBackward
		}
		return QForward
	case lane == LanePart || lane == lanePart2:
		return PartForward
	case lane == LaneDQ || lane == laneDQ2:
		return DQHops
	case lane == LaneDKV || lane == laneDKV2:
		return DKVHops
	case (lane == LaneKV || lane == laneKV2) && pass == Backward:
		return KVBackward
	case lane == LaneKV || lane == laneKV2:
		return KVForward
	case pass == Backward:
		return A2ABackward
	}
	return A2AForward
}
