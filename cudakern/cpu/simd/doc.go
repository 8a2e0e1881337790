// Package simd holds the vector kernels of the CPU device.
package simd
