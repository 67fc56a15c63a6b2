package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Statements on the sessions of one database, each by primary key.
var (
	// openSession adds a session, and openAbout what its process says of itself. A second one with that id is an error.
	openSession = prepare(`
INSERT /* tocsin open_session */ INTO {database}.session
    (id, group_name, node, incarnation, beat, seat, draining, unable, about_no, gmt_create, gmt_modified)
VALUES
    (?, ?, ?, ?, 0, ?, ?, ?, ?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))`)
	openAbout = prepare(`
INSERT /* tocsin open_session */ INTO {database}.session_about
    (id, about_no, schema_version, about)
VALUES
    (?, ?, ?, ?)`)

	// beatSession shows that a session's process lives. Zero rows: the session was ended.
	beatSession = prepare(`
UPDATE /* tocsin beat_session */ {database}.session
SET
    beat         = beat + 1,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE id = ?`)

	// tellSession and tellAbout write what has changed. Zero rows: the session was ended, or a later change was written.
	tellSession = prepare(`
UPDATE /* tocsin tell_session */ {database}.session
SET
    draining = ?,
    unable   = ?,
    about_no = ?
WHERE id = ?
  AND about_no < ?`)
	tellAbout = prepare(`
UPDATE /* tocsin tell_session */ {database}.session_about
SET
    about    = ?,
    about_no = ?
WHERE id = ?
  AND about_no < ?`)

	// endSession ends a session whose beat stands still. Zero rows: it beat after all, or is gone.
	endSession = prepare(`
DELETE /* tocsin end_session */ FROM {database}.session
WHERE id = ?
  AND beat = ?`)

	// closeSession removes a session, and dropAbout what its process said. Zero rows: it is gone.
	closeSession = prepare(`
DELETE /* tocsin close_session */ FROM {database}.session
WHERE id = ?`)
	dropAbout = prepare(`
DELETE /* tocsin close_session */ FROM {database}.session_about
WHERE id = ?`)
)

// BeatTimeout bounds a beat.
const BeatTimeout = time.Second

// SessionState is what a session's process changes of it.
type SessionState struct {
	Draining bool   // it leaves
	Unable   bool   // it beats, and can't work in that database
	AboutNo  uint64 // grows with each change
	About    string // what the process says of itself, JSON
}

// Session is a row of a session table. About is empty unless it was asked for.
type Session struct {
	Database    int
	ID          string
	Group       string
	Node        string
	Incarnation string
	Beat        uint64
	Seat        bool // it looks at tables; a sweep's does not
	Schema      int  // schema version that its program is for; 0: not read
	SessionState
	Modified time.Duration // since its last beat by the server's clock, for people
}

// OpenSession adds a session to its database. After an error it may be there: the next try needs another id.
func (s *Store) OpenSession(ctx context.Context, one Session) error {
	ctx, cancel := context.WithTimeout(ctx, BeatTimeout)
	defer cancel()
	err := s.transactIn(ctx, s.homeOf(one.Database), []int{one.Database}, func(conn *sql.Conn) error {
		text := append(openSession.render(nil, s.ofDatabase(one.Database, nil)), ';')
		_, err := s.write(ctx, conn, openSession.name, openAbout.render(text, s.ofDatabase(one.Database, nil)),
			one.ID, one.Group, one.Node, one.Incarnation, one.Seat, one.Draining, one.Unable, one.AboutNo, one.ID, one.AboutNo, one.Schema, one.About)
		return err
	})
	return s.wrapTable(err, "open a session in", one.Database, "session")
}

// TellSession writes what has changed of a session, unless a later change was written.
func (s *Store) TellSession(ctx context.Context, database int, id string, now SessionState) error {
	ctx, cancel := context.WithTimeout(ctx, BeatTimeout)
	defer cancel()
	err := s.transactIn(ctx, s.homeOf(database), []int{database}, func(conn *sql.Conn) error {
		text := append(tellSession.render(nil, s.ofDatabase(database, nil)), ';')
		_, err := s.write(ctx, conn, tellSession.name, tellAbout.render(text, s.ofDatabase(database, nil)),
			now.Draining, now.Unable, now.AboutNo, id, now.AboutNo, now.About, now.AboutNo, id, now.AboutNo)
		return err
	})
	return s.wrapTable(err, "change a session in", database, "session")
}

