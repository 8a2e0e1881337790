// Package trace writes timelines as trace-event JSON, the form that Perfetto (ui.perfetto.dev) and
// chrome://tracing open. It knows processes, tracks and slices; what they mean is its caller's.
//
//	{"displayTimeUnit":"ns","traceEvents":[
//	{"ph":"M","pid":1,"name":"process_name","args":{"name":"rank 0"}},          Process
//	{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"compute"}},  Track
//	{"ph":"X","pid":1,"tid":1,"ts":2.500,"dur":1.000,"name":"attend","args":{}} Slice
//	]}
//
//	process  rank 0
//	  track    compute  |[attend 12  ][attend 15  ]   |       slices of a track do not overlap
//	  track    in       |    [accumulate 14]          |
//
// Times are given as nanoseconds and written as microseconds with three decimals, which loses
// nothing. What is written follows from the calls alone, byte for byte.
//
// # Duties of the caller
//
// A slice is written as soon as it is given, so a trace of any length takes no memory. Slices of a
// track come in the order of their beginnings and must not overlap: draw what can overlap on tracks
// of its own. Call Close; look at its error, which is the first that occurred.
//
// # Invariants
//
//	T1  What Close leaves behind is one valid JSON object, whatever names and texts contain
//	    (TestAnyTextIsValidJSON).
//	T2  The same calls write the same bytes (TestSameCallsSameBytes).
//	T3  A slice that begins before the one before it on its track has ended, or has a negative
//	    length, is refused, not written (TestOverlapIsRefused).
//	T4  After an error nothing more is written, and Close gives the error (TestBrokenWriter).
//
// # Concurrency
//
// A Writer belongs to one goroutine at a time.
package trace
