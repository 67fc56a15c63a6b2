package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	driverlib "github.com/go-sql-driver/mysql"
)

// Marker identifies the databases of a server, so that a server that takes writes but holds
// others is not taken for the promoted replica.
type Marker struct {
	Key  any                                                       // comparable; equal if Read does the same
	Read func(ctx context.Context, conn *sql.Conn) (string, error) // "": no databases of the config; Read nil: never asked
}

// homeKey is what pools of this process must have in common to share a home.
type homeKey struct {
	dsn, databases string
	tls, marker    any
}

// home finds which of the addresses of one server takes writes. All pools of this process
// with the same addresses share one, so they move together:
//
//	look at every address, 1 s apart --> choose --> the address in use
//	                                       |  another than before
//	                                       v
//	             cut all connections, term + 1: pools connect anew
//
// While no address takes writes, and after an error of a connection, it looks more often. A
// connection is also asked when it is made whether its server takes writes.
//
// Safe for concurrent use.
type home struct {
	key     homeKey
	pools   map[chan struct{}]bool // told of moves, a slot each; guarded by homes and mu together
	members []*member
	marker  Marker
	opened  time.Time
	stop    context.CancelFunc
	looks   sync.WaitGroup
	term    atomic.Int64 // number of moves; grows when all connections to the former address are cut

	mu    sync.Mutex
	using int    // index of the member in use; -1: none found yet
	known string // marker of the databases in use
	links map[*link]bool
	news  chan struct{} // closed, and replaced, when an address was looked at
}

// member is one address.
type member struct {
	target
	db   *sql.DB       // of one connection, to look
	kick chan struct{} // 1 slot: look now

	sight sight // guarded by home.mu
}

// homes are those of this process.
var homes = struct {
	sync.Mutex
	of map[homeKey]*home
}{of: make(map[homeKey]*home)}

