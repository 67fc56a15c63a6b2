package tocsin

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/name"
)

// Server is one MySQL server, a primary, and the databases it holds.
type Server struct {
	Name string // as shown in errors, logs and metrics; "" takes the DSN's addresses

	// DSN has the form of go-sql-driver/mysql, user:password@tcp(host:port)/; a database in it
	// is ignored. It may name several addresses, a primary and its replicas,
	// user:password@tcp(db1a:3306,db1b:3306)/: the one that takes writes and holds the same
	// databases is used, and found anew after a fail-over.
	DSN string

	Databases []int // database numbers, 0-based; nil on a single server means all
	MaxConns  int   // open connections of a process, at most: a client and a node with the same Server divide them; 0 means 16

	// TLS of the connections, overriding the DSN; nil means that the DSN decides. An
	// empty ServerName means the DSN's host.
	TLS *tls.Config `json:"-"`
}

// Config says where the tables are.
type Config struct {
	Layout  Layout
	Cluster string   // the cluster id that the stored layout must have; "" takes any
	Servers []Server // each database on exactly one of them
	Outbox  Outbox   // for tasks in transactions on other servers than their tables; the zero value: none

	// WaitTimeout is how long a server waits for a connection of this client that sends nothing before it ends the
	// connection, whole seconds; a process that hangs in the middle of a call then holds no row for longer. 0: as long as
	// the server's wait_timeout says.
	WaitTimeout time.Duration

	// Observe is told of each call of a Client when it has ended, concurrently, and must be quick; nil: nobody is. Package
	// tocsinprom makes one that counts calls for Prometheus.
	Observe func(Call) `json:"-"`

	// Use wraps Add, AddMany, AddTx, AddManyTx and those of OutboxTx: each function may change the tasks, for example set headers, pass
	// another context on, and see what became of the tasks, or return an error instead of calling next. The first function is the outermost.
	// Open calls each once; what it returns is called concurrently, and calls next at most once. nil: calls are not wrapped.
	Use []func(next AddFunc) AddFunc `json:"-"`

	// Inserts limits and spreads the tasks that this client adds, by name of biz type; nil: it adds as many as it is asked to, for
	// the times that it is asked for.
	Inserts map[string]Inserts

	// UseChanges wraps Cancel, Reschedule, CancelTx and RescheduleTx, those of OutboxTx, and the calls of package schedule that
	// change something, as Use wraps adds.
	UseChanges []func(next ChangeFunc) ChangeFunc `json:"-"`
}

