package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestEveryKernelPath: whole problems on every path that this machine has, each checked against the
// oracle: a packed window on a mesh in f32 and bf16, gradients too.
func TestEveryKernelPath(t *testing.T) {
	for _, name := range []string{"portable", "avx2", "avx512", "avx512bf16"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(kernelsVariable, name)
			for _, dtype := range []string{"f32", "bf16"} {
				for _, more := range []string{
					"--mesh 2x3 --docs 0,100,100,333 --mask window:40,3 --heads 6 --kv-heads 3 " +
						"--dim 40",
					"--mesh 1x4 --tokens 513 --scheme passq --layout striped:16 --dim 64 " +
						"--v-dim 24",
					"--mesh 3x2 --tokens 300 --rotate q --layout balanced --heads 3 --dim 128",
				} {
					args := append(strings.Fields(more), "--dtype", dtype, "--backward", "--check",
						"--quiet")
					var out, errs bytes.Buffer
					code := run(t.Context(), append([]string{"attend"}, args...),
						streams{&out, &errs})
					if strings.Contains(errs.String(), "; use ") && code == exitRequest {
						t.Skip(errs.String())
					}
					if code != exitOK {
						t.Errorf("%v: exit code %d: %s%s", args, code, out.String(), errs.String())
					}
				}
			}
		})
	}
}
