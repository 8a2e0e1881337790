// Package safetensors owns kvloom's files: it reads and writes the safetensors format (Hugging
// Face, format of 2022) as plain bytes, checks all that a file claims before a number of it is
// used, and never leaves a half-written file behind.
//
//	0        8                        8+N                                              size
//	+--------+------------------------+------------+----------------+-----------+-------+
//	| N, u64 | JSON header, padded    | tensor b   | tensor a       | ...       |       |
//	| LE     | with spaces            | [0, e1)    | [e1, e2)       |           | size) |
//	+--------+------------------------+------------+----------------+-----------+-------+
//	          {"__metadata__":{"k":"v"},
//	           "b":{"dtype":"F64","shape":[97,4],"data_offsets":[0,3104]}, "a":...}
//
//	Open / New --check everything--> File --Read[T], ReadRange[T]--> []T, a copy
//	                                      --View[T]----------------> []T, in the file's own memory
//	[]Field --Encode--> bytes;  Write: folder/.name...tmp --sync, rename--> folder/name
//
// A tensor of a dtype that kvloom does not compute with, or does not even know, may lie in a
// file; only asking for its numbers is an error. Its byte range is still checked, and so is its
// shape when the dtype's size is known.
//
// On Linux a file is mapped into memory, elsewhere it is read by calls: then a view is a copy. A
// header may come from anyone: a scanner reads it once, within the limits MaxHeaderBytes,
// MaxTensors and MaxDims, and keeps names, shapes and metadata without other garbage. Package
// encoding/json, its twin in the tests, allocates for each number of a header.
//
// # Duties of the caller
//
// Close what Open gave, and touch no view after that. Do not let the file change while it is open:
// what was checked would no longer hold. A file cut short meanwhile gives an error from Read and
// ReadRange, not wrong numbers; one overwritten in place gives the new numbers. A view is memory:
// see there what it does when the file is cut short. Data given to a Field is not written to until
// Write or Encode is back.
//
// # Invariants
//
//  1. A File exists only if its header is at most MaxHeaderBytes, valid UTF-8 and JSON, has no
//     name twice (tensors, keys of a tensor, metadata), names at most MaxTensors tensors, and its
//     tensors' ranges tile the data from its first byte to the end of the file: no overlap, no
//     hole, nothing missing or over.
//  2. For each tensor of a known dtype, range, shape (at most MaxDims long) and dtype agree; the
//     products are checked for overflow.
//  3. Reading a header takes time in proportion to its length, and memory of at most 12 times that,
//     whatever it says; reading a tensor takes no more than its range, which lies inside the file.
//  4. No alignment is asked of a file: a view of elements that lie askew is a copy.
//  5. What Write writes depends on its arguments alone: wider dtypes first, then by name, so
//     that every tensor is aligned to its element; metadata by key. What it writes can be read.
//  6. After Write the path holds the whole new file or, with an error, what it held before.
//  7. Every error is an *Error, naming the file, the tensor if there is one, and the value.
//  8. A fault on mapped memory never leaves Read or ReadRange; it is an error there.
//
// # Concurrency
//
// A File is not changed after Open or New; any number of goroutines may read it, if its
// io.ReaderAt allows that as the interface demands. Close comes after the last read and after the
// last look at a view.
package safetensors
