package tidy

// latticeText says which packages of the module may import which. `a, b < c` lets c import a and
// b directly, and nothing that no line lets it. It is not transitive: each package's lines list
// all it may name. `X = a, b` names a set; p/... is p and all below it. kvloom is the root.
const latticeText = `
	L0 = internal/tensors, internal/safetensors, internal/trace;
	L1 = mesh, attn, actors, transport, cudakern;
	L2 = plan;
	BUILDERS = ringbus, headshuffle, collect;
	PURE = L1, L2, BUILDERS, balance, choose, rank, sched;

	HOSTS = actors/live, sim;
	LINKS = transport/inproc;
	DEVICES = cudakern/cpu;
	KERNELS = cudakern/cpu/kernel, cudakern/cpu/simd;
	WORLDS = HOSTS, LINKS, DEVICES, KERNELS;

	L6 = cmd/kvloom/..., train/..., examples/..., integration/...;

	# The laws themselves: no code, so no imports, and nobody imports them.
	NONE < internal/tidy;

	# An interpreter for instructions that the processor lacks: for tests, so nobody imports it.
	NONE < internal/tiles;

	# L1: vocabulary and contracts.
	NONE < mesh, actors;
	mesh < attn;
	mesh, actors < transport, cudakern;

	# L0: plain services for worlds and roots. They may speak the vocabulary.
	L1 < L0;
	internal/tensors < internal/safetensors;

	# L2 to L4, pure.
	mesh, attn < plan, balance;
	mesh, attn, plan < BUILDERS;
	mesh, attn, plan, ringbus, headshuffle, balance < choose;
	mesh, plan, actors, transport, cudakern < rank;
	mesh, plan, actors < sched;

	# Worlds. Hosts run the machines; links and devices answer them.
	L0, L1, L2, BUILDERS, rank, sched < HOSTS;
	L0, L1, L2 < LINKS, DEVICES;
	KERNELS < cudakern/cpu;
	mesh, attn, cudakern < KERNELS;
	cudakern/cpu/kernel < cudakern/cpu/simd;

	# L5: the live composition root.
	L0, PURE, actors/live, LINKS, DEVICES, KERNELS < kvloom;

	# L6: anything.
	L0, PURE, WORLDS, kvloom, L6 < L6;
`

// ban is one reason why importers may not import what; the first that fits a pair is printed.
type ban struct{ importers, what, reason string }

// bans has a reason for every pair that the lattice leaves out; TestEveryBanHasAReason walks them.
func bans() []ban {
	return []ban{
		{"ALL", "internal/tidy", "it holds tests only"},
		{"internal/tidy", "ALL", "it judges the packages from outside, by reading their files"},
		{"ALL", "internal/tiles",
			"it runs tests whose instructions the processor lacks; only their files import it"},
		{"internal/tiles", "ALL", "it knows instructions and processes, nothing of this project"},
		{"ALL", "L6",
			"commands, examples and whole-system tests compose; nothing is built on them"},
		{"sim", "kvloom",
			"the root is the live composition root: with it the simulator would pull in " +
				"clocks and goroutines; cmd and integration see both"},
		{"kvloom", "sim",
			"an embedder's binary must not carry the simulator; cmd and integration see both"},
		{"ALL", "kvloom",
			"the root composes what lies below it; used from below it would be a cycle"},
		{"PURE", "WORLDS",
			"a pure package runs unchanged in every world; with one inside it could run in " +
				"that one only. Ask for it by a message or an interface"},
		{"PURE", "L0",
			"internal packages may do input and output, so a pure package could be impure " +
				"through them. Pass plain values in"},
		{"WORLDS", "WORLDS",
			"a world is chosen by a composition root; one that names another can no longer be " +
				"exchanged alone"},
		{"rank", "BUILDERS",
			"a worker runs any program; a branch for rings or exchanges would tie it to " +
				"today's schemes"},
		{"rank", "attn", "a worker moves ops, it does no attention; arithmetic is its device's"},
		{"rank", "sched",
			"rank and scheduler meet only through envelopes, so each is tested alone"},
		{"sched", "rank",
			"rank and scheduler meet only through envelopes, so each is tested alone"},
		{"sched", "attn, transport, cudakern",
			"the control plane carries handles and ids, never tensors: the scheduler needs no " +
				"arithmetic, links or devices"},
		{"sched", "BUILDERS",
			"the scheduler grants rounds of any plan; who built it is not its concern"},
		{"ringbus", "headshuffle", "the two axes are independent; plan puts them together"},
		{"headshuffle", "ringbus", "the two axes are independent; plan puts them together"},
		{"collect", "ringbus, headshuffle", "a collective is a plan of its own, not of attention"},
		{"ringbus, headshuffle", "collect", "attention's plans need no collective"},
		{"plan", "BUILDERS",
			"Verify must not trust a builder's own code; builders hand themselves in"},
		{"plan, BUILDERS", "actors, transport, cudakern",
			"a program is data: it does not know who runs it, over what, or when"},
		{"plan, BUILDERS", "rank, sched",
			"a program is data: machines read it, it knows no machine"},
		{"balance", "L2, BUILDERS, rank, sched, actors, transport, cudakern",
			"tokens are dealt before there is a plan, by the mask alone"},
		{"choose", "collect, rank, sched, actors, transport, cudakern",
			"a choice prices plans of attention; it runs none and knows nobody who does"},
		{"PURE, WORLDS", "choose",
			"a plan comes as a value: how it was chosen is the concern of whoever asks for it, " +
				"a root or a command"},
		{"PURE, WORLDS", "balance",
			"a layout comes as a value (mesh.Layout): how it was found is the concern of whoever " +
				"asks for it, a root or a command"},
		{"L1", "L2, BUILDERS, rank, sched",
			"vocabulary and contracts lie below all who speak them"},
		{"mesh, actors", "L1", "the lowest words: geometry and machines know nothing else"},
		{"attn", "actors, transport, cudakern",
			"the oracle is plain mathematics on slices; it must stay obvious"},
		{"transport", "attn, cudakern",
			"a link moves bytes behind handles; what they mean and where they live is said by " +
				"others"},
		{"cudakern", "attn, transport",
			"the device contract names kernels and memory; mathematics and links are others' " +
				"contracts"},
		{"L0", "ALL",
			"internal services are lowest: they may speak the vocabulary (L1), nothing above; " +
				"among them only files (safetensors) know values (tensors)"},
		{"LINKS, DEVICES", "BUILDERS, rank, sched",
			"a link or a device answers messages; it does not know which machine asks or how " +
				"its program was built"},
		{"KERNELS", "ALL",
			"a kernel is a function of arrays and a mask; launches, memory and plans are the " +
				"device's"},
	}
}

