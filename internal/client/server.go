package client

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
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
	client  *Client
	anchors anchors               // of Move
	facts   atomic.Pointer[facts] // nil until the databases were read and agreed
}

// facts is what a server's databases say.
type facts struct {
	cluster string
	horizon time.Duration // nearer tasks ring the doorbell
	packet  int           // max_allowed_packet, bytes
	now     time.Time     // the server's clock when it was read
	read    time.Time     // this machine's, then
	asked   time.Time     // this machine's, before the question
	term    int64         // then: after a move to another address the clock is another
	refused map[int]error // database number -> why it must not be used

	problems map[int]layoutrow.Problem // the problems behind refused
}

// latest is an upper bound of the server's clock at a time of this machine, give or take what it was set by: the answer may have been long under way.
func (f *facts) latest(at time.Time) time.Time { return f.now.Add(at.Sub(f.asked)) }

// clock estimates the server's clock.
func (f *facts) clock() time.Time { return f.now.Add(time.Since(f.read)) }

// lookAgain is how long a connection trusts the layout rows that it has read. A
// database that moves away refuses by the names of its tables at once; they are
// for one that is replaced, or retired by hand.
const lookAgain = time.Second

// checked returns the facts of a server, which it reads on first use. It refuses the
// server if none of its databases may be used. A refusal is not kept: the next call
// asks again, so mending the server is enough.
func (s *server) checked(ctx context.Context) (*facts, error) {
	if f := s.facts.Load(); f != nil && f.cluster == s.client.want.Cluster && f.term == s.Term() {
		return f, nil
	}
	return s.check(ctx)
}

// check reads the layout rows of the server's databases, and keeps them if one
// database may be used.
func (s *server) check(ctx context.Context) (*facts, error) {
	f, err := s.look(ctx, s.DB)
	if err != nil {
		return nil, err
	}
	if len(f.refused) == len(s.Databases) {
		s.facts.Store(nil)
		first, _ := layoutrow.First(s.Name, s.Databases, f.problems)
		return nil, refusalOf(first)
	}
	s.facts.Store(f)
	return f, nil
}

// readable refuses one database if it was refused when it was last read, at most
// lookAgain ago.
func (s *server) readable(ctx context.Context, db int) error {
	f, err := s.checked(ctx)
	if err == nil && f.unreadable(db) != nil && time.Since(f.read) > lookAgain {
		f, err = s.check(ctx)
	}
	if err != nil {
		return err
	}
	return f.unreadable(db)
}

// unreadable returns why a database must not even be read. A retired one and an older
// copy may be read: they take no tasks.
func (f *facts) unreadable(db int) error {
	if f.problems[db].Moved || f.problems[db].Older {
		return nil
	}
	return f.refused[db]
}

// seen gives what a server that was accepted once says of its databases now.
func (s *server) seen(ctx context.Context) (*facts, error) {
	if _, err := s.checked(ctx); err != nil {
		return nil, err
	}
	return s.look(ctx, s.DB)
}

// admit refuses databases by the layout rows read over the connection that is about
// to be used, at most lookAgain ago: another server may stand behind the address by
// now.
func (s *server) admit(ctx context.Context, conn *sql.Conn, databases ...int) error {
	f, err := s.behind(ctx, conn)
	if err != nil {
		return err
	}
	for _, db := range databases {
		if err := f.refused[db]; err != nil {
			return err
		}
	}
	return nil
}

// exec runs a statement in a database that takes tasks, and gives the rows it affected.
func (s *server) exec(ctx context.Context, database int, statement string, args ...any) (int64, error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := s.admit(ctx, conn, database); err != nil {
		return 0, err
	}
	return Execute(ctx, conn, statement, args...)
}

// behind returns the facts read over a connection at most lookAgain ago.
func (s *server) behind(ctx context.Context, conn *sql.Conn) (*facts, error) {
	return mysql.LookOnce(ctx, conn, lookAgain, func(ctx context.Context) (*facts, error) {
		return s.look(ctx, conn)
	})
}

// look reads the layout rows of all the server's databases and compares them with the
// config. An error concerns the whole server.
func (s *server) look(ctx context.Context, over layoutrow.Queryer) (*facts, error) {
	c, want := s.client, s.client.want
	term, known, asked := s.Term(), c.marks.Known(), time.Now()
	rows, failed, err := layoutrow.Read(ctx, over, s.Databases, c.layout.Database, false)
	if err != nil {
		return nil, s.explain(err)
	}
	for _, row := range rows {
		c.agreed.Note(want, row)
	}
	want.Identity = c.agreed.Agreed()
	where := func(db int) string { return c.layout.Database(db) + " on " + s.Name }
	f := &facts{read: time.Now(), asked: asked, term: term, refused: map[int]error{}}
	f.problems = want.Judge(s.Databases, rows, failed, where)
	c.marks.Compare(known, rows, f.problems, where)
	for db, problem := range f.problems {
		f.refused[db] = refusalOf(problem)
	}
	for _, db := range s.Databases {
		if row, ok := rows[db]; ok && f.refused[db] == nil {
			f.cluster, f.horizon, f.packet, f.now = row.Cluster, row.Horizon(), row.Packet, row.Clock
		}
	}
	return f, nil
}

