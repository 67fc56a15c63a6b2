package mysql

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	driverlib "github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
)

// Defaults of a connection. A DSN's own timeout, readTimeout and writeTimeout win.
const (
	DefaultMaxConns = 16 // of 200 nodes: 3,200 to a server at most

	dialTimeout  = 5 * time.Second
	readTimeout  = 30 * time.Second
	writeTimeout = 30 * time.Second
	idleTime     = time.Minute
)

// Spec names one server and the numbers of the databases it holds.
type Spec struct {
	Name      string        // as shown in errors and metrics; "" takes the DSN's address
	DSN       string        // go-sql-driver/mysql form, with one address or several; a database in it is ignored
	Databases []int         // database numbers, 0-based
	MaxConns  int           // open connections at most; 0 means DefaultMaxConns
	TLS       *tls.Config   // overrides the DSN; nil means that the DSN decides
	Share     string        // pools of this process with the same Share, DSN and MaxConns divide MaxConns among them; "": this pool has its own
	Beside    int           // with Share: connections that the pool's owner opens to the server outside the pool
	ReadTime  time.Duration // for which a read waits for the server, unless the DSN says readTimeout; 0 means 30 s
	IdleTime  time.Duration // after which a connection that nobody needs is closed; 0 means a minute
	// WaitTimeout is how long the server waits for a client, whole seconds: for its next statement, and for it to take a
	// result. Then it rolls back and ends the session. 0 leaves that to the server.
	WaitTimeout time.Duration
	Marker      Marker  // of the databases, to tell several addresses apart
	Observe     Observe // called after each statement; nil: not called
}

// Observe is called with the text of a statement, the time to its first answer, and its error. It is called concurrently
// and must be quick.
type Observe func(query string, took time.Duration, err error)

// Server is one open pool. Safe for concurrent use.
type Server struct {
	Name      string
	Databases []int
	DB        *sqlx.DB
	waits     *waits
	home      *home         // nil if there is one address
	moved     chan struct{} // 1 slot, see Moved; nil if there is one address
	targets   []target      // its addresses
}

// Open makes a pool for one server. It does not wait for a connection: an unreachable server
// shows at the first statement. If the DSN names several addresses, the pool uses the one that
// takes writes, and moves when another one does (see home).
func Open(spec Spec) (*Server, error) {
	targets, stands, err := spec.targets()
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", spec.Name, err)
	}
	if spec.Name == "" {
		spec.Name = Address(spec.DSN)
	}
	server := &Server{Name: spec.Name, Databases: spec.Databases, waits: newWaits(), targets: targets}
	connector := &sessionConnector{to: &targets[0], session: session(append(waiting(spec.WaitTimeout), stands...)...), waits: server.waits, observe: spec.Observe}
	if len(targets) > 1 {
		server.moved = make(chan struct{}, 1)
		server.home = enterHome(spec, targets, server.moved)
		connector.home, connector.moved = server.home, server.moved
		server.targets = server.home.targets()
	}
	server.DB = sqlx.NewDb(sql.OpenDB(connector), "mysql")
	connector.leave = spec.limit(server.DB.DB)
	if spec.IdleTime <= 0 {
		spec.IdleTime = idleTime
	}
	server.DB.SetConnMaxIdleTime(spec.IdleTime)
	return server, nil
}