// enterHome returns the home of a spec with several addresses. Its looks begin with the first
// pool. moved is told of moves.
func enterHome(spec Spec, targets []target, moved chan struct{}) *home {
	key := homeKey{spec.DSN, fmt.Sprint(spec.Databases), spec.TLS, spec.Marker.Key}
	homes.Lock()
	defer homes.Unlock()
	h := homes.of[key]
	if h == nil {
		h = newHome(key, spec.Marker, targets)
		homes.of[key] = h
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pools[moved] = true
	return h
}

// newHome makes a home. Its looks at all addresses go on until the last pool has left.
func newHome(key homeKey, marker Marker, targets []target) *home {
	h := &home{key: key, marker: marker, opened: time.Now(), using: -1, pools: make(map[chan struct{}]bool), links: make(map[*link]bool), news: make(chan struct{})}
	for _, to := range targets {
		m := &member{target: to, kick: make(chan struct{}, 1)}
		m.db = sql.OpenDB(&sessionConnector{to: &m.target, session: session(), waits: newWaits(), leave: func() {}})
		m.db.SetMaxOpenConns(1)
		h.members = append(h.members, m)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	for _, m := range h.members {
		h.looks.Go(func() { h.follow(ctx, m) })
	}
	h.looks.Go(func() { h.notLong(ctx) })
	return h
}

// targets returns its addresses, which pools with the same home share.
func (h *home) targets() (all []target) {
	for _, m := range h.members {
		all = append(all, m.target)
	}
	return all
}

// leave ends the looks when the last pool leaves.
func (h *home) leave(moved chan struct{}) {
	homes.Lock()
	h.mu.Lock()
	delete(h.pools, moved)
	last := len(h.pools) == 0
	h.mu.Unlock()
	if last {
		delete(homes.of, h.key)
	}
	homes.Unlock()
	if !last {
		return
	}
	h.stop()
	h.looks.Wait()
	for _, m := range h.members {
		_ = m.db.Close() // it has no more than an idle connection
	}
}

// note stores what was seen at an address, and moves if that calls for it. identified reports
// whether the marker and the position were read.
func (h *home) note(m *member, s sight, identified bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.left = m.sight.left && s.readOnly == ""
	s.demoted = s.err != nil && (m.sight.readOnly != "" || m.sight.demoted)
	if s.process == "" {
		s.process = m.sight.process // it did not answer, or not far enough
	}
	if s.writes() && !identified && s.process == m.sight.process {
		s.marker, s.position = m.sight.marker, m.sight.position
	}
	was := m.sight
	m.sight = s
	if h.using >= 0 && h.members[h.using] == m {
		h.still(was, s)
	}
	h.decide()
	close(h.news)
	h.news = make(chan struct{})
}

// still handles what has changed at the address in use: a server that turned read-only gets no
// statement any more, and another server behind the same address is a move. Called under the lock.
func (h *home) still(was, is sight) {
	if is.readOnly != "" {
		h.cutAll()
	}
	if is.process != "" && was.process != "" && is.process != was.process {
		h.next()
	}
}

// next begins a new term. Called under the lock.
func (h *home) next() {
	h.cutAll()
	h.term.Add(1)
	for moved := range h.pools {
		select {
		case moved <- struct{}{}:
		default:
		}
	}
}

// cutAll breaks all connections of the pools. Called under the lock.
func (h *home) cutAll() {
	for l := range h.links {
		l.cut()
	}
	clear(h.links)
}

// decide chooses the address to use. Called under the lock.
func (h *home) decide() {
	all := make([]sight, len(h.members))
	for i, m := range h.members {
		all[i] = m.sight
	}
	unseen := func(s sight) bool { return !s.seen }
	if h.using < 0 && slices.ContainsFunc(all, unseen) && time.Since(h.opened) < stragglers {
		return
	}
	if next := choose(h.using, h.known, all); next != h.using {
		h.move(next)
	}
	if h.using >= 0 && h.members[h.using].sight.marker != "" {
		h.known = h.members[h.using].sight.marker
	}
}

// move uses another address. Called under the lock.
func (h *home) move(to int) {
	if h.using >= 0 {
		old := &h.members[h.using].sight
		old.left = old.readOnly == ""
		h.next()
	}
	h.using = to
}

// notLong decides without the addresses that do not answer soon.
func (h *home) notLong(ctx context.Context) {
	wait := time.NewTimer(stragglers)
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.decide()
		close(h.news)
		h.news = make(chan struct{})
	}
}

// hurry has all addresses looked at soon: a connection has failed.
func (h *home) hurry() {
	for _, m := range h.members {
		select {
		case m.kick <- struct{}{}:
		default:
		}
	}
}

// link registers a connection that is about to be made, with the address to use. It waits
// until one is found or all were looked at.
func (h *home) link(ctx context.Context) (*member, *link, error) {
	for {
		h.mu.Lock()
		m, err := h.inUse()
		if m != nil {
			l := newLink(ctx)
			h.links[l] = true
			h.mu.Unlock()
			return m, l, nil
		}
		news := h.news
		h.mu.Unlock()
		if err != nil {
			h.hurry()
			return nil, nil, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// unlink forgets a connection.
func (h *home) unlink(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.links, l)
	l.cancel()
}

// inUse returns the address to connect to, or else why there is none; neither while that is
// not known yet. Called under the lock.
func (h *home) inUse() (*member, error) {
	if h.using >= 0 && h.members[h.using].sight.readOnly == "" {
		return h.members[h.using], nil
	}
	e := &noPrimary{}
	for i, m := range h.members {
		if !m.sight.seen {
			return nil, nil
		}
		e.readOnly = e.readOnly || m.sight.readOnly != ""
		e.refused = e.refused || m.sight.refuses()
		e.said = append(e.said, m.addr+": "+h.state(i).Why)
		if m.sight.err != nil {
			e.causes = append(e.causes, m.sight.err)
		}
	}
	return nil, e
}

// noPrimary says that no address of a server takes writes.
type noPrimary struct {
	said     []string // of each address
	causes   []error
	readOnly bool // one answers, and is read-only
	refused  bool // one answers, and refuses connections: it may be the primary
}

// Error names the reason for each address, and the fail-over if a replica could take over from one that does not answer.
func (e *noPrimary) Error() string {
	text := "no address takes writes: " + strings.Join(e.said, "; ")
	if e.readOnly && len(e.causes) > 0 && !e.refused {
		text += "; to fail over see docs/operations.md#fail-over"
	}
	return text
}

// Unwrap returns what decides the class: Demoted if a server answers, else why none does.
func (e *noPrimary) Unwrap() []error {
	if e.readOnly || len(e.causes) < len(e.said) {
		return []error{errNoPrimary}
	}
	return e.causes
}

var errNoPrimary = errors.New("no primary")

// link is a connection of a pool, or an attempt to make one, to the address in use.
type link struct {
	ctx    context.Context // of the attempt
	cancel context.CancelFunc
	gone   atomic.Bool // another address is in use

	mu   sync.Mutex
	conn net.Conn // nil until it is dialled
}

type linkKey struct{}

func newLink(ctx context.Context) *link {
	l := &link{}
	ctx, l.cancel = context.WithCancel(ctx)
	l.ctx = context.WithValue(ctx, linkKey{}, l)
	return l
}

// dialled gives the link what to close.
func (l *link) dialled(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn = conn; l.gone.Load() {
		_ = conn.Close()
	}
}

// cut breaks the connection: a statement that waits for an answer fails at once.
func (l *link) cut() {
	l.gone.Store(true)
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// target is one address, and how to connect to it.
type target struct {
	addr     string
	patience time.Duration // of a read
	driver   driver.Connector
	expires  *Expiry // of the certificates, if it uses TLS
}

// newTarget prepares connections to one address.
func newTarget(cfg *driverlib.Config, several bool) (target, error) {
	if several && strings.HasPrefix(cfg.Net, "tcp") {
		cfg.DialFunc = dialLinked
	}
	expires := &Expiry{}
	cfg.TLS = expires.Watch(cfg.TLS)
	conn, err := driverlib.NewConnector(cfg)
	return target{addr: cfg.Addr, patience: cfg.ReadTimeout, driver: conn, expires: expires}, err
}
