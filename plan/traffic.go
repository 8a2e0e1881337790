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
	NumClasses
)

// String is the class's name in JSON.
func (c Class) String() string {
	return [NumClasses]string{"a2a_forward", "kv_forward", "kv_backward", "dkv", "a2a_backward",
		"collective"}[c]
}

// ClassOf is the class of a transfer on a lane in a pass.
func ClassOf(pass Pass, lane int32) Class {
	switch {
	case lane == LaneCollective:
		return Collective
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
