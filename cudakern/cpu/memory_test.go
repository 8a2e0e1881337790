package cpu_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"pgregory.net/rapid"
)

var _ cudakern.Memory = (*cpu.Arena)(nil)

func TestArenaAgainstModel(t *testing.T) {
	type kept struct {
		h    cudakern.Handle
		refs int
		mark float64
	}
	rapid.Check(t, func(t *rapid.T) {
		a := cpu.NewArena(3, 0)
		var live []kept
		var now, peak int64
		mark := 0.0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			what, pick := rapid.IntRange(0, 3).Draw(t, "what"), 0
			if len(live) > 0 {
				pick = rapid.IntRange(0, len(live)-1).Draw(t, "which")
			}
			switch {
			case what < 2 || len(live) == 0:
				n := rapid.Int64Range(1, 5000).Draw(t, "bytes")
				h, err := a.Take(n)
				if err != nil || h.Len != n {
					t.Fatalf("took %d: %+v, %v", n, h, err)
				}
				mark++
				data := cpu.Floats[float64](a, h)
				if int64(len(data)) != n/8 {
					t.Fatalf("%d bytes are %d elements", n, len(data))
				}
				if p := unsafe.Pointer(unsafe.SliceData(data)); n >= 8 && uintptr(p)%64 != 0 {
					t.Fatalf("block at %v is not at a multiple of 64", p)
				}
				for i := range data {
					data[i] = mark
				}
				live = append(live, kept{h, 1, mark})
				now += n
				peak = max(peak, now)
			case what == 2:
				a.Share(live[pick].h)
				live[pick].refs++
			default:
				a.Free(live[pick].h)
				live[pick].refs--
				if live[pick].refs == 0 {
					now -= live[pick].h.Len
					live = append(live[:pick], live[pick+1:]...)
				}
			}
			if n, p := a.Held(); n != now || p != peak {
				t.Fatalf("held %d, at most %d: want %d and %d", n, p, now, peak)
			}
			for _, k := range live {
				if n := a.Holders(k.h); n != k.refs {
					t.Fatalf("%d holders, want %d", n, k.refs)
				}
				for _, x := range cpu.Floats[float64](a, k.h) {
					if x != k.mark {
						t.Fatalf("a block that holds %v was overwritten with %v", k.mark, x)
					}
				}
			}
		}
	})
}

func TestStaleHandlesPanic(t *testing.T) {
	a := cpu.NewArena(1, 0)
	old, _ := a.Take(100)
	a.Free(old)
	again, _ := a.Take(100)
	other, _ := cpu.NewArena(2, 0).Take(100)
	outside := again
	outside.Off = 8
	for name, h := range map[string]cudakern.Handle{
		"freed, and its memory given out again": old, "of another space": other,
		"zero": {Space: 1}, "beyond its block": outside,
	} {
		for verb, f := range map[string]func(cudakern.Handle){
			"share": a.Share, "free": a.Free,
			"holders": func(h cudakern.Handle) { a.Holders(h) },
			"floats":  func(h cudakern.Handle) { cpu.Floats[float32](a, h) },
		} {
			if !panics(func() { f(h) }) {
				t.Errorf("%s of a handle that is %s passed", verb, name)
			}
		}
	}
	part := cudakern.Handle{Space: 1, ID: again.ID, Off: 16, Len: 8}
	if x := cpu.Floats[float32](a, part); len(x) != 2 {
		t.Errorf("8 bytes from the middle of a block are %d elements", len(x))
	}
	if now, _ := a.Held(); now != 100 {
		t.Errorf("%d bytes held, want 100", now)
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

func TestMemoryLimit(t *testing.T) {
	a := cpu.NewArena(0, 1<<16)
	first, err := a.Take(1 << 15)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Take(1<<15 + 1)
	want := fmt.Sprintf("limit of %d bytes reached: %d are held and %d more", 1<<16, 1<<15, 1<<15+1)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("over the limit: %v, want %q", err, want)
	}
	if _, err := a.Take(1 << 15); err != nil {
		t.Errorf("up to the limit: %v", err)
	}
	// Idle memory of another size gives way.
	a.Free(first)
	if _, err := a.Take(1 << 14); err != nil {
		t.Errorf("with idle memory that does not fit: %v", err)
	}
	for _, n := range []int64{0, -1, 1 << 50} {
		if _, err := a.Take(n); err == nil {
			t.Errorf("a block of %d bytes was given", n)
		}
	}
}

func TestArenaReuses(t *testing.T) {
	a := cpu.NewArena(0, 0)
	round := func() {
		var hs [20]cudakern.Handle
		for i := range hs {
			hs[i], _ = a.Take(int64(1000 * (i + 1)))
		}
		for _, h := range hs {
			a.Free(h)
		}
	}
	round()
	if n := testing.AllocsPerRun(10, round); n != 0 {
		t.Errorf("%v allocations in a steady state", n)
	}
}

func TestArenaAtOnce(t *testing.T) {
	a := cpu.NewArena(0, 0)
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			for i := range 200 {
				h, err := a.Take(int64(64 * (1 + (i+g)%7)))
				if err != nil {
					t.Error(err)
					return
				}
				data := cpu.Floats[float64](a, h)
				data[0] = float64(g)
				a.Share(h)
				a.Free(h)
				if data[0] != float64(g) {
					t.Error("two goroutines hold one block")
				}
				a.Free(h)
			}
		})
	}
	wait.Wait()
	if now, _ := a.Held(); now != 0 {
		t.Errorf("%d bytes held at the end", now)
	}
}