// EndSession ends a session of another process unless it has beaten since, and reports whether this call ended it.
func (s *Store) EndSession(ctx context.Context, database int, id string, beat uint64) (bool, error) {
	return s.dropSession(ctx, database, id, endSession, id, beat)
}

// CloseSession removes a session of this process.
func (s *Store) CloseSession(ctx context.Context, database int, id string) error {
	_, err := s.dropSession(ctx, database, id, closeSession, id)
	return err
}

// dropSession removes a session by a statement, and then what its process said.
func (s *Store) dropSession(ctx context.Context, database int, id string, st statement, args ...any) (dropped bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*BeatTimeout)
	defer cancel()
	err = s.transactIn(ctx, s.homeOf(database), []int{database}, func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, st.name, st.render(nil, s.ofDatabase(database, nil)), args...)
		if dropped = err == nil && sum(counts) > 0; !dropped {
			return err
		}
		_, err = s.write(ctx, conn, dropAbout.name, dropAbout.render(nil, s.ofDatabase(database, nil)), id)
		return err
	})
	return dropped && err == nil, s.wrapTable(err, "end a session in", database, "session")
}

// Beaten is what beats have shown.
type Beaten struct {
	Began  time.Time    // after the connection was there, before the beats were sent
	Term   int64        // see Store.Term; of the server that has the beats
	Server string       // what tells that server from others that may stand behind the address later
	There  map[int]bool // by database: whether the session is there; false: it was ended. Missing: not known
}

// BeatSessions beats the given sessions of a server's databases, by database, in one round trip on a connection of their own; each is a
// transaction. An error says nothing of any session: some may have beaten. Calls for one server must not overlap.
func (s *Store) BeatSessions(ctx context.Context, server int, ids map[int]string) (Beaten, error) {
	sv := s.servers[server]
	return s.beatOver(ctx, sv, sv.beats.packet, ids)
}

// BeatSession is BeatSessions for one session. Calls for different databases may overlap.
func (s *Store) BeatSession(ctx context.Context, database int, id string) (Beaten, error) {
	sv := s.homeOf(database)
	return s.beatOver(ctx, sv, sv.beats.alone, map[int]string{database: id})
}

func (s *Store) beatOver(ctx context.Context, sv *server, pool *mysql.Server, ids map[int]string) (b Beaten, err error) {
	ctx, cancel := context.WithTimeout(ctx, BeatTimeout)
	defer cancel()
	defer func() { err = s.wrap(err, "beat", sv) }()
	var databases []int
	for _, database := range sv.Databases {
		if ids[database] != "" {
			databases = append(databases, database)
		}
	}
	conn, err := pool.DB.Conn(ctx)
	if err != nil {
		return Beaten{}, err
	}
	defer func() { _ = conn.Close() }()
	if err := s.admit(ctx, sv, conn, databases); err != nil {
		return Beaten{}, err
	}
	if b.Server, err = mysql.Process(conn); err != nil {
		return Beaten{}, err
	}
	var text []byte
	var args []any
	for i, database := range databases {
		if i > 0 {
			text = append(text, ';')
		}
		text, args = beatSession.render(text, s.ofDatabase(database, nil)), append(args, ids[database])
	}
	b.Term, b.Began, b.There = sv.Term(), time.Now(), make(map[int]bool, len(databases))
	counts, err := s.write(ctx, conn, beatSession.name, text, args...)
	sv.full.note(err)
	if err == nil && len(counts) != len(databases) {
		err = fmt.Errorf("%d answers to %d statements", len(counts), len(databases))
	}
	if err != nil {
		return Beaten{}, err
	}
	for i, database := range databases {
		b.There[database] = counts[i] > 0
	}
	return b, nil
}

// beats are the connections of one server for beats: no other statement can make a beat wait for one.
type beats struct {
	packet *mysql.Server // of one connection
	alone  *mysql.Server // of one for each database whose beats are sent apart
}

