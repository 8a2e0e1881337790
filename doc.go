// Package kvloom is the embedding API and the live composition root: it opens a gang of rank
// actors in this process, shards tensors over them, runs forward and backward rounds, and puts the
// results together.
//
//	Open ──> [scheduler] ──grants──> [rank 0] [rank 1] ... machines on protoactor-go
//	                                    │ launches          │ puts, posts
//	Load: q k v do ──shards──>       [device 0: 3 streams] [link 0: hand-over]
//	Run: forward, backward              └── one worker pool for all ranks ──┘
//	Results: out lse dq dk dv <──homes──┘
//
// Duties of the caller: Close every Session; call Run and Load of one Session from one goroutine at
// a time (a lock keeps the rest out); keep no reference to a result that a later round of the same
// state writes (Results copies, so its arrays are yours).
//
// Invariants:
//
//	K1  A plan is verified before a round of it runs.
//	K2  Run returns: every wait below it has a deadline, and the error names rank, link and op.
//	K3  After a failed Run the next one runs in a new epoch; inputs of the failed round are intact.
//	K4  Ranks share no array with the caller or with one another, but for blocks on their way
//	    that nobody writes.
//	K5  Nothing outside the Session changes: no globals, loggers, signals or environment.
//
// Concurrency: a Session may be closed from any goroutine. Sessions are independent.
package kvloom
