package upkeep

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

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
	cfg := s.purging()
	cfg.Batch = 10
	result = s.purge(cfg)
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
	cfg := s.purging()
	cfg.Batch, cfg.DryRun = 10, true
	s.addRuns(3, 1, 1)
	if r := s.purge(cfg); r.Runs != 2 || s.runsLeft(1) != 3 || !strings.HasSuffix(r.String(), "; 2 runs") {
		t.Errorf("a dry purge counts %d, and leaves %d: %s", r.Runs, s.runsLeft(1), r)
	}
	cfg.DryRun = false
	if r := s.purge(cfg); r.Runs != 2 || r.Batches == 0 || s.runsLeft(1) != 1 {
		t.Errorf("then %d are removed in %d batches: %s", r.Runs, r.Batches, r)
	}
}