// refusalOf returns ErrLayout for a database that is not the config's, and else the
// error of reading it.
func refusalOf(p layoutrow.Problem) error {
	if p.Differs {
		return Refuse(ErrLayout, "%s", p.Why)
	}
	return &refusal{p.Err, p.Why}
}

// explain words an error of reading the layout.
func (s *server) explain(err error) error {
	if class := mysql.ClassOf(err); class.OfServer() {
		return fmt.Errorf("server %s is %w", s.Name, outage(err))
	}
	return fmt.Errorf("read the layout on server %s: %w", s.Name, err)
}

// bizTypes reads the names from the first of the server's usable databases that
// answers.
func (s *server) bizTypes(ctx context.Context, f *facts) (numbers map[string]uint64, err error) {
	for _, db := range s.Databases {
		if f.refused[db] != nil {
			continue
		}
		if numbers, err = s.bizTypesIn(ctx, db); err == nil || mysql.Unanswered(err) {
			break
		}
	}
	return numbers, err
}

func (s *server) bizTypesIn(ctx context.Context, db int) (map[string]uint64, error) {
	found, err := s.DB.QueryContext(ctx, s.client.layout.Render(bizTypesSQL, db*s.client.layout.Tables))
	numbers := map[string]uint64{}
	err = scanEach(found, err, func(scan func(...any) error) error {
		var number uint64
		var name string
		err := scan(&number, &name)
		numbers[name] = number
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the biz types on server %s: %w", s.Name, err)
	}
	return numbers, nil
}

// markerKey is what decides how a marker is read.
type markerKey struct {
	layout  Layout
	cluster string
}

// Marker tells the addresses of one server apart by their layout rows: its cluster and identity, or
// "" if none of the databases there is the config's. A database that is held is the config's: a
// promoted replica that lags too far is used, and refused with that reason.
func Marker(layout Layout, cluster string, spec mysql.Spec) mysql.Marker {
	want := layoutrow.Want{Databases: layout.Databases, Tables: layout.Tables, Cluster: cluster}
	read := func(ctx context.Context, conn *sql.Conn) (string, error) {
		rows, _, err := layoutrow.Read(ctx, conn, spec.Databases, layout.Database, false)
		if err != nil {
			return "", err
		}
		var found layoutrow.Identities
		of := ""
		for _, row := range rows {
			if row.State == layoutrow.Held {
				row.State = layoutrow.Active
			}
			if want.Refuse(row, "") == "" {
				found.Put(row.Asked, row.Identity)
				of = row.Cluster
			}
		}
		if of == "" {
			return "", nil
		}
		return of + "/" + found.Agreed(), nil
	}
	return mysql.Marker{Key: markerKey{layout, cluster}, Read: read}
}

// moved says ErrLayout of a table that is missing because its database has moved to another server since the client was
// opened; any other error stays.
func (c *Client) moved(ctx context.Context, table int, err error) error {
	if mysql.ClassOf(err) != mysql.Missing {
		return err
	}
	if wrong := c.wrong(ctx, table); wrong != nil {
		return wrong
	}
	return err
}

// wrongWithin bounds a look while a caller's transaction is open: the look may wait for what that holds.
const wrongWithin = 2 * time.Second

// wrong looks at the server of the config now, and says why it refuses the table's database; nil: it does not, or can't
// be asked.
func (c *Client) wrong(ctx context.Context, table int) error {
	ctx, cancel := context.WithTimeout(ctx, wrongWithin)
	defer cancel()
	db := c.layout.DatabaseOf(table)
	s := c.home[db]
	f, err := s.look(ctx, s.DB)
	if err != nil {
		return nil
	}
	return f.refused[db]
}

// ours fills a statement with oursSQL, for a transaction whose server is unknown, and returns the
// parameters of oursSQL.
func (c *Client) ours(statement string, table int) (text string, args []any) {
	db, ofIdentity := c.layout.DatabaseOf(table), ""
	args = []any{c.want.Cluster}
	if c.agreed.Of(db) != "" { // else it has none yet, or was not read
		ofIdentity = "\n    AND identity IN (X'', ?)"
		args = append(args, c.agreed.Agreed())
	}
	return strings.NewReplacer(
		"{database_no}", strconv.Itoa(db),
		"{databases}", strconv.Itoa(c.layout.Databases),
		"{tables}", strconv.Itoa(c.layout.Tables),
		"{of_identity}", ofIdentity,
	).Replace(c.layout.Render(statement, table)), args
}
