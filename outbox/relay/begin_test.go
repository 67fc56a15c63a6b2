package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/outbox"
)

// settle lets a turn move what it can and close its gaps, until it has seen that no row is below an id, and notes what it
// has found for other turns.
func (s *shop) settle(below uint64) {
	s.TB.Helper()
	turn := s.turn()
	turn.cfg.Whole, turn.cfg.GapAge = 10*time.Millisecond, time.Millisecond
	end := s.Run(func(ctx context.Context) { _ = turn.run(ctx) })
	s.Await("a turn to settle", func() bool { return turn.settled.Load() >= below })
	end()
	if got := turn.settled.Load(); got != below {
		s.TB.Errorf("settled below %d, want %d", got, below)
	}
	if err := turn.forget(s.TB.Context()); err != nil {
		s.TB.Fatal(err)
	}
}

// patient are tasks whose notes are waited for as long as it takes.
type patient struct{ Mover }

func (p patient) SettledBelow(ctx context.Context, identity string) (uint64, error) {
	return p.Mover.SettledBelow(context.WithoutCancel(ctx), identity)
}

func (p patient) NoteSettled(ctx context.Context, identity string, database int, id uint64, anew bool) error {
	return p.Mover.NoteSettled(context.WithoutCancel(ctx), identity, database, id, anew)
}

// begins begins another turn, and returns the first id that it polls.
func (s *shop) begins() (*turn, uint64) {
	s.TB.Helper()
	turn := s.turn()
	turn.tasks = patient{turn.tasks}
	if err := turn.begin(s.TB.Context()); err != nil {
		s.TB.Fatal(err)
	}
	return turn, turn.known.gaps()[0].First
}

// put writes a row with an id.
func (s *shop) put(id int, lastError string) {
	s.TB.Helper()
	s.Exec("INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms, last_error) VALUES (?, 'order.close', ?, 86400000, ?)", id, id, lastError)
}

// A turn does not read over what was deleted long ago, but it leaves out no row that may still be there, or come.
func TestATurnBeginsWhereAnotherHasSettled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(*shop) // ids 1 to 9 and 11 to 20 are moved
		below  uint64
	}{
		"a gap is closed":                      {func(*shop) {}, 21},
		"a transaction is open in it":          {func(s *shop) { s.hold(10) }, 10},
		"a row was set aside":                  {func(s *shop) { s.put(10, "no room") }, 10},
		"a row waits behind one set aside":     {func(s *shop) { s.put(10, ""); s.Exec("UPDATE {outbox} SET biz_type = 'no.such' WHERE id = 10") }, 10},
		"a transaction is open behind the end": {func(s *shop) { s.hold(25) }, 21},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			c.before(s)
			for id := 1; id <= 20; id++ {
				if id != 10 {
					s.put(id, "")
				}
			}
			s.settle(c.below)
			if _, first := s.begins(); first != c.below {
				t.Errorf("begins at %d, want %d", first, c.below)
			}
		})
	}
}

// hold writes a row in a transaction that stays open until the test ends.
func (s *shop) hold(id int) {
	s.TB.Helper()
	s.keep(fmt.Sprintf("INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms) VALUES (%d, 'order.close', 1, 1)", id))
}

// keep runs statements in a transaction that stays open until the test ends.
func (s *shop) keep(statements ...string) *sql.Tx {
	s.TB.Helper()
	tx := s.Begin()
	for _, statement := range statements {
		if _, err := tx.Exec(s.Fill(statement)); err != nil {
			s.TB.Fatal(err)
		}
	}
	return tx
}

