package scanner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Defaults of a Config.
const (
	DefaultInterval           = 5 * time.Second
	DefaultLookAhead          = 10 * time.Second
	DefaultFullEvery          = time.Minute
	DefaultBellInterval       = 25 * time.Millisecond
	DefaultPageLimit          = 256
	DefaultTablesPerStatement = 64
)

const (
	commitTime   = 10 * time.Second       // how long after its action time a new row may still appear
	guestBack    = 5 * time.Second        // a guest's peek leaves rows that are overdue by more to those who own the table
	peekTimeout  = 10 * time.Second       // of one statement
	parallel     = 2                      // peeks at once on one server: one that waits for a lock does not stop the rest
	retryEvery   = 100 * time.Millisecond // after the intake refused whole rows
	clockWait    = 20 * time.Millisecond  // until a server's clock is known
	fullShare    = 10                     // full looks keep one connection to a server busy for about a tenth of the time at most
	readOnFactor = 4                      // a table read on alone has pages of so many PageLimits
	pulls        = 4                      // pulls at once on one server
	pullEvery    = 20 * time.Millisecond  // between pulls of what becomes due, if nothing older is unread
	lagEvery     = time.Second            // between peeks of a group for the types that the last one left out
	pullPage     = 1000                   // whole rows to read in one statement
	maxPulled    = 16                     // tables of it
	deepAfter    = 4                      // pages of so many tables, and fewer are read at once
	recoverLimit = 500                    // run-out claims recovered in one transaction
	retryRecover = time.Second            // after a claim could not be recovered
	silentPeeks  = 3                      // without an entry, and the group is peeked less often
	sparseShare  = 4                      // an entry for less than one in so many tables, and tables are asked first
)

// Store is all of the store that the scanner needs. The maps of the doorbell are by database.
type Store interface {
	Servers() []string
	ServerOf(table int) int // -1: no such table
	Now(server int) int64   // the server's clock in Unix ms, never ahead of it; 0: not known yet

	Peek(ctx context.Context, q store.PeekQuery) (store.Page, error)
	Due(ctx context.Context, q store.DueQuery) (store.DuePage, error)
	DueIDs(ctx context.Context, q store.DueQuery) (store.DuePage, error)
	NextRunOut(ctx context.Context, server int, tables []int) (in time.Duration, some bool, err error)
	Recover(ctx context.Context, server int, tables []int, limit int, nodes map[string]string) (store.Recovered, error)

	Bells(ctx context.Context, server int, unheard map[int]store.Unheard, limit int) (map[int][]store.Bell, error)
	LastBell(ctx context.Context, server int) (map[int]uint64, error)
}

// Intake takes what was found. Its methods must not call the scanner, but for
// Wake.
type Intake interface {
	// Set says how rows of tables may start; nil: not any more. See duequeue.Access.
	Set(tables []int, as *duequeue.Access)
	// Offer passes on entries of a server. It returns entries that found no room:
	// offered ones, or ones pushed out by them.
	Offer(server int, entries []duequeue.Entry) (refused []duequeue.Entry)
	// Wanted returns the numbers of the biz types to peek: those that have a handler
	// here, are not paused, and whose lane has room. When there is room again, Wake is called.
	Wanted(server int) []uint64
	// Heard returns the numbers of the biz types whose bells to offer: those that
	// have a handler here and are not paused. A nearer entry finds room even in a
	// full lane.
	Heard(server int) []uint64
	// Reserve makes room for at most that many whole rows of a biz type. A room with rows needs one Take. If the room has none,
	// Wake is called when there is some, or Room.Wait says when to ask again.
	Reserve(server int, bizType uint64, most int) duequeue.Room
	// Take starts whole rows that are due; asked is when their reading began. It returns those that it did not take.
	Take(ctx context.Context, server int, bizType uint64, room duequeue.Room, rows []store.Row, asked time.Time) (refused []duequeue.Entry)
	// OwnLook gives rows of tables back that stand claimed by this process though it does not have them.
	OwnLook(ctx context.Context, server int, tables []int) error
	// Room returns how many ids of what is due a lane takes now, at most most, and keeps that room until Fetched. If it is 0, Wake is called when there is some.
	Room(server int, bizType uint64, most int) int
	// Fetched passes on ids for which Room made room, and returns the refused ones as Offer does.
	Fetched(server int, bizType uint64, room int, entries []duequeue.Entry) (refused []duequeue.Entry)
}

// Config is what a Scanner needs. Zero values take the defaults.
type Config struct {
	Store  Store  // required
	Intake Intake // required

	Interval     time.Duration            // between regular peeks of a table; half as long again where nothing is found; 0: 5s
	LookAhead    time.Duration            // how long before it is due a row is peeked; at least twice Interval; 0: the larger of 10s and that
	FullEvery    time.Duration            // between full peeks of a table; at least Interval; 0: 60s
	BellInterval time.Duration            // between polls of a server's doorbells; 0: 25ms
	Claims       bool                     // every row is claimed under a session: what is due and unread is read as ids, which the intake claims, and claims are recovered when their sessions have gone
	Nodes        func() map[string]string // whose sessions are, or were, by id; nil: nobody knows
	Peers        func() int               // nodes in the group: the polls of all together stay under 100 a second; nil: 1

	PageLimit          int // entries of one table in one page; 0: 256
	TablesPerStatement int // 0: 64

	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

func (c Config) withDefaults() Config {
	c.Logger = loop.Logger(c.Logger)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.LookAhead = cmp.Or(c.LookAhead, max(DefaultLookAhead, 2*c.Interval))
	c.FullEvery = cmp.Or(c.FullEvery, max(DefaultFullEvery, c.Interval))
	c.BellInterval = cmp.Or(c.BellInterval, DefaultBellInterval)
	c.PageLimit = cmp.Or(c.PageLimit, DefaultPageLimit)
	c.TablesPerStatement = cmp.Or(c.TablesPerStatement, DefaultTablesPerStatement)
	if c.Nodes == nil {
		c.Nodes = func() map[string]string { return nil }
	}
	if c.Peers == nil {
		c.Peers = func() int { return 1 }
	}
	return c
}

// grid is that on which polls of a silent bell and regular peeks meet: most of
// what a process that does next to nothing costs is waking it up.
func (c Config) grid() time.Duration { return 2 * c.BellInterval }

// Validate reports the first thing that is wrong.
func (c Config) Validate() error {
	if c.Store == nil || c.Intake == nil {
		return errors.New("scanner: needs a store and an intake")
	}
	c = c.withDefaults()
	switch {
	case c.Interval < 0:
		return fmt.Errorf("scanner: interval %s must not be negative", c.Interval)
	case c.LookAhead < 2*c.Interval:
		return fmt.Errorf("scanner: look-ahead %s must be at least twice the interval %s", c.LookAhead, c.Interval)
	}
	return nil
}
