package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// beside checks whether the other tables of one database, besides the task tables, exist and may be read. It reads no
// row.
var beside = prepare(`
SELECT /* tocsin beside */ {database_no} FROM {database}.owner WHERE FALSE
UNION ALL
SELECT {database_no} FROM {database}.doorbell WHERE FALSE
UNION ALL
SELECT {database_no} FROM {database}.biz_type WHERE FALSE`)

// Survey is the result of a look at one server. Databases are by number.
type Survey struct {
	Offset   Offset
	ReadOnly string        // why it takes no writes, "read_only is on"; "": it takes some
	Full     error         // why the server lately refused a write for lack of room; nil: it did not
	Unusable map[int]error // must not be used, each an *Unusable; statements to them are refused
	Flawed   map[int]error // may be used, but a table other than the task tables is missing or may not be read

	Term      int64            // see Store.Term
	Addresses []mysql.Sighting // what was last seen at each address; nil if the server has only one
}

// Survey looks at a server: its clock, as Measure does, and all its databases. Results that don't concern layout rows
// are up to besideEvery old. From then on, statements to unusable databases are refused, and those to databases that
// are usable again are admitted. An error concerns the whole server and changes neither; Term and Addresses are set beside
// it.
func (s *Store) Survey(ctx context.Context, server int) (found Survey, err error) {
	sv := s.servers[server]
	defer func() { found.Term, found.Addresses = sv.Term(), sv.Sightings(ctx) }()
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
	found = Survey{Offset: taken.offset(), Flawed: beside.flawed, ReadOnly: beside.readOnly, Full: sv.full.now()}
	for database, refusal := range sv.refused() {
		if found.Unusable == nil {
			found.Unusable = make(map[int]error)
		}
		found.Unusable[database] = refusal
	}
	return found, nil
}

// besideEvery is how long readings that rarely change are reused.
const besideEvery = 9 * time.Second

// besides holds what a survey reads in addition to the layout rows.
type besides struct {
	read     time.Time
	readOnly string
	flawed   map[int]error
}

func (s *Store) lookBeside(ctx context.Context, sv *server) (*besides, error) {
	found := &besides{read: time.Now()}
	var err error
	if found.readOnly, err = s.readOnly(ctx, sv); err != nil {
		return nil, err
	}
	s.recall(ctx, sv)
	found.flawed, err = s.flaws(ctx, sv)
	return found, err
}

func (s *Store) readOnly(ctx context.Context, sv *server) (why string, err error) {
	why, err = mysql.ReadOnly(ctx, sv.DB)
	return why, s.wrap(err, "ask whether it takes writes", sv)
}

// TakesWrites returns an error if a server does not answer, is read-only, or lately had no room for a write.
func (s *Store) TakesWrites(ctx context.Context, server int) error {
	sv := s.servers[server]
	why, err := s.readOnly(ctx, sv)
	if err == nil && why != "" {
		err = errors.New("it is read-only: " + why)
	}
	return cmp.Or(err, sv.full.now())
}

// fullFor is how long a server counts as full after it last refused a write for lack of room.
const fullFor = 30 * time.Second

// full is the last refusal of a write for lack of room. The zero value means none. Safe for concurrent use.
type full struct {
	mu   sync.Mutex
	err  error
	last time.Time
}

// note stores err if it is a refusal for lack of room.
func (f *full) note(err error) {
	if mysql.ClassOf(err) != mysql.Full {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.last = err, time.Now()
}

// now returns the refusal, or nil once it is over.
func (f *full) now() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.last) > fullFor {
		return nil
	}
	return f.err
}

// flaws returns the databases that may be used but have a fault in a table other than the task tables.
func (s *Store) flaws(ctx context.Context, sv *server) (map[int]error, error) {
	_, failed, err := eachDatabase(ctx, s, s.gated(sv), sv.refused().without(sv.Databases), question[struct{}]{statement: beside,
		scan: func(*sql.Rows) (none struct{}, err error) { return none, nil }})
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

// without returns the databases that are not refused.
func (r refusals) without(databases []int) []int {
	var left []int
	for _, database := range databases {
		if r[database] == nil {
			left = append(left, database)
		}
	}
	return left
}
