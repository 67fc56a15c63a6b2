package upkeep

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// purgePolicies keep type 1 for an hour and type 2 for 30 days.
var purgePolicies = []biztype.Policy{{Name: "short", Number: 1, Retention: biztype.Duration(time.Hour)}, {Name: "long", Number: 2}}

// left counts the rows of a status in all tables.
func (s *site) left(status tocsin.Status) (total int) {
	s.t.Helper()
	for table := range s.layout.Total() {
		var n int
		if err := s.db.QueryRow("SELECT COUNT(*) FROM "+s.layout.Table(table)+" WHERE status = ?", status).Scan(&n); err != nil {
			s.t.Fatal(err)
		}
		total += n
	}
	return total
}

func (s *site) purging() *Purger {
	return NewPurger(PurgeConfig{
		Store:    s.store,
		Policies: func(context.Context) ([]biztype.Policy, error) { return purgePolicies, nil },
	})
}

func (s *site) purge(p *Purger) PurgeResult {
	s.t.Helper()
	r, err := p.Purge(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// fill has tasks on both sides of every line that Purge draws.
func (s *site) fill() {
	for _, status := range []tocsin.Status{tocsin.Pending, tocsin.Claimed, tocsin.Done, tocsin.Cancelled, tocsin.Dead} {
		for table := range s.layout.Total() {
			s.add(table, 5, 1, status, 2*time.Hour)
			s.add(table, 1, 1, status, 30*time.Minute)
			s.add(table, 3, 2, status, 31*24*time.Hour)
			s.add(table, 1, 2, status, 29*24*time.Hour)
			s.add(table, 1, 3, status, 999*24*time.Hour) // no policy
		}
	}
}

func TestPurgeKeepsWhatIsLiveYoungOrUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Purger)
		types  map[string]Removed
		dead   int // left
		done   int
	}{
		"done and cancelled": {func(*Purger) {}, map[string]Removed{"short": {20, 20, 0}, "long": {12, 12, 0}}, 44, 12},
		"dead ones too":      {func(p *Purger) { p.cfg.Dead = true }, map[string]Removed{"short": {20, 20, 20}, "long": {12, 12, 12}}, 12, 12},
		"by small batches":   {func(p *Purger) { p.rows = 2 }, map[string]Removed{"short": {20, 20, 0}, "long": {12, 12, 0}}, 44, 12},
		"a dry run":          {func(p *Purger) { p.cfg.DryRun, p.rows = true, 2 }, map[string]Removed{"short": {20, 20, 0}, "long": {12, 12, 0}}, 44, 44},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, small)
			s.fill()
			p := s.purging()
			c.change(p)
			r := s.purge(p)
			if !reflect.DeepEqual(r.Types, c.types) || r.Tables != 4 || r.Timeouts+r.Locked+len(r.Failed) != 0 || p.cfg.DryRun && r.Batches > 0 {
				t.Errorf("%+v", r)
			}
			if s.left(tocsin.Pending) != 44 || s.left(tocsin.Claimed) != 44 || s.left(tocsin.Dead) != c.dead || s.left(tocsin.Done) != c.done || s.left(tocsin.Cancelled) != c.done {
				t.Errorf("left %d pending, %d claimed, %d dead, %d done", s.left(tocsin.Pending), s.left(tocsin.Claimed), s.left(tocsin.Dead), s.left(tocsin.Done))
			}
		})
	}
}

// Rows in the wrong table are left. A whole page of them hides none that stands behind it.
func TestPurgeFindsWhatStandsBehindAPageOfMisplacedRows(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.misplace(1, 4, 1, tocsin.Done, 3*time.Hour)
	s.add(1, 1, 1, tocsin.Done, 2*time.Hour)
	p := s.purging()
	p.rows = 2
	if r := s.purge(p); r.Types["short"].Done != 1 || len(r.Failed) != 0 || s.left(tocsin.Done) != 4 {
		t.Errorf("%+v", r)
	}
}

func TestPurgeRemovesOldBells(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	for i := range 25 {
		s.exec(fmt.Sprintf("INSERT INTO %s.doorbell (table_no, job_id, biz_type, action_time) VALUES (2, 1, 1, UTC_TIMESTAMP(3) - INTERVAL %d MINUTE)", s.layout.Database(1), 100-4*i))
	}
	p := s.purging()
	p.rows = 4
	if r := s.purge(p); r.Bells != 10 && r.Bells != 11 { // 100, 96 ... 64 minutes, perhaps 60
		t.Errorf("%+v", r)
	}
}

