package cpu

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern"
)

const (
	wordBytes  = 8
	alignWords = 8 // 64 bytes: a cache line, and the widest vector
	indexBits  = 20
	maxBlocks  = 1 << indexBits
	maxBytes   = 1 << 46
	numClasses = 320 // classOf(maxBytes) is below
)

// Arena is the memory of a world: blocks of bytes at multiples of 64, each with a count of its
// holders. What the last holder gives up is kept by size class and given out again, so that a
// steady state allocates nothing. All methods may be called at the same time.
//
//	blocks  [0: 2 holders][1: free][2: 1 holder]...      a handle is (space, generation, index)
//	idle    class 64 B: []  ...  class 4096 B: [mem mem]  ...      8 classes to a doubling
type Arena struct {
	space uint32
	limit int64

	mu       sync.Mutex
	blocks   []block
	unused   []uint32 // indices of blocks without memory
	idle     [numClasses][][]uint64
	held     meter
	resident int64 // of blocks and of idle memory, as rounded up to classes
}

// block is one entry of the table; gen is another at each life, so that old handles are found.
type block struct {
	words []uint64
	bytes int64
	refs  int32
	class int32
	gen   uint32
}

// meter counts what is there now, and the most there ever was.
type meter struct{ now, peak int64 }

func (m *meter) add(n int64) {
	m.now += n
	m.peak = max(m.peak, m.now)
}

// NewArena makes the memory of address space space. With limit > 0 it never has more than so many
// bytes from the system, idle memory counted.
func NewArena(space uint32, limit int64) *Arena { return &Arena{space: space, limit: limit} }

// Take gives bytes bytes to one holder. What they hold is undefined. The error says the limit, what
// is held, what was asked and what to do.
func (a *Arena) Take(bytes int64) (cudakern.Handle, error) {
	if bytes < 1 || bytes > maxBytes {
		return cudakern.Handle{}, fmt.Errorf("memory: a block of %d bytes was asked: ask for 1 to "+
			"%d", bytes, int64(maxBytes))
	}
	class, words := classOf((bytes + wordBytes - 1) / wordBytes)
	a.mu.Lock()
	defer a.mu.Unlock()
	mem, err := a.memory(class, words, bytes)
	if err != nil {
		return cudakern.Handle{}, err
	}
	i, err := a.entry()
	if err != nil {
		a.idle[class] = append(a.idle[class], mem)
		return cudakern.Handle{}, err
	}
	b := &a.blocks[i]
	*b = block{words: mem, bytes: bytes, refs: 1, class: int32(class), gen: b.gen}
	a.held.add(bytes)
	return cudakern.Handle{Space: a.space, ID: b.gen<<indexBits | i, Len: bytes}, nil
}

// memory finds idle memory of a class, or asks the system for some.
func (a *Arena) memory(class int, words, asked int64) ([]uint64, error) {
	if n := len(a.idle[class]); n > 0 {
		mem := a.idle[class][n-1]
		a.idle[class][n-1] = nil
		a.idle[class] = a.idle[class][:n-1]
		return mem, nil
	}
	size := words * wordBytes
	if a.limit > 0 && a.resident+size > a.limit {
		a.dropIdle()
	}
	if a.limit > 0 && a.resident+size > a.limit {
		return nil, fmt.Errorf("memory limit of %d bytes reached: %d are held and %d more were "+
			"asked: raise the limit, or spread the tokens over more ranks", a.limit, a.held.now,
			asked)
	}
	a.resident += size
	return aligned(words), nil
}

// aligned makes words words at a multiple of 64 bytes.
func aligned(words int64) []uint64 {
	raw := make([]uint64, words+alignWords-1)
	past := uintptr(unsafe.Pointer(unsafe.SliceData(raw))) / wordBytes % alignWords
	skip := (alignWords - int64(past)) % alignWords
	return raw[skip : skip+words : skip+words]
}

// dropIdle gives idle memory back to the collector.
func (a *Arena) dropIdle() {
	for class := range a.idle {
		for _, mem := range a.idle[class] {
			a.resident -= int64(len(mem)) * wordBytes
		}
		a.idle[class] = nil
	}
}

// entry is the index of a block without memory.
func (a *Arena) entry() (uint32, error) {
	if n := len(a.unused); n > 0 {
		i := a.unused[n-1]
		a.unused = a.unused[:n-1]
		return i, nil
	}
	if len(a.blocks) == maxBlocks {
		return 0, fmt.Errorf("memory: the limit of %d blocks at a time is reached: use fewer "+
			"ranks or slots in one process", maxBlocks)
	}
	a.blocks = append(a.blocks, block{gen: 1})
	return uint32(len(a.blocks) - 1), nil
}

// Share counts one more holder of a block that nobody writes any more. Like Free it panics when the
// handle's block is already free: that is a mistake of the caller, and to go on would be to
// overwrite another's block.
func (a *Arena) Share(h cudakern.Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resolve(h).refs++
}

// Free gives up one holder's claim; the last one's makes the memory idle.
func (a *Arena) Free(h cudakern.Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.resolve(h)
	b.refs--
	if b.refs > 0 {
		return
	}
	a.held.add(-b.bytes)
	a.idle[b.class] = append(a.idle[b.class], b.words)
	a.unused = append(a.unused, h.ID%maxBlocks)
	b.words, b.gen = nil, b.gen%(1<<(32-indexBits)-1)+1
}

// Held is the bytes taken now, as they were asked for, and the most there ever were.
func (a *Arena) Held() (now, peak int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held.now, a.held.peak
}

// Holders is how many hold a block.
func (a *Arena) Holders(h cudakern.Handle) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int(a.resolve(h).refs)
}

// resolve finds a handle's block.
func (a *Arena) resolve(h cudakern.Handle) *block {
	i, gen := h.ID%maxBlocks, h.ID>>indexBits
	if h.Space != a.space || int(i) >= len(a.blocks) {
		panic(fmt.Sprintf("memory: handle %+v is not of space %d", h, a.space))
	}
	b := &a.blocks[i]
	if b.gen != gen || b.refs < 1 {
		panic(fmt.Sprintf("memory: handle %+v is stale: its block was freed", h))
	}
	if h.Off < 0 || h.Len < 0 || h.Off > b.bytes-h.Len {
		panic(fmt.Sprintf("memory: handle %+v is outside its block of %d bytes", h, b.bytes))
	}
	return b
}

// Bytes is the memory of a handle.
func (a *Arena) Bytes(h cudakern.Handle) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.resolve(h)
	all := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(b.words))), b.bytes)
	return all[h.Off : h.Off+h.Len : h.Off+h.Len]
}

// Floats is the memory of a handle as elements of T. Its offset must be a multiple of their size.
func Floats[T attn.Float](a *Arena, h cudakern.Handle) []T {
	if size := elemBytes[T](); h.Off%size != 0 {
		panic(fmt.Sprintf("memory: handle %+v does not begin at an element of %d bytes", h, size))
	}
	return cast[T](a.Bytes(h))
}

// classOf is the size class of a block and the words that blocks of it have: multiples of 8 words
// up to 64, from there on eight classes to a doubling, so that at most an eighth is wasted.
func classOf(words int64) (class int, size int64) {
	if words <= 8*alignWords {
		class = int(words-1) / alignWords
		return class, int64(class+1) * alignWords
	}
	top := bits.Len64(uint64(words - 1)) // 2^(top-1) < words <= 2^top, top >= 7
	floor := int64(1) << (top - 1)
	step := floor / 8
	i := (words - 1 - floor) / step
	return (top-6)*8 + int(i), floor + (i+1)*step
}
