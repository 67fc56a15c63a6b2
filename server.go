package tocsin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// server is one MySQL server of the config, and what its databases said of
// themselves. Safe for concurrent use.
type server struct {
	*mysql.Server
	layout Layout
	agreed *layoutrow.Identities // the client's
	facts  atomic.Pointer[facts] // nil until the databases were read and agreed
}

// facts is what a server's databases say.
type facts struct {
	cluster string
	horizon time.Duration // nearer tasks ring the doorbell
	packet  int           // max_allowed_packet, bytes
	now     time.Time     // the server's clock when it was read
	read    time.Time     // this machine's, then
	refused map[int]error // by database number: why it takes no tasks
}

// clock estimates the server's clock.
func (f *facts) clock() time.Time { return f.now.Add(time.Since(f.read)) }

// layoutsAtOnce bounds the databases that one statement reads.
const layoutsAtOnce = 64

// lookAgain is how long a connection trusts the layout rows that it has read. A
// database that moves away refuses by the names of its tables at once; they are
// for one that is replaced, or retired by hand.
const lookAgain = time.Second

// checked gives the facts of a server, reading them on first use. A refusal is
// not kept: it is asked again, so mending the server is enough.
func (s *server) checked(ctx context.Context, want layoutrow.Want) (*facts, error) {
	if f := s.facts.Load(); f != nil && f.cluster == want.Cluster {
		return f, nil
	}
	return s.check(ctx, want)
}

// check reads what the server's databases say, and refuses the server if one of
// them differs from the config.
func (s *server) check(ctx context.Context, want layoutrow.Want) (*facts, error) {
	f, err := s.look(ctx, s.DB, want)
	if err != nil {
		return nil, err
	}
	if err := s.refusal(f.refused); err != nil {
		return nil, err
	}
	s.facts.Store(f)
	return f, nil
}

// seen gives what a server that was accepted once says of its databases now.
func (s *server) seen(ctx context.Context, want layoutrow.Want) (*facts, error) {
	if _, err := s.checked(ctx, want); err != nil {
		return nil, err
	}
	return s.look(ctx, s.DB, want)
}

// admit refuses one database by what was read over the connection that is about
// to write to it, at most lookAgain ago: another server may stand behind the
// address by now.
func (s *server) admit(ctx context.Context, conn *sql.Conn, want layoutrow.Want, db int) error {
	f, err := mysql.LookOnce(ctx, conn, lookAgain, func(ctx context.Context) (*facts, error) {
		return s.look(ctx, conn, want)
	})
	if err != nil {
		return err
	}
	return f.refused[db]
}

// queryer is a pool or one of its connections.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// look reads the layout rows of all the server's databases and compares them
// with the config. An error means that they could not be read.
func (s *server) look(ctx context.Context, over queryer, want layoutrow.Want) (*facts, error) {
	rows, failed := s.layouts(ctx, over)
	f := &facts{read: time.Now(), refused: s.compare(rows, want)}
	if failed != nil {
		return nil, cmp.Or(s.refusal(f.refused), s.explain(failed))
	}
	for _, db := range s.Databases {
		row, ok := rows[db]
		if !ok {
			f.refused[db] = refuse(ErrLayout, "%s on %s has no layout row: run `tocsin ddl apply`", s.layout.Database(db), s.Name)
			continue
		}
		f.cluster, f.horizon, f.packet, f.now = row.Cluster, row.Horizon(), row.packet, row.now
	}
	return f, nil
}

// compare refuses the databases whose rows differ from the config, from those
// before them in the name of the cluster, or from most others in the identity.
func (s *server) compare(rows map[int]layoutRow, want layoutrow.Want) map[int]error {
	refused := map[int]error{}
	for _, row := range rows {
		s.agreed.Note(want, row.Row)
	}
	want.Identity = s.agreed.Agreed()
	for _, db := range s.Databases {
		row, ok := rows[db]
		if !ok {
			continue
		}
		if text := want.Refuse(row.Row, s.layout.Database(db)+" on "+s.Name); text != "" {
			refused[db] = refuse(ErrLayout, "%s", text)
		} else {
			want.Cluster = row.Cluster // of all the others too
		}
	}
	return refused
}

// refusal is that of the server's first database that is refused, or nil.
func (s *server) refusal(refused map[int]error) error {
	for _, db := range s.Databases {
		if err := refused[db]; err != nil {
			return err
		}
	}
	return nil
}

// explain turns an error of reading the layout into advice.
func (s *server) explain(err error) error {
	switch mysql.ClassOf(err) {
	case mysql.Missing:
		return refuse(ErrLayout, "server %s has no Tocsin tables (%s): run `tocsin ddl apply`", s.Name, err)
	case mysql.Lost, mysql.Demoted:
		return fmt.Errorf("server %s is %w", s.Name, outage(err))
	}
	return fmt.Errorf("read the layout on server %s: %w", s.Name, err)
}

// layouts reads the layout rows by database number. Where one is missing, those
// beside the error may say why: a layout of fewer databases.
func (s *server) layouts(ctx context.Context, over queryer) (map[int]layoutRow, error) {
	rows := make(map[int]layoutRow, len(s.Databases))
	for part := range slices.Chunk(s.Databases, layoutsAtOnce) {
		err := s.readLayouts(ctx, over, part, rows)
		if mysql.ClassOf(err) == mysql.Missing && len(part) > 1 {
			_ = s.readLayouts(ctx, over, part[:1], rows) // part as a whole has failed already
		}
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func (s *server) readLayouts(ctx context.Context, over queryer, databases []int, into map[int]layoutRow) error {
	parts, args := make([]string, len(databases)), make([]any, len(databases))
	for i, db := range databases {
		parts[i], args[i] = s.layout.render(layoutSQL, db*s.layout.Tables), db
	}
	found, err := over.QueryContext(ctx, strings.Join(parts, "\nUNION ALL\n"), args...)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var r layoutRow
		if err := r.scan(found.Scan); err != nil {
			return err
		}
		into[r.Asked] = r
	}
	return found.Err()
}

// bizTypes reads the names from the server's first database.
func (s *server) bizTypes(ctx context.Context) (map[string]uint64, error) {
	found, err := s.DB.QueryContext(ctx, s.layout.render(bizTypesSQL, s.Databases[0]*s.layout.Tables))
	if err != nil {
		return nil, fmt.Errorf("read the biz types on server %s: %w", s.Name, err)
	}
	defer found.Close()
	numbers := map[string]uint64{}
	for found.Next() {
		var number uint64
		var name string
		if err := found.Scan(&number, &name); err != nil {
			return nil, err
		}
		numbers[name] = number
	}
	return numbers, found.Err()
}

// refused reports whether a server answered, and is not what the config says.
func refused(err error) bool { return errors.Is(err, ErrLayout) }
