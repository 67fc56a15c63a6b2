package outbox

import (
	"context"
	"errors"
	"time"
)

// Driver opens outboxes on another kind of server than MySQL and MariaDB. Package tocsinpg has the one for PostgreSQL, package
// tocsinkafka the one for topics of Kafka.
type Driver interface {
	// Check returns the first mistake in a config. It connects to nothing.
	Check(cfg Config) error
	// Open makes what is needed to reach the outbox. It connects to nothing.
	Open(cfg Config) (Server, error)
}

// Server is the server of one outbox, with the outbox's table. Safe for concurrent use.
type Server interface {
	// Session connects and reads the outbox's identity. The caller closes the session. A relay has three at once.
	Session(ctx context.Context) (*Session, error)
	// List returns the first rows with ids above after, at most limit: all, or those that were set aside. It ends early after
	// the row that reaches PageBytes: see Full.
	List(ctx context.Context, after uint64, limit int, stuck bool) ([]Row, error)
	// Retry lets relays move rows that were set aside: those with the ids, or all. It returns their number.
	Retry(ctx context.Context, ids []uint64, all bool) (int, error)
	// Drop deletes rows that were set aside: those with the ids, or all. It returns their number.
	Drop(ctx context.Context, ids []uint64, all bool) (int, error)
	// String names the outbox in errors: "outbox shop.tocsin_outbox on db1:3306".
	String() string
	// Close closes the connections.
	Close() error
}

// Parted is a Server of several outboxes, as the partitions of a topic are. A relay relays its parts, and closes it after them.
type Parted interface {
	Server
	// Parts connects, and returns the outboxes that there are by now. A later call may return more, behind these.
	Parts(ctx context.Context) ([]*Outbox, error)
}

// Session is one connection to an outbox, for one goroutine. The lock of Lead ends with it.
type Session struct {
	Identity string // of the outbox
	Conn

	// Patience is for outboxes whose rows nobody can retry: SetAside removes them, and rows behind them go on. It is how long a row is
	// tried again before that while its biz type is unknown. 0: rows that were set aside stay.
	Patience time.Duration
	// Waiting returns how many rows are not deleted, as far as the session that leads has heard. nil: it is not known.
	Waiting func() uint64
}

// Errors of a Conn that a relay knows. Any other ends its turn.
var (
	// ErrNotLeading says that another relay may be active by now, as planned.
	ErrNotLeading = errors.New("another relay may be active by now")
	// ErrLater says that the answer has to wait, and that the relay may go on without it.
	ErrLater = errors.New("the outbox can't answer now")
	// ErrRewound says that the outbox has rows again that were moved before, and that the ledgers may have forgotten: somebody wants them
	// to be moved again, or has made a mistake.
	ErrRewound = errors.New("the outbox was set back")
)

// Conn sends the statements of a session.
type Conn interface {
	// Lead waits for up to a while, whole seconds, to become the one relay that is active. The lock is the server's own:
	// it is free as soon as the server has ended the session of the relay that had it. If the relay of another table with
	// the same identity has it, Lead returns an error: one table is a copy of the other.
	Lead(ctx context.Context, wait time.Duration) (bool, error)
	// Read returns the first rows whose ids are in the ranges, as one snapshot. The ranges are in order. It examines at
	// most limit rows, and leaves out the ids in skip; nil skips none. It ends early after the row that reaches
	// PageBytes: see Full.
	Read(ctx context.Context, in []Range, limit int, skip func(id uint64) bool) ([]Row, error)
	// Delete deletes rows that were moved. Rows that got their ids later stay. If this process dies, rows may be there again that
	// were deleted after the last Next.
	Delete(ctx context.Context, keys []Key) error
	// SetAside notes why a row can't be moved. Operators see it, and relays leave the row.
	SetAside(ctx context.Context, key Key, reason string) error
	// Next returns an id that the outbox has not given yet: the next row gets this id or a higher one. 0 means unknown. A
	// server that was emptied, or has lost its last transactions, may return a lower one than before. It may return ErrLater.
	Next(ctx context.Context) (uint64, error)
	// Present returns which of the rows are in the outbox.
	Present(ctx context.Context, keys []Key) (map[Key]bool, error)
	// Writers returns the open transactions that may have written into the outbox, for Settled.
	Writers(ctx context.Context) (Writers, error)
	// Settled returns the ranges that hold no row, neither a committed one nor one of an open transaction. since are the
	// writers that were open after a row above the ranges had been read.
	Settled(ctx context.Context, in []Range, since Writers) ([]Range, error)
	// IdentityNow returns the identity that the outbox has now: its table may have been replaced.
	IdentityNow(ctx context.Context) (string, error)
	// Close ends the connection, and so gives the lock up.
	Close()
}

// PageBytes ends a page of Read or List: rows may be large, and there are many of them.
const PageBytes = 2 << 20

// Full reports whether a List, or a Read without a skip, ended at its bounds, so that more rows may follow.
func Full(rows []Row, limit int) bool { return len(rows) >= limit || Size(rows) >= PageBytes }

// Size returns about how many bytes rows take in memory.
func Size(rows []Row) (n int) {
	for i := range rows {
		n += rows[i].Size()
	}
	return n
}

// Writers are open transactions. They are empty on servers such as MySQL, where row locks show which ids belong to open
// transactions.
type Writers []string
