package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// span is a part of a scenario's time.
type span struct{ from, to time.Time }

// lateness gives that of the first deliveries that count and whose due time lies in the span, in order.
func (s *scenario) lateness(in span, counts func(delivery) bool) (late Lateness) {
	s.t.Helper()
	for _, of := range s.byTask() {
		if d := of[0]; d.Version == 0 && d.Attempts == 0 && d.Due.After(in.from) && d.Due.Before(in.to) && counts(d) {
			late = append(late, d.At.Sub(d.Due))
		}
	}
	slices.Sort(late)
	return late
}

// compare prints two spans' lateness and fails where the later p99 is above both
// twice the earlier one and what the noise of a small machine explains.
func (s *scenario) compare(what string, calm, sick Lateness) {
	s.t.Helper()
	const noise = 200 * time.Millisecond
	s.t.Logf("%s: before p50 %s p99 %s of %d, meanwhile p50 %s p99 %s max %s of %d", what,
		calm.Quantile(0.5), calm.Quantile(0.99), len(calm),
		sick.Quantile(0.5), sick.Quantile(0.99), sick.Quantile(1), len(sick))
	if len(calm) < 100 || len(sick) < 100 {
		s.t.Errorf("%s: too few deliveries to say anything", what)
	}
	if p99 := sick.Quantile(0.99); p99 > 2*calm.Quantile(0.99) && p99 > noise {
		s.t.Errorf("%s: p99 %s, before %s", what, p99, calm.Quantile(0.99))
	}
}

// TestOneSickServerDelaysNoOther: one of four servers becomes 5 s slow, and is then
// cut off. The tasks are added before, so that only deliveries are measured.
func TestOneSickServerDelaysNoOther(t *testing.T) {
	onlyLong(t)
	s := begin(t, Options{Servers: 4, Nodes: 3})
	start := time.Now().Add(5 * time.Second)
	s.fill(27_000, start, 90*time.Second, brief)
	s.pause(time.Until(start.Add(20 * time.Second)))
	sick := span{from: time.Now()}
	for _, step := range []Step{
		{Fault: SlowServer, Server: 0, Length: 25 * time.Second, By: 5 * time.Second},
		{Fault: CutServer, Server: 0, Length: 25 * time.Second},
	} {
		if err := s.Do(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	sick.to = time.Now()
	s.pause(time.Until(start.Add(95 * time.Second)))
	others := func(d delivery) bool { return s.databaseOf(d.JobID.Table()) != s.databases[0] }
	report := s.verdict()
	s.compare("the three other servers", s.lateness(span{start, sick.from}, others), s.lateness(sick, others))
	if inHand := 3 * 3 * 64; report.Seconds() > inHand {
		t.Errorf("%d second deliveries, more than %d could be in hand", report.Seconds(), inHand)
	}
}

// TestSickTablesDelayThemselvesOnly: for a minute one table is locked, one is gone,
// one has a cancel in an open transaction, and one has a row that can't be settled.
func TestSickTablesDelayThemselvesOnly(t *testing.T) {
	onlyLong(t)
	s := begin(t, Options{Servers: 2, Nodes: 2})
	start := time.Now().Add(5 * time.Second)
	s.fill(27_000, start, 90*time.Second, brief)
	s.pause(time.Until(start.Add(20 * time.Second)))
	sick := span{from: time.Now(), to: time.Now().Add(time.Minute)}
	const locked, gone, cancelling, refusing = 1, 6, 9, 14
	heal := []func(){s.loseTable(gone), s.leaveCancelOpen(cancelling), s.refuseRow(refusing)}
	if err := s.Do(t.Context(), Step{Fault: LockTable, Table: locked, Length: time.Until(sick.to)}); err != nil {
		t.Fatal(err)
	}
	for _, f := range heal {
		f()
	}
	s.pause(time.Until(start.Add(95 * time.Second)))
	well := func(d delivery) bool {
		return !slices.Contains([]int{locked, gone, cancelling, refusing}, d.JobID.Table())
	}
	calm := s.lateness(span{start, sick.from}, well)
	s.compare("tables without a fault", calm, s.lateness(sick, well))
	t.Logf("the table with the open cancel, which it may delay: p99 %s",
		s.lateness(sick, func(d delivery) bool { return d.JobID.Table() == cancelling }).Quantile(0.99))
	s.compare("the table with the refused row", calm, s.lateness(sick, func(d delivery) bool { return d.JobID.Table() == refusing }))
	s.verdict()
}

// exec runs a statement as root on the server of a table, named {table} in it.
func (s *scenario) exec(table int, statement string) {
	s.t.Helper()
	name := s.opts.Layout.Table(table)
	if err := s.databaseOf(table).exec(s.t.Context(), strings.ReplaceAll(statement, "{table}", name)); err != nil {
		s.t.Fatal(err)
	}
}

// loseTable makes a table vanish for every statement; the function returned brings
// it back with its rows.
func (s *scenario) loseTable(table int) (back func()) {
	s.t.Helper()
	s.exec(table, "RENAME TABLE {table} TO {table}_away")
	return func() { s.exec(table, "RENAME TABLE {table}_away TO {table}") }
}

// leaveCancelOpen cancels a task in a transaction that is rolled back in the end.
func (s *scenario) leaveCancelOpen(table int) (rollback func()) {
	s.t.Helper()
	tx, err := s.databaseOf(table).direct.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	change, err := s.client.CancelTx(s.t.Context(), tx, tocsin.ByID(s.pendingOf(table)))
	if err != nil || change.Changed != 1 {
		s.t.Fatalf("%+v, %v", change, err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			s.t.Error(err)
		}
	}
}

// refuseRow makes the server refuse every change of one row.
func (s *scenario) refuseRow(table int) (allow func()) {
	s.t.Helper()
	schema := s.opts.Layout.Database(s.opts.Layout.DatabaseOf(table))
	s.exec(table, fmt.Sprintf(`CREATE TRIGGER %s.refuse BEFORE UPDATE ON {table} FOR EACH ROW
IF OLD.job_id = %d THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF`, schema, s.pendingOf(table)))
	return func() { s.exec(table, "DROP TRIGGER "+schema+".refuse") }
}

// pendingOf gives a task of the table that is due in about 20 s.
func (s *scenario) pendingOf(table int) tocsin.JobID {
	s.t.Helper()
	query := "SELECT job_id FROM {table} WHERE status = 0 AND action_time > UTC_TIMESTAMP() + INTERVAL 20 SECOND ORDER BY action_time LIMIT 1"
	d := s.databaseOf(table)
	ids, err := readAll[tocsin.JobID](s.t.Context(), d.direct, d.String(), strings.ReplaceAll(query, "{table}", s.opts.Layout.Table(table)))
	if err != nil || len(ids) == 0 {
		s.t.Fatal("no task is due in 20 s", err)
	}
	return ids[0]
}
