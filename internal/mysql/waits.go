package mysql

import (
	"context"
	"database/sql/driver"
	"sync"
	"sync/atomic"
	"time"
)

// waits knows which requests a pool's server has not answered yet. Safe for concurrent use.
type waits struct {
	base time.Time // times are counted from its monotonic reading
	mu   sync.Mutex
	all  map[*asked]struct{} // of each connection, and of each attempt to make one
}

// asked is when one connection began to wait for the server: nanoseconds since waits.base, 0 if it does not wait.
type asked struct {
	waits *waits
	since atomic.Int64
}

func newWaits() *waits { return &waits{base: time.Now(), all: make(map[*asked]struct{})} }

// begin adds a connection that waits from now on.
func (w *waits) begin() *asked {
	a := &asked{waits: w}
	a.ask()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[a] = struct{}{}
	return a
}

// end removes it.
func (a *asked) end() {
	a.waits.mu.Lock()
	defer a.waits.mu.Unlock()
	delete(a.waits.all, a)
}

// ask notes that the server is asked from now on, and returns now.
func (a *asked) ask() time.Time {
	now := time.Now()
	a.since.Store(max(int64(now.Sub(a.waits.base)), 1))
	return now
}

func (a *asked) answer() { a.since.Store(0) }

// longest returns how long the oldest request has waited.
func (w *waits) longest() time.Duration {
	now, oldest := int64(time.Since(w.base)), int64(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range w.all {
		if since := a.since.Load(); since != 0 && (oldest == 0 || since < oldest) {
			oldest = since
		}
	}
	if oldest == 0 {
		return 0
	}
	return time.Duration(now - oldest)
}

// slow is the key of Slow.
type slow struct{}

// Slow returns a context for queries that may take long by themselves, since they read very many rows. Waiting does not count them.
func Slow(ctx context.Context) context.Context { return context.WithValue(ctx, slow{}, true) }

// Waiting returns how long the oldest statement of the pool, or attempt to connect, has been without an answer; 0 if
// there is none. Prepared statements and those of Slow are not counted.
func (s *Server) Waiting() time.Duration { return s.waits.longest() }

// ExecContext records how long the server takes.
func (c *seeingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	begin := c.asked.ask()
	defer c.asked.answer()
	res, err := c.driverConn.ExecContext(ctx, query, args)
	return res, c.answered(query, err, begin)
}

// QueryContext records how long the server takes to return the first row.
func (c *seeingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	begin := c.asked.ask()
	defer c.asked.answer()
	if ctx.Value(slow{}) != nil {
		c.asked.answer()
	}
	rows, err := c.driverConn.QueryContext(ctx, query, args)
	if results, ok := rows.(driver.RowsNextResultSet); ok && err == nil {
		rows = &seenRows{results, c}
	}
	return rows, c.answered(query, err, begin)
}

// answered passes on how long the server took for a statement, and words its error.
func (c *seeingConn) answered(query string, err error, begin time.Time) error {
	err = c.worded(err, begin)
	if c.observe != nil {
		c.observe(query, time.Since(begin), err)
	}
	return err
}

// seenRows are the results of one or more statements sent together. The first result comes before the later statements
// have run.
type seenRows struct {
	driver.RowsNextResultSet
	conn *seeingConn
}

// NextResultSet records how long the server takes.
func (r *seenRows) NextResultSet() error {
	begin := r.conn.asked.ask()
	defer r.conn.asked.answer()
	return r.conn.worded(r.RowsNextResultSet.NextResultSet(), begin)
}

// Close reads the results that are left, and records how long the server takes.
func (r *seenRows) Close() error {
	r.conn.asked.ask()
	defer r.conn.asked.answer()
	return r.RowsNextResultSet.Close()
}

// PrepareContext records how long the server takes.
func (c *seeingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	begin := c.asked.ask()
	defer c.asked.answer()
	stmt, err := c.driverConn.PrepareContext(ctx, query)
	return stmt, c.worded(err, begin)
}

// Ping records how long the server takes.
func (c *seeingConn) Ping(ctx context.Context) error {
	c.asked.ask()
	defer c.asked.answer()
	return c.driverConn.Ping(ctx)
}

// Close forgets the connection.
func (c *seeingConn) Close() error {
	defer c.asked.end()
	if c.link != nil {
		defer c.home.unlink(c.link)
	}
	return c.driverConn.Close()
}
