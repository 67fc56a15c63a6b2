package store

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// readOnly asks whether the server is read-only: 0 and OFF say that it is not.
var readOnly = prepare(`SELECT /* tocsin read_only */ @@global.read_only`)

// beside finds out whether the tables beside the tasks of one database are there
// and may be read. It reads no row.
var beside = prepare(`
SELECT /* tocsin beside */ {database_no} FROM {database}.owner WHERE FALSE
UNION ALL
SELECT {database_no} FROM {database}.doorbell WHERE FALSE
UNION ALL
SELECT {database_no} FROM {database}.biz_type WHERE FALSE`)

// Survey is what a look at one server showed. Databases are by number.
type Survey struct {
	Offset   Offset
	ReadOnly bool
	Full     error         // why the server refused a write for lack of room lately; nil: it did not
	Unusable map[int]error // must not be used, each an *Unusable; statements to them are refused
	Flawed   map[int]error // may be used, but lack a table beside the tasks, or a right to it
}

// Survey looks at a server: its clock, as Measure does, and all its databases.
// What is not about layout rows is up to besideEvery old. From then on statements to the unusable ones are refused, and to those that
// are usable again admitted. An error is the server's as a whole, and changes
// neither.
func (s *Store) Survey(ctx context.Context, server int) (Survey, error) {
	sv := s.servers[server]
	taken, err := s.measure(ctx, sv)
	if err != nil {
		return Survey{}, s.wrap(err, "read the clock", sv)
	}
	beside := sv.beside.Load()
	if beside == nil || time.Since(beside.read) > besideEvery {
		if beside, err = s.lookBeside(ctx, sv); err != nil {
			return Survey{}, err
		}
		sv.beside.Store(beside)
	}
	return Survey{
		Offset: taken.offset(), Unusable: sv.refused().errors(), Flawed: beside.flawed, ReadOnly: beside.readOnly, Full: sv.full.now(),
	}, nil
}

// besideEvery is how long what changes seldom is not read again.
const besideEvery = 9 * time.Second

// besides is what a survey reads beside the layout rows.
type besides struct {
	read     time.Time
	readOnly bool
	flawed   map[int]error
}

func (s *Store) lookBeside(ctx context.Context, sv *server) (*besides, error) {
	found := &besides{read: time.Now()}
	var mode string
	err := s.read(ctx, sv.DB, readOnly.name, readOnly.render(nil, nil), func(_ int, rows *sql.Rows) error { return rows.Scan(&mode) })
	if err != nil {
		return nil, s.wrap(err, "ask whether it is read-only", sv)
	}
	found.readOnly = mode != "0" && !strings.EqualFold(mode, "OFF")
	found.flawed, err = s.flaws(ctx, sv)
	return found, err
}

// fullFor is how long a server that refused a write for lack of room counts as
// full without another such refusal.
const fullFor = 30 * time.Second

// full is the last refusal of a write for lack of room. The zero value is none.
// Safe for concurrent use.
type full struct {
	mu   sync.Mutex
	err  error
	last time.Time
}

// note keeps err if it says that there is no room.
func (f *full) note(err error) {
	if mysql.ClassOf(err) != mysql.Full {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.last = err, time.Now()
}

// now is the refusal, nil if it is over.
func (f *full) now() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.last) > fullFor {
		return nil
	}
	return f.err
}

// flaws says what is wrong beside the tasks of the databases that may be used.
func (s *Store) flaws(ctx context.Context, sv *server) (map[int]error, error) {
	text := func(b []byte, database int) []byte {
		return beside.render(b, func(b []byte, slot string) []byte { return s.fillDatabase(b, slot, database) })
	}
	_, failed, err := eachDatabase(ctx, s.gated(sv), beside.name, sv.refused().without(sv.Databases), text,
		func(*sql.Rows) (struct{}, error) { return struct{}{}, nil })
	if err != nil {
		return nil, s.wrap(err, "look at the tables", sv)
	}
	for database, err := range failed {
		if mysql.ClassOf(err) == mysql.Contended {
			delete(failed, database)
		}
	}
	return failed, nil
}

// without gives those of the databases that are not refused.
func (r refusals) without(databases []int) []int {
	var left []int
	for _, database := range databases {
		if r[database] == nil {
			left = append(left, database)
		}
	}
	return left
}
