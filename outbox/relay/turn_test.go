package relay

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

// turn makes a turn that the test drives step by step.
func (s *shop) turn() *turn {
	s.TB.Helper()
	r, err := New(s.config())
	if err != nil {
		s.TB.Fatal(err)
	}
	return newTurn(&line{Relay: r, outbox: s.Outbox(), tasks: client.MoverOf(s.Client), gauges: r.metrics.of("shop")}, s.Session())
}

func TestAGapIsPolledWhileATransactionIsOpenInIt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Add(1, "x", tocsin.In(day)) // id 1
	open := s.Begin()
	if err := s.AddTx(open, 2, "late", tocsin.In(day)); err != nil { // id 2
		t.Fatal(err)
	}
	gone := s.Begin()
	if err := s.AddTx(gone, 3, "gone", tocsin.In(day)); err != nil { // id 3
		t.Fatal(err)
	}
	if err := gone.Rollback(); err != nil {
		t.Fatal(err)
	}
	s.Exec("INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms) VALUES (5, 'order.close', 5, 1)")
	turn := s.turn()
	if err := turn.poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	polls := func(when string, want ...uint64) {
		t.Helper()
		for id := uint64(0); id < 6; id++ {
			if turn.known.gaps().has(id) != slices.Contains(want, id) {
				t.Errorf("%s: polls %v, want %v", when, turn.known.gaps(), want)
			}
		}
	}
	polls("at first", 0, 2, 3, 4)
	if err := turn.closeGaps(t.Context()); err != nil {
		t.Fatal(err)
	}
	polls("before a minute is over", 0, 2, 3, 4)
	turn.marks[0].at = turn.marks[0].at.Add(-time.Minute)
	if err := turn.closeGaps(t.Context()); err != nil {
		t.Fatal(err)
	}
	polls("a minute later", 2, 3, 4) // one gap
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := turn.poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	polls("after the commit", 3, 4)
	if err := turn.closeGaps(t.Context()); err != nil {
		t.Fatal(err)
	}
	polls("in the end")
	if err := turn.whole(t.Context()); err != nil {
		t.Errorf("rows in memory are taken for new ones: %v", err)
	}
}

// Thousands of gaps take several statements, which read one snapshot.
func TestManyGapsAreReadAsOneSnapshot(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var rows []string
	for id := 2; id <= 8*mostRanges; id += 2 {
		rows = append(rows, "("+strconv.Itoa(id)+", 'order.close', "+strconv.Itoa(id)+", 86400000)")
	}
	s.Exec("INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms) VALUES " + strings.Join(rows, ","))
	s.relay(s.config())
	s.Rows(0)
	s.Exec("INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms) VALUES (3, 'order.close', 3, 86400000), (1001, 'order.close', 1001, 86400000)")
	s.Want(3, " pending")
	s.Want(1001, " pending")
	s.Rows(0)
}

// Gaps close together are read as one range, so thousands of them cost little. What commits in one is found, and a row where
// none should be is not taken for it.
func TestGapsThatAreCloseTogetherAreReadAsOne(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	turn := s.turn()
	for id := uint64(1); id <= 20_000; id += 2 {
		turn.known.add(id)
		turn.gone.add(id)
	}
	turn.known.addRange(outbox.Range{First: 20_001, Last: 30_000})
	for id := uint64(40_000); id <= 40_000+10*bridgeIDs; id += 2 {
		turn.known.add(id) // rows wait here
	}
	in := turn.known.gaps().joined(turn.gone, bridgeIDs)
	if want := 2 + 5*bridgeIDs + 1; len(in) != want || !in.covers(outbox.Range{First: 0, Last: 20_000}) || in.has(20_001) || in.has(40_000) {
		t.Errorf("%d ranges, want %d: %v", len(in), want, in[:min(len(in), 5)])
	}
	s.Exec("INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms) VALUES (10000, 'order.close', 9, 1000), (40001, 'order.close', 10, 1000)")
	if err := turn.poll(t.Context()); err != nil || !turn.hand[10_000] || !turn.hand[40_001] {
		t.Errorf("rows in gaps are not read: %v", err)
	}
	s.Exec("INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms) VALUES (15001, 'order.close', 9, 1000)")
	if err := turn.poll(t.Context()); !errors.Is(err, errReused) {
		t.Errorf("a row with the id of another: %v", err)
	}
	if turn.hand[15_001] {
		t.Error("it was taken")
	}
}