// Validate reports the first thing that is wrong. It connects to nothing.
func (c Config) Validate() error {
	if err := c.Layout.Validate(); err != nil {
		return err
	}
	if len(c.Servers) == 0 {
		return errors.New("no servers: name at least one MySQL server")
	}
	if err := c.checkNames(); err != nil {
		return err
	}
	home := make(map[int]string)
	for _, s := range c.specs() {
		for _, db := range s.Databases {
			if db < 0 || db >= c.Layout.Databases {
				return fmt.Errorf("server %s: database %d is not in layout %s (0 to %d)", s.Name, db, c.Layout, c.Layout.Databases-1)
			}
			if other, taken := home[db]; taken {
				return fmt.Errorf("database %d is on two servers: %s and %s", db, other, s.Name)
			}
			home[db] = s.Name
		}
	}
	for db := range c.Layout.Databases {
		if home[db] == "" {
			return fmt.Errorf("database %d of layout %s is on no server", db, c.Layout)
		}
	}
	for _, bizType := range slices.Sorted(maps.Keys(c.Inserts)) {
		if err := c.Inserts[bizType].validate(bizType); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(c.Use, func(u func(AddFunc) AddFunc) bool { return u == nil }) {
		return errors.New("a function of Use is nil")
	}
	if slices.ContainsFunc(c.UseChanges, func(u func(ChangeFunc) ChangeFunc) bool { return u == nil }) {
		return errors.New("a function of UseChanges is nil")
	}
	if c.WaitTimeout < 0 || c.WaitTimeout > maxWaitTimeout || c.WaitTimeout%time.Second != 0 {
		return fmt.Errorf("wait time-out %s: use whole seconds, at most %s", c.WaitTimeout, maxWaitTimeout)
	}
	return c.Outbox.validate(c.specs())
}

func (c Config) checkNames() error {
	if c.Cluster != "" {
		if err := name.Check("cluster id", c.Cluster); err != nil {
			return err
		}
	}
	for _, s := range c.Servers {
		if err := name.CheckShown("server", s.Name); err != nil {
			return err
		}
		if s.MaxConns < 0 || s.MaxConns > maxConns {
			return fmt.Errorf("server %s: %d connections: use 1 to %d, or 0 for the default", cmp.Or(s.Name, mysql.Redact(s.DSN)), s.MaxConns, maxConns)
		}
	}
	return nil
}

// Bounds of the servers' own settings.
const (
	maxWaitTimeout = 365 * 24 * time.Hour // of wait_timeout
	maxConns       = 100_000              // of max_connections
)

// specs returns the servers with every default filled in.
func (c Config) specs() []mysql.Spec {
	specs := make([]mysql.Spec, len(c.Servers))
	for i, s := range c.Servers {
		if s.Name == "" {
			s.Name = mysql.Redact(s.DSN)
		}
		if s.Databases == nil && len(c.Servers) == 1 {
			for db := range c.Layout.Databases {
				s.Databases = append(s.Databases, db)
			}
		}
		specs[i] = mysql.Spec{Name: s.Name, DSN: s.DSN, Databases: s.Databases, MaxConns: s.MaxConns, TLS: s.TLS, Share: c.Layout.prefix()}
		specs[i].WaitTimeout = c.WaitTimeout
		if c.WaitTimeout > 0 {
			specs[i].IdleTime = c.WaitTimeout / 2
		}
		specs[i].Marker = client.Marker(c.Layout.names(), c.Cluster, specs[i])
	}
	return specs
}

// maxInserts bounds Inserts.Rate and Inserts.Burst.
const maxInserts = 1_000_000

// maxSpread bounds Inserts.Spread.
const maxSpread = time.Hour

// Inserts limits the tasks of a biz type that one client adds, so that a program that runs wild can't flood tables which others
// share, and spreads those that would all fall due in the same moment. Each client counts for itself: the limit of a service is that of a process times its processes. What counts is the
// tasks of a call, also those that exist already or are refused; tasks in an outbox count when they are written there.
type Inserts struct {
	Rate  float64 // tasks a second, at most 1000000; 0: no limit
	Burst int     // tasks at once after a pause, at most 1000000; 0: Rate, rounded up

	// Wait makes a call over the limit wait, until there is room for all of its tasks or its context ends; one with more than
	// Burst tasks waits for a portion after the other, and then stores them all. A call in a transaction keeps its locks
	// meanwhile. If the context's deadline is too near, or without Wait, the call fails at once with an InsertLimitError.
	Wait bool

	// Spread moves a task of At that is due exactly on a whole minute later by a fixed part of this window, in [0, Spread): whole
	// milliseconds, at most an hour; 0: no task is moved. The part follows from the biz_id and the dedup or unique key, so that a
	// task that is added again has the same time; without a key it follows from the job_id that the call made. Both action_time and
	// due_time hold the moved time. In, Reschedule, runs of schedules (which have a jitter) and rows of plain SQL are not moved.
	//
	// It is what FixedRandomDelay= does to RandomizedDelaySec= in systemd.timer(5): a delay that is random over the units, but the
	// same each time. Temporal's schedules draw their jitter from a hash too (temporalio/temporal, scheduler/spec.go).
	Spread time.Duration
}

// InsertLimitError is the error of a call that is over the limit of Config.Inserts. None of its tasks is stored, and a
// transaction is as it was.
type InsertLimitError struct {
	BizType string
	After   time.Duration // there is room for the call after this time, if nothing else takes it; 0: never, as it has more tasks than Burst

	text string
}

func (e *InsertLimitError) Error() string { return e.text }

func (i Inserts) validate(bizType string) error {
	switch err := name.CheckLower("inserts: biz type", bizType); {
	case err != nil:
		return err
	case !(i.Rate >= 0 && i.Rate <= maxInserts): // NaN too
		return fmt.Errorf("inserts of %s: rate %.15g: use at most %d, or 0 for no limit", bizType, i.Rate, maxInserts)
	case i.Burst < 0 || i.Burst > maxInserts:
		return fmt.Errorf("inserts of %s: burst %d: use 1 to %d, or 0 for that of the rate", bizType, i.Burst, maxInserts)
	case i.Rate == 0 && i.Burst > 0:
		return fmt.Errorf("inserts of %s: burst needs a rate", bizType)
	case i.Rate == 0 && i.Wait:
		return fmt.Errorf("inserts of %s: wait needs a rate", bizType)
	case i.Spread < 0 || i.Spread > maxSpread || i.Spread%time.Millisecond != 0:
		return fmt.Errorf("inserts of %s: spread %s: use whole milliseconds, at most %s", bizType, i.Spread, maxSpread)
	}
	return nil
}

// limited adds the limits to the functions of Config.Use, as the innermost: tasks that another function refuses do not count.
func (c Config) limited() []func(AddFunc) AddFunc {
	var limits client.Limits
	for bizType, i := range c.Inserts {
		if i.Rate > 0 {
			limits.Set(bizType, i.Rate, cmp.Or(i.Burst, int(math.Ceil(i.Rate))), i.Wait)
		}
	}
	if limits.None() {
		return c.Use
	}
	return append(slices.Clip(c.Use), func(next AddFunc) AddFunc {
		return func(ctx context.Context, call *Adding) ([]Added, error) {
			counts := map[string]int{}
			for _, t := range call.Tasks {
				counts[t.task.BizType]++
			}
			err := limits.Take(ctx, counts)
			if over, is := errors.AsType[*client.OverLimit](err); is {
				return nil, &InsertLimitError{BizType: over.BizType, After: over.After, text: over.Text}
			}
			if err != nil {
				return nil, err
			}
			return next(ctx, call)
		}
	})
}

// MaxTables is the largest number of tables a layout may have: a job_id keeps
// 13 bits for the table number.
const MaxTables = 8192

// DefaultPrefix is the prefix of database names where none is set.
const DefaultPrefix = "toc"

// Layout says how many databases and tables a cluster has. It is fixed for the
// life of the cluster and stored in every database.
type Layout struct {
	Databases int    // databases, at least 1
	Tables    int    // task tables in each database, at least 1
	Prefix    string // of database names, [a-z0-9_], at most 32 bytes; "" means DefaultPrefix
}

var prefixForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// Validate reports what is wrong with the layout.
func (l Layout) Validate() error {
	switch {
	case l.Databases < 1 || l.Tables < 1:
		return fmt.Errorf("layout %s: needs at least 1 database and 1 table", l)
	case l.Tables > 10000 || l.Databases > MaxTables || l.Total() > MaxTables:
		return fmt.Errorf("layout %s: has %d tables, more than %d", l, l.Total(), MaxTables)
	case !prefixForm.MatchString(l.prefix()):
		return fmt.Errorf("layout prefix %q: use lower-case letters, digits and _, at most 32, a letter first", l.Prefix)
	}
	return nil
}

// String gives the short form, "8x1024".
func (l Layout) String() string { return fmt.Sprintf("%dx%d", l.Databases, l.Tables) }

// Total is the number of task tables over all databases.
func (l Layout) Total() int { return l.Databases * l.Tables }

// TableOf gives the table number of a biz_id, 0 to Total()-1. In SQL it is
// CRC32(biz_id) % Total.
func (l Layout) TableOf(bizID uint64) int { return client.Layout(l).TableOf(bizID) }

// DatabaseOf gives the database number of a table number.
func (l Layout) DatabaseOf(table int) int { return client.Layout(l).DatabaseOf(table) }

// Database gives the name of a database by its number, "toc_3".
func (l Layout) Database(database int) string { return l.names().Database(database) }

// Table gives the full name of a task table by its number, "toc_3.task_0517".
func (l Layout) Table(table int) string { return l.names().Table(table) }

// TableName gives a task table's name inside its database, "task_0517".
func (l Layout) TableName(table int) string { return client.Layout(l).TableName(table) }

// names is the layout with its prefix.
func (l Layout) names() client.Layout {
	l.Prefix = l.prefix()
	return client.Layout(l)
}

func (l Layout) prefix() string {
	if l.Prefix == "" {
		return DefaultPrefix
	}
	return l.Prefix
}

// Epoch is the time that a JobID's milliseconds count from.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// JobID is a task's primary key. It holds the task's table number, so the task
// can be found from it alone, and grows with time within a table. In JSON it is
// a decimal string. The zero JobID is no task.
type JobID uint64

// ParseJobID reads the decimal form.
func ParseJobID(s string) (JobID, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if id, _, isKey := strings.Cut(s, "."); err != nil && isKey {
		return 0, fmt.Errorf("job_id %q: want a decimal number from 1 to 2^63-1; if it is a webhook-id, its job_id is %q", s, id)
	}
	if err != nil || n == 0 {
		return 0, fmt.Errorf("job_id %q: want a decimal number from 1 to 2^63-1", s)
	}
	return JobID(n), nil
}

// Table is the number of the table that holds the task.
func (id JobID) Table() int { return ids.Table(uint64(id)) }

// Time is when the id was made, by the clock of its maker, in milliseconds.
func (id JobID) Time() time.Time { return ids.Time(uint64(id)) }

// String gives the decimal form.
func (id JobID) String() string { return strconv.FormatUint(uint64(id), 10) }

// MarshalJSON writes a decimal string: 64-bit numbers do not survive every JSON reader.
func (id JobID) MarshalJSON() ([]byte, error) { return []byte(`"` + id.String() + `"`), nil }

// UnmarshalJSON reads a decimal string or a number.
func (id *JobID) UnmarshalJSON(b []byte) error {
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("job_id: %w", err)
	}
	parsed, err := ParseJobID(n.String())
	*id = parsed
	return err
}
