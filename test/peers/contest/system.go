package contest

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Task is what a system is to keep. Body tells its number.
type Task struct {
	Body string
	Due  time.Time // by this machine's clock, which is that of all servers too; the past: at once
}

// System is one that is measured, on servers of its own.
type System interface {
	// Insert stores a batch of at most Entry.Batch tasks; safe for concurrent use.
	Insert(ctx context.Context, batch []Task) error
	// Start lets deliveries begin, to Setup.Deliver. It is called after the system was opened or paused.
	Start(ctx context.Context) error
	// Pause returns when no delivery is under way and none will begin before the next Start.
	Pause(ctx context.Context) error
	// Quiet reports whether the outcome of everything delivered is stored. It is asked every few milliseconds.
	Quiet(ctx context.Context) (bool, error)
	// Settled counts, in the store, the tasks that are done since the system was opened.
	Settled(ctx context.Context) (int, error)
	// Facts says what was measured.
	Facts() Facts
	// Close ends the system and its servers and removes what they stored.
	Close() error
}

// Warmer is a System that is slower for a while after its first Start than later.
type Warmer interface {
	// Warm returns when the while is over.
	Warm(ctx context.Context) error
}

// Facts is what a reader has to know of a system's figures.
type Facts struct {
	Version    string `json:"version"`    // of the server and of the library
	Durability string `json:"durability"` // what a stored task survives
	Tuning     string `json:"tuning"`
	Settled    string `json:"settled"` // how the end of a drain is known
}

// Entry is a system that may be measured.
type Entry struct {
	Name      string
	Open      func(context.Context, Setup) (System, error) // with fresh servers; a server that is not installed is one line that says so
	Batch     int                                          // tasks of an Insert; 0: 1,000
	Inserters int                                          // goroutines that insert; 0: 8
	Workers   bool                                         // it heeds Setup.Workers
}

// Setup is what a system has to know before it starts its servers.
type Setup struct {
	Deliver func(body string) // takes every delivery; safe for concurrent use
	Layout  tocsin.Layout     // of Tocsin's tables
	Tasks   int               // rows that will be stored, about: sizes memory
	Workers int               // each delivers one task at a time; 0: as suits the system best
	Strict  bool              // every write reaches the disk before it is answered, also where the system's default is less
}

// Library is the version of a module in this program, "unknown" of one that is
// not in it.
func Library(path string) string {
	info, _ := debug.ReadBuildInfo() // nil where there is none
	if info == nil {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
}