// impure has the standard packages that a pure package may not import, each with what lies below
// it (sync also stands for sync/atomic), and why.
func impure() []ban {
	return []ban{
		{"PURE", "time",
			"a machine is told the time (int64 nanoseconds in Step); a clock of its own runs " +
				"on in virtual time and makes two runs differ"},
		{"PURE", "sync",
			"a machine is stepped by one caller at a time; a lock means that somebody else " +
				"touches its state, or that Step can block. This covers sync/atomic"},
		{"PURE", "context",
			"cancelling and deadlines are messages (abort, timer), so that they are ordered, " +
				"replayed and named like all others"},
		{"PURE", "net", "the network is an address that answers messages: a world of transport"},
		{"PURE", "os", "files, environment, processes: only worlds and commands have them"},
		{"PURE", "syscall", "system calls belong to worlds"},
		{"PURE", "math/rand",
			"the same state and input give the same output; draw in the world, with its seed, " +
				"and pass the number in. This covers math/rand/v2"},
		{"PURE", "crypto/rand",
			"the same state and input give the same output; this differs each time"},
		{"PURE", "hash/maphash",
			"its seed differs in each process, so digests would not compare"},
		{"PURE", "unsafe", "memory belongs to a world; pure code sees handles and typed slices"},
		{"PURE", "C",
			"the default build has no cgo, and C code can block, allocate and keep state"},
		{"PURE", "runtime",
			"results must not depend on cores, stacks or the collector: split points come " +
				"from shapes, never from how many threads there are"},
		{"PURE", "log",
			"a machine reports by messages; writing is an effect the simulator would repeat " +
				"at each replay. This covers log/slog"},
	}
}

// outside is where each third-party module may be imported by files that are not tests, and why
// not elsewhere. Tests may import any of them. docs/dependencies.md has a row for each.
func outside() []ban {
	const testsOnly = "it serves tests only; users should not have to build it"
	const hosts = "events are reported by messages and logged by hosts, in one place and one form"
	const display = "what a terminal shows is the command's business; others return values"
	return []ban{
		{"actors/live", "github.com/asynkron/protoactor-go",
			"machines and other worlds meet actors through the package actors, so that the " +
				"library can be replaced in one folder"},
		{"actors/live, kvloom, L6", "go.uber.org/zap/exp", hosts},
		{"actors/live, kvloom, L6", "go.uber.org/zap", hosts},
		{"L6", "github.com/spf13/cobra",
			"flags are read by the command; others are given values"},
		{"L6", "github.com/spf13/pflag",
			"flags are read by the command; others are given values"},
		{"L6", "github.com/jedib0t/go-pretty/v6", display},
		{"L6", "github.com/vbauerster/mpb/v8", display},
		{"L6", "go.yaml.in/yaml/v3",
			"files that people write are decoded by the command; others are given values"},
		{"NONE", "pgregory.net/rapid", testsOnly},
		{"NONE", "go.uber.org/goleak", testsOnly},
		{"NONE", "github.com/google/go-cmp", testsOnly},
		{"NONE", "github.com/rogpeppe/go-internal", testsOnly},
	}
}