func TestPurgeRemovesOldActs(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	const day = 24 * time.Hour
	for range 2 { // the second ones are found by a second page
		for _, age := range []time.Duration{89 * day, 91 * day, 92 * day} {
			if err := s.store.NoteActs(t.Context(), []store.PastAct{{At: time.Now().Add(-age), Person: "p", Via: "api", Operation: "o", Outcome: "ok"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := s.purging()
	p.rows = 3
	p.cfg.DryRun = true
	if r := s.purge(p); r.Acts != 0 {
		t.Errorf("a dry run: %+v", r)
	}
	p.cfg.DryRun = false
	if r := s.purge(p); r.Acts != 4 || !strings.Contains(r.String(), "; 4 acts") {
		t.Errorf("%+v", r)
	}
}

func TestPurgeLeavesALockedRowAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.add(1, 300, 1, tocsin.Done, 2*time.Hour)
	s.add(2, 10, 1, tocsin.Done, 2*time.Hour)
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("SELECT job_id FROM " + s.layout.Table(1) + " ORDER BY job_id DESC LIMIT 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if r := s.purge(s.purging()); r.Types["short"].Done != 309 || r.Locked != 1 || r.Timeouts < 3 || r.Timeouts > 8 {
		t.Errorf("%+v", r)
	}
	_ = tx.Rollback()
	if r := s.purge(s.purging()); r.Types["short"].Done != 1 || r.Batches != 1 {
		t.Errorf("after the lock: %+v", r)
	}
}

func TestTwoPurgesAtOnceRemoveEachRowOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	for table := range s.layout.Total() {
		s.add(table, 500, 1, tocsin.Done, 2*time.Hour)
	}
	var results [2]PurgeResult
	var both sync.WaitGroup
	for i := range results {
		both.Go(func() {
			p := s.purging()
			p.rows = 50
			results[i] = s.purge(p)
		})
	}
	both.Wait()
	if n := results[0].Total().Done + results[1].Total().Done; n != 2000 || s.left(tocsin.Done) != 0 {
		t.Errorf("%d removed, %d left", n, s.left(tocsin.Done))
	}
}

func TestPurgeLeavesATableThatIsGoneStaysLockedOrRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    string // of table 1
		class    mysql.Class
		timeouts int
		named    int // how often the error names the table
	}{
		"lock time-outs": {"SELECT job_id FROM {table} FOR UPDATE", mysql.Contended, 5, 1}, // of 20, 5 and three times 1 rows
		"another fault":  {"CREATE TRIGGER {table}_kept BEFORE DELETE ON {table} FOR EACH ROW SIGNAL SQLSTATE '45000'", mysql.Other, 0, 1},
		"it is gone":     {"DROP TABLE {table}", mysql.Missing, 0, 2}, // the wrap names it, and the server's own message
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, small)
			for table := range s.layout.Total() {
				s.add(table, 20, 1, tocsin.Done, 2*time.Hour)
				s.add(table, 20, 1, tocsin.Cancelled, 2*time.Hour)
			}
			tx, err := s.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.Exec(strings.ReplaceAll(c.fault, "{table}", s.layout.Table(1))); err != nil {
				t.Fatal(err)
			}
			r, err := s.purging().Purge(t.Context())
			if mysql.ClassOf(err) != c.class || strings.Count(err.Error(), s.layout.Table(1)) != c.named || r.Timeouts != c.timeouts || r.Types["short"] != (Removed{60, 60, 0}) ||
				r.Tables != 3 || !reflect.DeepEqual(r.Failed, []string{"db1"}) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

func TestPurgeWithoutPoliciesIsAnErrorAndWithSomeGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.fill()
	broken := errors.New("no policies")
	var policies []biztype.Policy
	var unread error
	registry := prometheus.NewRegistry()
	p := NewPurger(PurgeConfig{Store: s.store, Policies: func(context.Context) ([]biztype.Policy, error) { return policies, unread }, Registerer: registry})
	const ok, purges = "tocsin_purger_last_ok", "tocsin_purger_purges_total"
	for _, c := range []struct {
		policies []biztype.Policy
		unread   error
		done     int
		exported map[string]float64
	}{
		{nil, nil, 0, map[string]float64{ok: 1, purges + " ok": 1}},
		{nil, broken, 0, map[string]float64{purges + " ok": 1, purges + " failed": 1}},
		{purgePolicies[:1], nil, 20, map[string]float64{ok: 1, purges + " ok": 2, purges + " failed": 1}},
		{purgePolicies[1:], broken, 12, map[string]float64{purges + " ok": 2, purges + " failed": 2}},
	} {
		policies, unread = c.policies, c.unread
		if r, err := p.Purge(t.Context()); !errors.Is(err, c.unread) || r.Total().Done != c.done {
			t.Errorf("%+v, %v", r, err)
		}
		wantExported(t, registry, c.exported, ok, purges)
	}
}

func TestPaceNeverLeavesItsBoundsAndFindsOneRowSoon(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, purgeBatch).Draw(t, "most")
		p := pace{most, most}
		for _, good := range rapid.SliceOf(rapid.Bool()).Draw(t, "went") {
			n := p.of(rapid.IntRange(1, 10_000).Draw(t, "rows"))
			if n < 1 || n > most {
				t.Fatalf("a batch of %d of at most %d", n, most)
			}
			if good {
				p.went()
			} else if p.shrink(n) != (n > 1) {
				t.Fatalf("shrink of %d", n)
			}
		}
		tries := 1
		for p.shrink(p.of(purgeBatch)) {
			tries++
		}
		if tries > 5 {
			t.Fatalf("%d tries down to one row", tries)
		}
	})
}

func TestAPurgeThatFailsEachSecondIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log devtest.Log
		ctx, end := context.WithTimeout(t.Context(), 90*time.Second)
		defer end()
		p := NewPurger(PurgeConfig{
			Logger:   log.Logger(), // and no store, since it begins with the policies
			Policies: func(context.Context) ([]biztype.Policy, error) { return nil, errors.New("connection refused") },
		})
		at, err := ParseTimes("@every 1s")
		if err != nil {
			t.Fatal(err)
		}
		if p.Run(ctx, at); len(log.Lines("purge failed in part")) != 2 {
			t.Errorf("logged %v", log.Lines())
		}
	})
}

// addRuns puts runs of types into the history of database 0, one of each type each hour from some hours ago to others.
func (s *site) addRuns(from, to int, types ...uint64) {
	s.t.Helper()
	var rows []string
	for ago := from; ago > to; ago-- {
		for _, kind := range types {
			rows = append(rows, fmt.Sprintf("(1, %d, 0, 1, 'n', UTC_TIMESTAMP(3) - INTERVAL %d MINUTE, 0, 5, 'completed')", kind, ago*60-30))
		}
	}
	s.exec("INSERT INTO " + s.layout.Database(0) + ".run (job_id, biz_type, version, attempt, node, started, lateness_ms, duration_ms, outcome) VALUES " + strings.Join(rows, ","))
}

// runsLeft counts the runs of a type.
func (s *site) runsLeft(kind uint64) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow("SELECT COUNT(*) FROM "+s.layout.Database(0)+".run WHERE biz_type = ?", kind).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// sent returns how often a statement was sent.
func (s *site) sent(registry *prometheus.Registry, statement string) (times int) {
	s.t.Helper()
	families, err := registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "tocsin_store_round_trip_seconds" && m.GetLabel()[0].GetValue() == statement {
				times += int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return times
}

// purgeRuns purges with pages of 10, and returns how many of database 0 were looked at.
func (s *site) purgeRuns() (result PurgeResult, pages int) {
	s.t.Helper()
	registry := prometheus.NewRegistry()
	if err := s.store.RegisterMetrics(registry); err != nil {
		s.t.Fatal(err)
	}
	jumps, pages := s.sent(registry, "run_bounds"), s.sent(registry, "old_runs")
	p := s.purging()
	p.rows = 10
	result = s.purge(p)
	if jumps = s.sent(registry, "run_bounds") - jumps; jumps > s.layout.Databases {
		s.t.Errorf("looked %d times where the runs of a time begin", jumps)
	}
	return result, s.sent(registry, "old_runs") - pages - s.layout.Databases + 1
}

// Type 1 is kept for an hour, 2 for 30 days: a purge each hour or day reads what has expired since, and of the long history a day.
func TestAPurgeDoesNotReadTheLongHistoryOfOtherTypes(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.addRuns(800, 0, 1, 2) // 33 days
	if r, pages := s.purgeRuns(); s.runsLeft(1) != 1 || s.runsLeft(2) != 720 || r.Runs != 799+80 {
		t.Errorf("first: %d removed in %d pages, left %d and %d", r.Runs, pages, s.runsLeft(1), s.runsLeft(2))
	}
	if r, pages := s.purgeRuns(); r.Runs != 0 || pages > 6 { // 27 rows of 721
		t.Errorf("again: %d removed in %d pages", r.Runs, pages)
	}
	for hours := range 3 { // time passes
		s.exec("UPDATE " + s.layout.Database(0) + ".run SET started = started - INTERVAL 60 MINUTE")
		s.addRuns(1, 0, 1, 2)
		if r, pages := s.purgeRuns(); r.Runs != 2 || s.runsLeft(1) != 1 || s.runsLeft(2) != 720 || pages > 8 {
			t.Errorf("%d hours later: %d removed in %d pages, left %d and %d", hours+1, r.Runs, pages, s.runsLeft(1), s.runsLeft(2))
		}
	}
}

// After a pause, or after a retention was shortened, all runs are read, and none is left behind.
func TestAPurgeAfterAPauseReadsAllRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.addRuns(400, 300, 1, 2)
	s.addRuns(300, 40, 2) // nothing of type 1 for days
	s.addRuns(40, 0, 1, 2)
	if r, _ := s.purgeRuns(); s.runsLeft(1) != 1 || s.runsLeft(2) != 400 || r.Runs != 139 {
		t.Errorf("%d removed, left %d and %d", r.Runs, s.runsLeft(1), s.runsLeft(2))
	}
	p := s.purging()
	p.rows, p.cfg.DryRun = 10, true
	s.addRuns(3, 1, 1)
	if r := s.purge(p); r.Runs != 2 || s.runsLeft(1) != 3 || !strings.HasSuffix(r.String(), "; 2 runs") {
		t.Errorf("a dry purge counts %d, and leaves %d: %s", r.Runs, s.runsLeft(1), r)
	}
	p.cfg.DryRun = false
	if r := s.purge(p); r.Runs != 2 || r.Batches == 0 || s.runsLeft(1) != 1 {
		t.Errorf("then %d are removed in %d batches: %s", r.Runs, r.Batches, r)
	}
}