// With gaps between all ids, rows that wait are many ranges, until the gaps are closed.
func TestWaitingRowsAreFewRangesOnceGapsAreClosed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	turn := s.turn()
	l := &lane{}
	turn.lanes[0] = l
	for id := uint64(1); id < 2000; id += 2 {
		turn.known.add(id)
		l.parked.addNear(id, turn.known)
	}
	if len(l.parked) != 1000 {
		t.Fatalf("%d ranges", len(l.parked))
	}
	turn.marks = []mark{{at: time.Now().Add(-2 * time.Minute), last: 1999}}
	if err := turn.closeGaps(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(l.parked) != 1 || len(turn.known.gaps()) != 1 {
		t.Errorf("%d ranges wait, and %d are polled", len(l.parked), len(turn.known.gaps()))
	}
}

// The rights that `tocsin outbox plan` and `tocsin ddl grants` print are enough for a relay.
func TestARelayNeedsNoOtherRights(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	user := s.Config.Layout.Prefix + "u"
	s.Exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY 'x'")
	t.Cleanup(func() { _, _ = s.DB.Exec("DROP USER '" + user + "'@'%'") })
	plan, err := ddl.PlanOutbox(ddl.Outbox{Table: s.Config.Outbox.Table})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(plan) {
		if _, grant, ok := strings.Cut(strings.TrimSpace(line), "GRANT SELECT"); ok && strings.Contains(grant, "tocsin_relay") {
			s.Exec("GRANT SELECT" + strings.Replace(strings.TrimSuffix(grant, ";"), "tocsin_relay", user, 1))
		}
	}
	plans, err := ddl.Grants(s.Config, ddl.GrantOptions{Roles: []string{"relay"}, User: user})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(plans[0].Text) {
		if strings.HasPrefix(line, "GRANT") {
			s.Exec(strings.TrimSuffix(strings.TrimSpace(line), ";"))
		}
	}
	parsed, err := mysql.ParseDSN(devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	parsed.User, parsed.Passwd = user, "x"
	cfg := s.config()
	cfg.Tables.Servers = []tocsin.Server{{Name: "db1", DSN: parsed.FormatDSN()}}
	cfg.Outboxes[0].DSN = parsed.FormatDSN()
	cfg.GapAge = time.Millisecond
	s.relay(cfg)
	s.Exec("INSERT INTO {outbox} (biz_type, biz_id, delay_ms) VALUES ('no.such', 9, 1)")
	s.Add(1, "a", tocsin.In(0))
	s.Cancel(1)
	s.Add(1, "b", tocsin.In(0))
	s.Want(1, "a cancelled, b pending")
	s.Await("a row to be set aside", func() bool { return s.Number("SELECT COUNT(*) FROM {outbox} WHERE last_error <> ''") == 1 })
}

func TestOutboxesWithOneIdentityAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Exec("CREATE DATABASE {prefix}_copy")
	s.Exec("CREATE TABLE {prefix}_copy.tocsin_outbox LIKE {outbox}")
	var log devtest.Log
	cfg := s.config()
	cfg.Logger = log.Logger()
	cfg.Outboxes = append(cfg.Outboxes, outbox.Config{Name: "copy", DSN: devtest.DSN(t), Table: s.Config.Layout.Prefix + "_copy.tocsin_outbox"})
	s.relay(cfg)
	if line := log.Await(t, "outbox can't be relayed: its rows wait"); !strings.Contains(line["error"].(string), "the same identity") {
		t.Errorf("%v", line)
	}
}

// A table that another one has replaced is another outbox, whatever the turn has read before: its rows are not moved under the
// identity of the former.
func TestARowOfATableThatWasReplacedIsMovedUnderItsOwnIdentity(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	turn := s.turn()
	s.Exec("RENAME TABLE {outbox} TO {prefix}_shop.former")
	s.applyOutbox(s.From)
	s.Add(1, "x", tocsin.In(day))
	if err := turn.run(t.Context()); err == nil || !strings.Contains(err.Error(), "has become another outbox") {
		t.Error(err)
	}
	if got := s.Tasks(1); got != "" {
		t.Errorf("moved under the identity of the former table: %s", got)
	}
	s.relay(s.config())
	s.Want(1, "x pending")
	s.Rows(0)
}
