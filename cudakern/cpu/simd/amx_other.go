//go:build !amd64 || noasm

package simd

func scoresAMX(dst, qt *float32, k *uint16, stride, n, steps, vecs int, scale float32) {
	AMX.absent()
}

func weighAMX(o, p, v *float32, steps, dims int, alpha *float32, vecs int) { AMX.absent() }

func outerAMX(c *float32, a *uint16, b *float32, n, width, steps int) { AMX.absent() }

func slopesAMX(s, d *float32, ds *uint16, see *uint64, n int, lse, mean *float32, by float32,
	vecs int,
) {
	AMX.absent()
}

func peakAMX(rounds int) { AMX.absent() }
