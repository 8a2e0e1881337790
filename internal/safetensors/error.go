package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
)

// Error says what is wrong with which file. Err is the cause beneath, if there was one: a missing
// file is found with errors.Is(err, fs.ErrNotExist).
type Error struct {
	File    string // path, or the name given to New
	Tensor  string // empty when it concerns the whole file
	Problem string
	Err     error
}

// Error gives file, tensor, problem and cause in one line.
func (e *Error) Error() string {
	s := "safetensors: " + e.File + ": "
	if e.Tensor != "" {
		s += "tensor " + short(e.Tensor) + ": "
	}
	s += e.Problem
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// caused wraps err, without the path that errors of package os repeat.
func caused(file, problem string, err error) *Error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return &Error{File: file, Problem: problem, Err: err}
}

// short quotes a name of a file, which may be millions of bytes long, for a message.
func short(name string) string {
	const limit = 80
	if len(name) <= limit {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%.*q... (%d bytes)", limit, name, len(name))
}