// CertificateExpires returns when the first of the certificates expires that connections to the server use, the server's or
// the client's, as of the last connection to each address; the zero time without TLS.
func (s *Server) CertificateExpires() (first time.Time) {
	for _, to := range s.targets {
		if at := to.expires.At(); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// targets prepares connections to each address. stands are settings of their sessions, see ClockParam.
func (s Spec) targets() (_ []target, stands []assignment, err error) {
	all, err := parseAll(s.DSN)
	if err != nil {
		return nil, nil, err
	}
	if stands, err = clock(all[0].Params[ClockParam]); err != nil {
		return nil, nil, err
	}
	targets := make([]target, len(all))
	for i, cfg := range all {
		cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, s.ReadTime)
		ours(cfg)
		if s.TLS != nil { // the driver clones it
			cfg.TLS, cfg.AllowFallbackToPlaintext = s.TLS, false
		}
		if targets[i], err = newTarget(cfg, len(all) > 1); err != nil {
			return nil, nil, err
		}
	}
	return targets, stands, nil
}

// limit bounds the pool's connections. The pool calls leave when it is closed.
func (s Spec) limit(db *sql.DB) (leave func()) {
	most := s.MaxConns
	if most <= 0 {
		most = DefaultMaxConns
	}
	if s.Share != "" {
		return share{name: s.Share, dsn: s.DSN, limit: most}.join(sharer{db: db, beside: s.Beside})
	}
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return func() {}
}

// ours sets what Tocsin's statements rely on over what a DSN says.
func ours(cfg *driverlib.Config) {
	delete(cfg.Params, ClockParam)
	cfg.DBName = ""
	cfg.Collation = "" // the session's settings name the character set
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.InterpolateParams = true
	cfg.MultiStatements = true
	cfg.ClientFoundRows = false
	cfg.RejectReadOnly = false          // seeingConn does that, and keeps the server's message
	cfg.Logger = &driverlib.NopLogger{} // its messages reach the caller as errors too
	cfg.Timeout = cmp.Or(cfg.Timeout, dialTimeout)
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, readTimeout)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, writeTimeout)
}

// errNoAnswer is the cause of a time-out that is not the caller's.
var errNoAnswer = errors.New("no answer")

// sessionConnector runs session on each connection the driver makes.
type sessionConnector struct {
	to      *target // the only address, if home is nil
	session string
	home    *home // of several addresses
	waits   *waits
	leave   func()        // see Spec.limit
	moved   chan struct{} // of the pool, with home
	observe Observe
	vain    atomic.Pointer[time.Time] // when no server behind the address took writes, see anyServer; nil: one did, or none was asked
	turned  atomic.Pointer[time.Time] // when a connection to a server that took writes was last refused one; nil: never
}

// Driver returns the driver.
func (c *sessionConnector) Driver() driver.Driver { return c.to.driver.Driver() }

// Close is called when the pool is closed.
func (c *sessionConnector) Close() error {
	c.leave()
	if c.home != nil {
		c.home.leave(c.moved)
	}
	return nil
}

// Connect connects to the address in use. If another one is used before the connection is
// made, it connects to that.
func (c *sessionConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.home == nil {
		return c.anyServer(ctx)
	}
	for {
		m, l, err := c.home.link(ctx)
		if err != nil {
			return nil, err
		}
		conn, err := c.connect(l.ctx, &m.target, l)
		switch {
		case err == nil:
			return conn, nil
		case l.gone.Load() && ctx.Err() == nil:
			continue
		}
		c.home.unlink(l)
		c.home.hurry()
		return nil, err
	}
}

// connect makes a connection to an address. With a link, that must take writes.
func (c *sessionConnector) connect(ctx context.Context, to *target, l *link) (*seeingConn, error) {
	asked := c.waits.begin()
	conn, err := to.connect(ctx)
	if err != nil {
		asked.end()
		return nil, err
	}
	seeing := &seeingConn{driverConn: conn, asked: asked, patience: to.patience, home: c.home, link: l, observe: c.observe, turned: &c.turned}
	if err := c.setUp(ctx, seeing); err != nil {
		_ = seeing.Close()
		return nil, err
	}
	if l != nil && seeing.readOnly != "" {
		_ = seeing.Close()
		return nil, fmt.Errorf("%w: %s is read-only: %s", errNoPrimary, to.addr, seeing.readOnly)
	}
	return seeing, nil
}

// setUp prepares the session, and asks whether the server takes writes.
func (c *sessionConnector) setUp(ctx context.Context, conn *seeingConn) error {
	if err := conn.begin(ctx, c.session); err != nil {
		return err
	}
	if _, err := conn.role(ctx); err != nil {
		return fmt.Errorf("ask whether the server takes writes: %w", err)
	}
	return nil
}

func (t *target) connect(ctx context.Context) (driverConn, error) {
	begin := time.Now()
	conn, err := t.driver.Connect(ctx)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("dial %s: %w", t.addr, late{time.Since(begin).Round(100 * time.Millisecond), errNoAnswer}) // the deadline is not the caller's
	}
	if err != nil {
		return nil, unanswered(err, begin, t.patience)
	}
	return conn.(driverConn), nil
}
