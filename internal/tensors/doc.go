// Package tensors owns what every side of a run must agree on about a tensor's numbers: the
// element types, their little-endian bytes, the digest of those bytes, and the standard normal
// values that stand in for inputs when no file is given.
//
//	(seed, name) --fnv, mix--> key --mix(key + i*gamma)--> words --Box-Muller--> N(0,1)
//	                                                                               |
//	                              rank 0 draws [0,k)   rank 1 draws [k,n)   <-- any cut, same values
//	                                                                               |
//	    []T --Append--> little-endian bytes --sha256--> digest                  T(value)
//	    []T <--Decode-- little-endian bytes
//
// # The values of Draw
//
// Value i of the tensor called name under seed depends on nothing else: not on the mesh, the
// layout, the order of calls or the machine. All arithmetic on words is modulo 2^64:
//
//	gamma   = 0x9e3779b97f4a7c15
//	mix(z)  : z ^= z>>30; z *= 0xbf58476d1ce4e5b9; z ^= z>>27; z *= 0x94d049bb133111eb; z ^= z>>31
//	key     = mix(mix(seed + gamma) ^ FNV-1a-64(bytes of name))
//	word(j) = mix(key + (j+1)*gamma)
//	u       = (word(2p) >> 11) + 1, times 2^-53, in (0,1]
//	v       = (word(2p+1) >> 11), times 2^-53, in [0,1)
//	value 2p   = sqrt(-2 ln u) cos(2 pi v)
//	value 2p+1 = sqrt(-2 ln u) sin(2 pi v)
//
// which is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) used as a counter and the transform of
// Box and Muller (1958). Two names' streams share words only if their keys lie less than n steps
// of gamma apart, a chance of about n / 2^63 for n values. No value is larger than 8.58 in size.
// The arithmetic is float64 and the result is rounded once to T; bf16 values are the float32 ones
// rounded once more (RoundBF16).
//
// # Duties of the caller
//
// Names of tensors that must be independent must differ, and a destination is as long as the
// range asked for. A slice must not be written while a function of this package reads it.
//
// # Invariants
//
//  1. Draw(seed, name, n)[lo:hi] has the bits of DrawRange(seed, name, lo, hi, dst).
//  2. The bits are the same on every architecture: ln, sin and cos are this package's own, and
//     no product is fused with a sum.
//  3. Append then Decode with the element's own dtype gives back every bit, NaNs included.
//  4. Digest hashes exactly the bytes that Append writes, so a digest equals the sha256 of the
//     tensor's bytes in a file.
//  5. A NaN stays a NaN in bf16, and rounding is to nearest, ties to even.
//
// # Concurrency
//
// No state: every function may be called from any number of goroutines.
package tensors
