package tocsinpg_test

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

// below is the range of the ids that were drawn first.
var below = []outbox.Range{{First: 1, Last: 1}}

// settled reports whether the range is settled.
func settled(t *testing.T, s *outbox.Session, since outbox.Writers) bool {
	t.Helper()
	got, err := s.Settled(t.Context(), below, since)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Equal(got, below)
}

const insertSQL = "INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms) VALUES ('order.close', 99, 86400000)"

func run(t *testing.T, conn *pgx.Conn, text string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// A transaction has drawn id 1, and is open in whatever way; a row with a higher id was read.
func TestAGapIsSettledWhenItsTransactionHasEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first    []string // before the row with the higher id
		then     []string // after it
		end      string
		becomesA string // what becomes of id 1
	}{
		"committed":                       {[]string{"BEGIN", insertSQL}, nil, "COMMIT", "row"},
		"rolled back":                     {[]string{"BEGIN", insertSQL}, nil, "ROLLBACK", "gap"},
		"prepared and committed":          {[]string{"BEGIN", insertSQL}, []string{"PREPARE TRANSACTION '{name}'"}, "COMMIT PREPARED '{name}'", "row"},
		"prepared before and rolled back": {[]string{"BEGIN", insertSQL, "PREPARE TRANSACTION '{name}'"}, nil, "ROLLBACK PREPARED '{name}'", "gap"},
		"from a savepoint":                {[]string{"BEGIN", "SAVEPOINT a", insertSQL, "RELEASE a", "SAVEPOINT b"}, []string{"ROLLBACK TO b"}, "COMMIT", "row"},
		"copied":                          {[]string{"BEGIN", "CREATE TEMPORARY TABLE t AS SELECT 'order.close' AS a", "INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms) SELECT a, 99, 1 FROM t"}, nil, "COMMIT", "row"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			writer, session := s.pgx(), s.Session()
			fill := func(text string) string { return strings.ReplaceAll(text, "{name}", s.Config.Layout.Prefix) }
			for _, text := range c.first {
				run(t, writer, fill(text))
			}
			s.Add(2, "higher", tocsin.In(day))
			since, err := session.Writers(t.Context())
			if err != nil || len(since) != 1 {
				t.Fatal(since, err)
			}
			for _, text := range c.then {
				run(t, writer, fill(text))
			}
			if settled(t, session, since) {
				t.Error("settled while the transaction is open")
			}
			run(t, writer, fill(c.end))
			if got := settled(t, session, since); got != (c.becomesA == "gap") {
				t.Errorf("settled %v, and id 1 is a %s", got, c.becomesA)
			}
			rows, err := session.Read(t.Context(), below, 1, nil)
			if err != nil || len(rows) == 1 != (c.becomesA == "row") {
				t.Errorf("%d rows, %v", len(rows), err)
			}
		})
	}
}

