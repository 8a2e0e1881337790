//go:build !linux || !amd64

package tiles

import (
	"fmt"
	"os/exec"
	"runtime"
)

func run(*exec.Cmd) (Stats, error) {
	return Stats{}, fmt.Errorf("%w: it takes linux/amd64, not %s/%s", ErrUnavailable,
		runtime.GOOS, runtime.GOARCH)
}
