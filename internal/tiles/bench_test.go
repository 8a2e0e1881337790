package tiles

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkProduct(b *testing.B) {
	s := &State{}
	if err := s.configure(whole()); err != nil {
		b.Fatal(err)
	}
	for t := 1; t < 3; t++ {
		for r := range 16 {
			for i := range 32 {
				s.tiles[t][r][2*i+1] = 0x3F
				s.tiles[t][r][2*i] = byte(rand.Uint32())
			}
		}
	}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			s.multiply(0, 1, 2)
		}
	})
	s.tiles[2][0] = [64]byte{1: 0x01}
	b.Run("exact", func(b *testing.B) {
		for b.Loop() {
			s.multiply(0, 1, 2)
		}
	})
}