// An id is drawn before the triggers of its row are run, so its transaction may not even have a number yet.
func TestAGapWhoseTriggerWaitsIsNotSettled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Exec(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
		IF NEW.biz_id = 99 THEN PERFORM pg_advisory_xact_lock(1); END IF;
		RETURN NEW;
	END$$`)
	s.Exec("CREATE TRIGGER hold BEFORE INSERT ON tocsin_outbox FOR EACH ROW EXECUTE FUNCTION hold()")
	holder, writer, session := s.pgx(), s.pgx(), s.Session()
	run(t, holder, "SELECT pg_advisory_lock(1)")
	done := make(chan error, 1)
	go func() { _, err := writer.Exec(context.Background(), insertSQL); done <- err }()
	s.Await("the trigger to wait", func() bool {
		return s.Number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 1
	})
	s.Add(2, "higher", tocsin.In(day))
	rows, err := session.Read(t.Context(), []outbox.Range{{First: 0, Last: math.MaxUint64}}, 10, nil)
	if err != nil || len(rows) != 1 || rows[0].ID != 2 {
		t.Fatal(rows, err)
	}
	since, err := session.Writers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if settled(t, session, since) {
		t.Error("settled while a trigger waits")
	}
	run(t, holder, "SELECT pg_advisory_unlock(1)")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if settled(t, session, since) {
		t.Error("settled, and the row is there")
	}
}

// A busy outbox always has open transactions: those that came later have no ids below.
func TestLaterTransactionsKeepNoGapOpen(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	tx := s.Begin()
	if err := s.AddTx(tx, 1, "gone", tocsin.In(day)); err != nil {
		t.Fatal(err)
	}
	s.Add(2, "higher", tocsin.In(day))
	session := s.Session()
	since, err := session.Writers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddTx(s.Begin(), 3, "later", tocsin.In(day)); err != nil { // stays open
		t.Fatal(err)
	}
	if settled(t, session, since) {
		t.Error("settled while the transaction is open")
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if !settled(t, session, since) {
		t.Error("a later transaction keeps the gap open")
	}
}

// The relay closes gaps every time it may, and a transaction that is prepared and waits loses nothing.
func TestAPreparedTransactionIsMovedWhenItCommits(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log devtest.Log
	cfg := s.config(&log)
	cfg.Whole, cfg.GapAge = 20*time.Millisecond, time.Millisecond
	s.relay(cfg)
	conn, name := s.pgx(), s.Config.Layout.Prefix
	run(t, conn, "BEGIN")
	run(t, conn, insertSQL)
	s.Add(2, "before", tocsin.In(day))
	s.Want(2, "before pending")
	run(t, conn, "PREPARE TRANSACTION '"+name+"'")
	for order := uint64(3); order < 40; order++ {
		s.Add(order, "x", tocsin.In(day))
		s.Want(order, "x pending")
	}
	run(t, conn, "COMMIT PREPARED '"+name+"'")
	s.Want(99, " pending")
	s.Rows(0)
}

// The next id is that of the sequence, drawn or not; a user without the right to read it is told none. Sequences in schemas that a
// user may not use are nothing to them.
func TestTheNextIDIsThatOfTheSequence(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	next := func(session *outbox.Session, want uint64) {
		t.Helper()
		if got, err := session.Next(t.Context()); got != want || err != nil {
			t.Errorf("next id %d, %v, want %d", got, err, want)
		}
	}
	session := s.Session()
	next(session, 1) // none was drawn
	s.Add(1, "x", tocsin.In(day))
	next(session, 2)
	if err := s.AddTx(s.Begin(), 2, "open", tocsin.In(day)); err != nil {
		t.Fatal(err)
	}
	next(session, 3)
	other := s.Config.Layout.Prefix + "_other"
	s.Exec("CREATE ROLE " + other + " LOGIN")
	t.Cleanup(func() { s.Exec("DROP OWNED BY " + other); s.Exec("DROP ROLE " + other) })
	s.Exec("GRANT SELECT, DELETE ON tocsin_outbox TO " + other)
	s.Exec("CREATE SCHEMA hidden")
	s.Exec("CREATE SEQUENCE hidden.s")
	s.From.DSN = strings.Replace(s.From.DSN, "postgres@", other+"@", 1)
	next(s.Session(), 0)
	s.Exec("GRANT SELECT ON SEQUENCE tocsin_outbox_id_seq TO " + other)
	next(s.Session(), 3)
}

// A relay that may not read the sequence says so, and leaves the note of where a turn may begin to those that may.
func TestARelaySaysThatItMayNotReadTheSequence(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	identity := s.Session().Identity
	for database := range s.Config.Layout.Databases {
		if err := client.MoverOf(s.Client).NoteSettled(t.Context(), identity, database, 1, true); err != nil {
			t.Fatal(err)
		}
	}
	other := s.Config.Layout.Prefix + "_other"
	s.Exec("CREATE ROLE " + other + " LOGIN")
	t.Cleanup(func() { s.Exec("DROP OWNED BY " + other); s.Exec("DROP ROLE " + other) })
	s.Exec("GRANT SELECT, DELETE, UPDATE (attempts, last_error) ON tocsin_outbox TO " + other)
	s.From.DSN = strings.Replace(s.From.DSN, "postgres@", other+"@", 1)
	var log devtest.Log
	for said := 0; said == 0; { // a relay that does not get the note at once begins without asking for the next id
		s.Add(1, "x", tocsin.In(day))
		stop := s.relay(s.config(&log))
		s.Rows(0)
		stop()
		said = len(log.Lines("the next id of the outbox can't be read: the relay begins at the first id, see `tocsin outbox verify`"))
	}
	if below, err := client.MoverOf(s.Client).SettledBelow(t.Context(), identity); below != 1 || err != nil {
		t.Errorf("settled below %d, %v", below, err)
	}
}

// Operators see a lock of a relay in pg_locks, and it is one for each outbox.
func TestTheLockIsOneForEachOutboxAndEndsWithItsSession(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first, second := s.Session(), s.Session()
	for _, c := range []struct {
		session *outbox.Session
		want    bool
	}{{first, true}, {second, false}} {
		if got, err := c.session.Lead(t.Context(), 0); got != c.want || err != nil {
			t.Fatal(got, err)
		}
	}
	first.Close()
	s.Await("the lock to be free", func() bool { got, err := second.Lead(t.Context(), time.Second); return got && err == nil })
}

// The server ends the session of a relay that hangs.
func TestARelayThatHangsLosesTheLock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	hangs, next := s.Session(), s.Session()
	if got, err := hangs.Lead(t.Context(), 0); !got || err != nil {
		t.Fatal(got, err)
	}
	begin := time.Now()
	s.Await("the lock to be free", func() bool { got, err := next.Lead(t.Context(), 2*time.Second); return got && err == nil })
	if waited := time.Since(begin); waited < outbox.WaitTimeout/2 {
		t.Errorf("the lock was free after %s", waited)
	}
	if _, err := hangs.Read(t.Context(), below, 1, nil); err == nil {
		t.Error("its session is still there")
	}
}

// Many gaps are read by one statement, in the order of the ids, and no more than asked for.
func TestManyRangesAreReadInOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Exec("INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms) SELECT 'order.close', n, 1 FROM generate_series(1, 20000) AS n")
	s.Exec("DELETE FROM tocsin_outbox WHERE id % 10 = 0")
	for _, statistics := range []string{"none", "of all rows"} {
		if statistics != "none" {
			s.Exec("ANALYZE tocsin_outbox")
		}
		var ranges []outbox.Range
		for id := uint64(1); id < 20000; id += 4 {
			ranges = append(ranges, outbox.Range{First: id, Last: id + 1})
		}
		rows, err := s.Session().Read(t.Context(), ranges, 1000, nil)
		if err != nil || len(rows) != 1000 {
			t.Fatal(len(rows), err)
		}
		for i, r := range rows {
			if r.ID%4 != 1 && r.ID%4 != 2 || r.ID%10 == 0 || i > 0 && r.ID <= rows[i-1].ID || r.ID > 2300 {
				t.Fatalf("statistics %s: row %d is %d", statistics, i, r.ID)
			}
		}
	}
}

// A transaction that reads an outbox does not wait for it, and keeps nobody from writing.
func TestARelayWaitsForNoTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Exec("INSERT INTO orders VALUES (1, 'placed')")
	var log devtest.Log
	s.relay(s.config(&log))
	s.In(func(tx *sql.Tx) error {
		if _, err := tx.Exec("UPDATE orders SET state = 'paid'"); err != nil {
			return err
		}
		if err := s.AddTx(tx, 1, "mine", tocsin.In(day)); err != nil {
			return err
		}
		s.Add(2, "other", tocsin.In(day))
		s.Want(2, "other pending")
		return nil
	})
	s.Want(1, "mine pending")
	s.Rows(0)
}