// open makes the pools; they connect to nothing.
func (b *beats) open(spec mysql.Spec) (err error) {
	spec.Share, spec.MaxConns = "", 1
	if b.packet, err = mysql.Open(spec); err != nil {
		return err
	}
	spec.MaxConns = max(len(spec.Databases), 1)
	if b.alone, err = mysql.Open(spec); err != nil {
		return errors.Join(err, b.packet.DB.Close())
	}
	return nil
}

func (b *beats) close() error { return errors.Join(b.packet.DB.Close(), b.alone.DB.Close()) }

// sessionsSQL reads the sessions of one database, without what their processes say. Primary key, all rows.
var sessionsSQL = prepare(`
SELECT /* tocsin sessions */
    {database_no},
    id,
    group_name,
    node,
    incarnation,
    beat,
    seat,
    draining,
    unable,
    about_no,
    TIMESTAMPDIFF(MICROSECOND, gmt_modified, UTC_TIMESTAMP(6))
FROM {database}.session`)

// sessionAbouts reads what processes say of themselves, of the sessions in {ids}. Primary key.
var sessionAbouts = prepare(`
SELECT /* tocsin session_about */
    {database_no},
    id,
    about_no,
    schema_version,
    about
FROM {database}.session_about
WHERE id IN ({ids})`)

// Usable returns the databases of a server that may be used, ascending.
func (s *Store) Usable(server int) []int {
	sv := s.servers[server]
	return sv.refused().without(sv.Databases)
}

// Sessions reads the sessions of some of a server's databases in one round trip. read are the databases that were read; the error names the
// others, apart from those that must not be used.
func (s *Store) Sessions(ctx context.Context, server int, databases []int) (all []Session, read []int, err error) {
	sv := s.servers[server]
	databases = sv.refused().without(databases)
	all, failed, err := eachDatabase(ctx, s, s.gated(sv), databases, question[Session]{statement: sessionsSQL, scan: into(func(r *Session) []any {
		return []any{&r.Database, &r.ID, &r.Group, &r.Node, &r.Incarnation, &r.Beat, &r.Seat, &r.Draining, &r.Unable, &r.AboutNo, (*micros)(&r.Modified)}
	})})
	if err == nil {
		for _, database := range databases {
			if failed[database] == nil {
				read = append(read, database)
			}
		}
	}
	return all, read, s.unread(sv, sessionsSQL.name, failed, err)
}

// SessionAbouts reads what the processes of some sessions say of themselves, by database: ID, AboutNo, Schema and About are set. The error
// names the databases that could not be read.
func (s *Store) SessionAbouts(ctx context.Context, server int, ids map[int][]string) ([]Session, error) {
	sv := s.servers[server]
	var databases []int
	for _, database := range sv.refused().without(sv.Databases) {
		if len(ids[database]) > 0 {
			databases = append(databases, database)
		}
	}
	text := func(b []byte, database int) []byte {
		quoted := "'" + strings.Join(ids[database], "','") + "'"
		return sessionAbouts.render(b, s.ofDatabase(database, slots{"ids": quoted}))
	}
	all, failed, err := eachDatabase(ctx, s, s.gated(sv), databases, question[Session]{statement: sessionAbouts, text: text, scan: into(func(r *Session) []any {
		return []any{&r.Database, &r.ID, &r.AboutNo, &r.Schema, &r.About}
	})})
	return all, s.unread(sv, sessionAbouts.name, failed, err)
}

// Told reads the sessions of a server's usable databases that have beaten within a time by the server's clock, with what their processes say
// of themselves, sorted by database, group and node. It is for people, and for processes without sessions of their own. The error names the
// databases that could not be read.
func (s *Store) Told(ctx context.Context, server int, within time.Duration) ([]Session, error) {
	all, _, err := s.Sessions(ctx, server, s.Usable(server))
	all = slices.DeleteFunc(all, func(one Session) bool { return one.Modified > within })
	ids := map[int][]string{}
	for _, one := range all {
		ids[one.Database] = append(ids[one.Database], one.ID)
	}
	told, failed := s.SessionAbouts(ctx, server, ids)
	for i := range all {
		for _, about := range told {
			if about.ID == all[i].ID && about.Database == all[i].Database {
				all[i].Schema, all[i].About = about.Schema, about.About
			}
		}
	}
	slices.SortFunc(all, func(a, b Session) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Node, b.Node))
	})
	return all, errors.Join(err, failed)
}