// A range is settled unless a row is in it, whatever an open transaction has done with the row, and although rows before and
// behind it are of open transactions.
func TestARangeIsSettledUnlessARowIsInIt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, id := range []int{10, 20, 22} {
		s.put(id, "")
	}
	for _, id := range []int{5, 25, 40} {
		s.hold(id)
	}
	s.keep("DELETE FROM {outbox} WHERE id = 20")
	s.keep("INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms) VALUES (30, 'order.close', 1, 1)", "SAVEPOINT written", "DELETE FROM {outbox} WHERE id = 30")
	for name, c := range map[string]struct {
		in   outbox.Range
		want bool
	}{
		"below all rows":                {outbox.Range{First: 0, Last: 4}, true},
		"from the first id to an open":  {outbox.Range{First: 0, Last: 5}, false},
		"between an open and committed": {outbox.Range{First: 6, Last: 9}, true},
		"one id before an open row":     {outbox.Range{First: 39, Last: 39}, true},
		"one open row":                  {outbox.Range{First: 40, Last: 40}, false},
		"a committed row":               {outbox.Range{First: 6, Last: 15}, false},
		"before a row being deleted":    {outbox.Range{First: 11, Last: 19}, true},
		"a row being deleted":           {outbox.Range{First: 11, Last: 24}, false},
		"before an open row":            {outbox.Range{First: 23, Last: 24}, true},
		"a row that is taken back":      {outbox.Range{First: 26, Last: 39}, false},
		"above all rows":                {outbox.Range{First: 41, Last: 1000}, true},
	} {
		settled, err := s.turn().session.Settled(t.Context(), []outbox.Range{c.in}, nil)
		if got := len(settled) == 1; err != nil || got != c.want {
			t.Errorf("%s: settled %v, %v", name, got, err)
		}
	}
}

// What was settled is void if the outbox gives ids again, or a server that has lost its last transactions has rows again.
func TestATurnBeginsAtTheFirstIDIfIDsAreGivenAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		again string
		void  bool
	}{
		"it was emptied":                {"TRUNCATE TABLE {outbox}", true},
		"its next id is a lower one":    {"ALTER TABLE {outbox} AUTO_INCREMENT = 5", true},
		"a row is there again":          {"INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms) VALUES (7, 'order.close', 7, 86400000)", false},
		"a row set aside is there":      {"INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms, last_error) VALUES (7, 'order.close', 7, 1, 'no')", false},
		"the first row is there":        {"INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms) VALUES (1, 'order.close', 7, 86400000)", false},
		"the last settled one is there": {"INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms) VALUES (20, 'order.close', 7, 86400000)", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			for id := 1; id <= 20; id++ {
				s.put(id, "")
			}
			s.settle(21)
			s.Exec(c.again)
			turn, first := s.begins()
			if first != 0 {
				t.Errorf("begins at %d", first)
			}
			if below, err := client.MoverOf(s.Client).SettledBelow(t.Context(), turn.session.Identity); c.void != (below == 0) || err != nil {
				t.Errorf("settled below %d, %v", below, err)
			}
		})
	}
}

// An id was given again while no relay ran, by a transaction that is still open, and the next id is past the note.
func TestATurnBeginsAtTheFirstIDIfATransactionIsOpenBelow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for id := 1; id <= 20; id++ {
		s.put(id, "")
	}
	s.settle(21)
	s.Exec("TRUNCATE TABLE {outbox}")
	s.hold(7)
	s.put(40, "")
	if _, first := s.begins(); first != 0 {
		t.Errorf("begins at %d", first)
	}
}

// The notes are no rows of an outbox: the ledger keeps them, and one for each outbox and database.
func TestNotesOfWhatIsSettledAreKept(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	noteAs := func(database int, id uint64, anew bool) {
		t.Helper()
		if err := client.MoverOf(s.Client).NoteSettled(t.Context(), "one", database, id, anew); err != nil {
			t.Fatal(err)
		}
	}
	note := func(database int, id uint64) { noteAs(database, id, false) }
	want := func(identity string, below uint64) {
		t.Helper()
		if got, err := client.MoverOf(s.Client).SettledBelow(t.Context(), identity); got != below || err != nil {
			t.Errorf("%s: settled below %d, %v, want %d", identity, got, err, below)
		}
	}
	for _, id := range []uint64{5, 9, 7} {
		note(0, id)
	}
	want("one", 0) // a database has no note
	note(1, 8)
	want("one", 7)
	want("two", 0)
	none := func(context.Context, []outbox.Key) (map[outbox.Key]bool, error) { return nil, nil }
	for database := range s.Config.Layout.Databases {
		if err := client.MoverOf(s.Client).Upkeep(t.Context(), "one", database, none); err != nil {
			t.Fatal(err)
		}
		if n := s.Number("SELECT COUNT(*) FROM " + s.Config.Layout.Database(database) + ".relayed WHERE gone IS NULL"); n != 1 {
			t.Errorf("%d notes", n)
		}
	}
	want("one", 7)
	note(0, 0)
	want("one", 0)
	note(0, 9) // by an upkeep that had loaded the id before
	want("one", 0)
	noteAs(0, 9, true) // by a turn that found the 0 when it began
	want("one", 8)
}

