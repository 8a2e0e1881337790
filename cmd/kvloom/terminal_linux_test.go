package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
	"unsafe"
)

// openTerminal makes a terminal: what is written to tty is what a person sees, and is read from
// screen.
func openTerminal(t *testing.T, columns uint16) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	var number, locked int32
	resize(t, screen, columns)
	control(t, screen, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	control(t, screen, syscall.TIOCGPTN, unsafe.Pointer(&number))
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { tty.Close() })
	return screen, tty
}

func resize(t *testing.T, f *os.File, columns uint16) {
	t.Helper()
	size := [4]uint16{24, columns, 0, 0}
	control(t, f, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
}

func control(t *testing.T, f *os.File, what uintptr, with unsafe.Pointer) {
	t.Helper()
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), what, uintptr(with)); e != 0 {
		t.Fatal(e)
	}
}

// TestColumns: a terminal that tells no width, or cannot draw lines anew, gets no bars.
func TestColumns(t *testing.T) {
	t.Setenv("TERM", "xterm")
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if columns(null) != 0 || columns(&bytes.Buffer{}) != 0 || (streams{err: null}).terminal() {
		t.Error("what is no terminal has a width")
	}
	_, tty := openTerminal(t, 0)
	if n := columns(tty); n != 0 || (streams{err: tty}).terminal() {
		t.Errorf("a terminal without a width has %d columns, or bars on it", n)
	}
	resize(t, tty, 72)
	if n := columns(tty); n != 72 || !(streams{err: tty}).terminal() {
		t.Errorf("%d columns, want 72 and bars on it", n)
	}
	t.Setenv("TERM", "dumb")
	if (streams{err: tty}).terminal() {
		t.Error("bars on a dumb terminal")
	}
}

// TestBarsOnATerminal reads what a narrow terminal is sent: the bar by its name, and the words
// about the first signal, over which bars must not draw.
func TestBarsOnATerminal(t *testing.T) {
	const wide = 50
	screen, tty := openTerminal(t, wide)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := newProgress(true, tty)
	s := p.stage(rankPasses, 8)
	listened := p.tellStop(ctx, false)
	seen := ""
	until := func(want string) {
		for buf := make([]byte, 1024); !strings.Contains(seen, want); {
			n, err := screen.Read(buf)
			seen += string(buf[:n])
			if err != nil {
				t.Fatalf("the terminal was not sent %q: %v, %q", want, err, seen)
			}
		}
	}
	until(rankPasses)
	cancel()
	listened()
	s.add(3)
	until("kvloom: stopping; interrupt again to kill\r\n")
	until("3/8")
	s.end()
	p.close()
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(screen) // ends with an error when the other end is closed
	escapes := regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	for line := range strings.SplitSeq(seen+string(rest), "\n") {
		line = strings.TrimSuffix(escapes.ReplaceAllString(line, ""), "\r")
		if n := utf8.RuneCountInString(line); n > wide {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
}
