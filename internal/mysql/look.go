package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strings"
	"time"
)

// How the addresses of a server are looked at.
const (
	lookEvery   = time.Second            // while one takes writes
	lookOften   = 200 * time.Millisecond // while none does
	lookPause   = 50 * time.Millisecond  // between two looks at least
	lookTimeout = 2 * time.Second        // of one look: how long a server may hang before another one that takes writes is used instead
	markerEvery = 10 * time.Second       // between two reads of the marker at the address in use
	stragglers  = 300 * time.Millisecond // how long the first choice waits for addresses that do not answer
)

// serverSQL reads a server's version, and what identifies it.
const serverSQL = `SELECT /* tocsin server */
    VERSION(),
    CONCAT_WS(':', @@hostname, @@port, @@server_id, @@datadir)`

// mariaPositionSQL and mysqlPositionSQL read which transactions a server has.
const (
	mariaPositionSQL = `SELECT /* tocsin position */ @@global.gtid_current_pos`
	mysqlPositionSQL = `SELECT /* tocsin position */ @@global.gtid_executed`
)

// follow looks at one address until ctx ends.
func (h *home) follow(ctx context.Context, m *member) {
	var marked time.Time
	for {
		s, read := h.look(ctx, m, time.Since(marked) > markerEvery)
		if ctx.Err() != nil {
			return
		}
		if read {
			marked = time.Now()
		}
		h.note(m, s, read)
		if !h.pause(ctx, m) {
			return
		}
	}
}

// pause waits until the next look, and reports whether there is one.
func (h *home) pause(ctx context.Context, m *member) bool {
	pause := time.NewTimer(lookPause)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-pause.C:
	}
	every := lookEvery
	if !h.found() {
		every = lookOften
	}
	pause.Reset(every - lookPause)
	select {
	case <-ctx.Done():
		return false
	case <-m.kick:
	case <-pause.C:
	}
	return true
}

// found reports whether the address in use takes writes.
func (h *home) found() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.using >= 0 && h.members[h.using].sight.writes()
}

// look asks one address. read reports whether the marker and the position were read, which
// happens if fresh is true or the address is not in use. That a connection breaks, because
// somebody killed it, shows nothing yet: another one is tried at once.
func (h *home) look(ctx context.Context, m *member, fresh bool) (s sight, read bool) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if s, read = h.ask(ctx, m, fresh); ClassOf(s.err) == Lost && ctx.Err() == nil {
		return h.ask(ctx, m, fresh)
	}
	return s, read
}

// ask is a look over one connection.
func (h *home) ask(ctx context.Context, m *member, fresh bool) (s sight, read bool) {
	s = sight{seen: true}
	var version string
	conn, err := m.db.Conn(ctx)
	if err == nil {
		defer func() { _ = conn.Close() }()
		err = conn.QueryRowContext(ctx, serverSQL).Scan(&version, &s.process)
	}
	if err == nil {
		s.readOnly, err = roleOver(ctx, conn)
	}
	if err == nil && s.readOnly == "" && (fresh || !h.uses(m)) {
		read = true
		s.marker, s.position, err = h.identify(ctx, conn, version)
	}
	if err != nil {
		return sight{seen: true, err: fmt.Errorf("look at %s: %w", m.addr, notCallers(ctx, err))}, false
	}
	return s, read
}

// notCallers gives the end of a look's own time another class than that of a caller's.
func notCallers(ctx context.Context, err error) error {
	if ctx.Err() != nil && ClassOf(err) == Canceled {
		return late{lookTimeout, errNoAnswer}
	}
	return err
}

func (h *home) uses(m *member) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.using >= 0 && h.members[h.using] == m
}

// identify reads the marker and the position. A server without GTIDs has the position 0.
func (h *home) identify(ctx context.Context, conn *sql.Conn, version string) (marker string, position uint64, err error) {
	if h.marker.Read != nil {
		if marker, err = h.marker.Read(ctx, conn); err != nil {
			return "", 0, err
		}
	}
	query := mysqlPositionSQL
	if strings.Contains(version, "MariaDB") {
		query = mariaPositionSQL
	}
	var gtids string
	if err := conn.QueryRowContext(ctx, query).Scan(&gtids); err != nil && ClassOf(err) != Other {
		return "", 0, err
	}
	return marker, transactions(gtids), nil
}

// dialLinked dials as the driver does, and lets the link of ctx cut the connection.
func dialLinked(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if l, ok := ctx.Value(linkKey{}).(*link); ok && err == nil {
		l.dialled(conn)
	}
	return conn, err
}