// A held database is an older copy, perhaps, of one that another relay writes to.
func TestTheLedgerOfAHeldDatabaseStaysAsItIs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for id, gone := range map[int]string{1: "NULL", 2: "UTC_TIMESTAMP(3) - INTERVAL 1 HOUR"} {
		s.Exec(fmt.Sprintf("INSERT INTO {prefix}_0.relayed (outbox, id, created, job_id, gmt_create, gone) VALUES ('one', %d, '2026-01-02', 1, UTC_TIMESTAMP(3) - INTERVAL 1 HOUR, %s)", id, gone))
	}
	s.Exec("UPDATE {prefix}_0.layout SET state = 'held'")
	none := func(context.Context, []outbox.Key) (map[outbox.Key]bool, error) { return nil, nil }
	tasks := client.MoverOf(s.Client)
	for what, err := range map[string]error{
		"upkeep": tasks.Upkeep(t.Context(), "one", 0, none), "note": tasks.NoteSettled(t.Context(), "one", 0, 9, true),
	} {
		if !errors.Is(err, tocsin.ErrLayout) {
			t.Errorf("%s: %v", what, err)
		}
	}
	const same = "SELECT COUNT(*) FROM {prefix}_0.relayed WHERE id = 1 AND gone IS NULL OR id = 2"
	if rows := s.Number("SELECT COUNT(*) FROM {prefix}_0.relayed"); rows != 2 || s.Number(same) != 2 {
		t.Errorf("%d rows, of which %d are as they were", rows, s.Number(same))
	}
}

// An upkeep that has loaded an id notes it after the turn has noted that the ids are given again.
func TestANoteOfTheUpkeepDoesNotOutlastAVoid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	turn := s.turn()
	tasks := &slowNotes{Mover: patient{turn.tasks}, before: func() { turn.void(t.Context()) }}
	turn.tasks = tasks
	turn.settled.Store(100)
	turn.anew.Store(true)
	if err := turn.forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	identity := turn.session.Identity
	if below, err := tasks.SettledBelow(t.Context(), identity); err != nil || below != 0 {
		t.Errorf("settled below %d, %v", below, err)
	}
	for database := range s.Config.Layout.Databases {
		if n := s.Number("SELECT COUNT(*) FROM "+s.Config.Layout.Database(database)+".relayed WHERE outbox = ? AND id = 100 AND NOT EXISTS (SELECT 1 FROM "+
			s.Config.Layout.Database(database)+".relayed AS void WHERE void.outbox = ? AND void.id = 0)", identity+" settled", identity+" settled"); n != 0 {
			t.Errorf("database %d notes the id, and not that it is void", database)
		}
	}
}

// slowNotes calls before once, when the upkeep is about to note an id.
type slowNotes struct {
	Mover
	before func()
}

func (m *slowNotes) NoteSettled(ctx context.Context, identity string, database int, id uint64, anew bool) error {
	if before := m.before; before != nil && id > 0 {
		m.before = nil
		before()
	}
	return m.Mover.NoteSettled(ctx, identity, database, id, anew)
}

// A database that hangs keeps no other from noting that the outbox has given ids again.
func TestADatabaseThatHangsHidesNoVoid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	turn := s.turn()
	noted := map[int]bool{}
	turn.tasks = hangs{patient{turn.tasks}, func(database int) { noted[database] = true }}
	turn.void(t.Context())
	if !noted[1] || noted[0] {
		t.Errorf("noted in %v", noted)
	}
}

// hangs has a database 0 that does not answer, and tells of the notes in the others.
type hangs struct {
	Mover
	noted func(database int)
}

func (m hangs) NoteSettled(ctx context.Context, identity string, database int, id uint64, anew bool) error {
	if database == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.noted(database)
	return m.Mover.NoteSettled(ctx, identity, database, id, anew)
}

// A turn begins although no database of the tasks answers.
func TestATurnBeginsWithoutTheDatabasesOfTheTasks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put(1, "")
	turn := s.turn()
	turn.tasks = silent{client.MoverOf(s.Client)}
	if err := turn.begin(t.Context()); err != nil || len(turn.known) > 0 {
		t.Error(turn.known, err)
	}
	if rows, err := turn.session.Read(t.Context(), []outbox.Range{{First: 0, Last: 5}}, 5, nil); len(rows) != 1 || err != nil {
		t.Error(rows, err)
	}
}

// silent answers no question.
type silent struct{ Mover }

func (silent) SettledBelow(ctx context.Context, _ string) (uint64, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}
