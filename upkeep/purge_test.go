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

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
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

func (s *site) purging() PurgeConfig {
	return PurgeConfig{
		Store:    s.store,
		Policies: func(context.Context) ([]biztype.Policy, error) { return purgePolicies, nil },
	}
}

func (s *site) purge(cfg PurgeConfig) PurgeResult {
	s.t.Helper()
	r, err := s.tryPurge(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// tryPurge is purge where something fails.
func (s *site) tryPurge(cfg PurgeConfig) (PurgeResult, error) {
	s.t.Helper()
	p, err := NewPurger(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return p.Purge(s.t.Context())
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
		change func(*PurgeConfig)
		types  map[string]Removed
		dead   int // left
		done   int
	}{
		"done and cancelled": {func(*PurgeConfig) {}, map[string]Removed{"short": {20, 20, 0}, "long": {12, 12, 0}}, 44, 12},
		"dead ones too":      {func(c *PurgeConfig) { c.Dead = true }, map[string]Removed{"short": {20, 20, 20}, "long": {12, 12, 12}}, 12, 12},
		"by small batches":   {func(c *PurgeConfig) { c.Batch = 2 }, map[string]Removed{"short": {20, 20, 0}, "long": {12, 12, 0}}, 44, 12},
		"a dry run":          {func(c *PurgeConfig) { c.DryRun, c.Batch = true, 2 }, map[string]Removed{"short": {20, 20, 0}, "long": {12, 12, 0}}, 44, 44},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, small)
			s.fill()
			cfg := s.purging()
			c.change(&cfg)
			r := s.purge(cfg)
			if !reflect.DeepEqual(r.Types, c.types) || r.Tables != 4 || r.Timeouts+r.Locked+len(r.Failed) != 0 || cfg.DryRun && r.Batches > 0 {
				t.Errorf("%+v", r)
			}
			if s.left(tocsin.Pending) != 44 || s.left(tocsin.Claimed) != 44 || s.left(tocsin.Dead) != c.dead || s.left(tocsin.Done) != c.done || s.left(tocsin.Cancelled) != c.done {
				t.Errorf("left %d pending, %d claimed, %d dead, %d done", s.left(tocsin.Pending), s.left(tocsin.Claimed), s.left(tocsin.Dead), s.left(tocsin.Done))
			}
		})
	}
}

func TestPurgeRemovesOldBells(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	for i := range 25 {
		s.exec(fmt.Sprintf("INSERT INTO %s.doorbell (table_no, job_id, biz_type, action_time) VALUES (2, 1, 1, UTC_TIMESTAMP(3) - INTERVAL %d MINUTE)", s.layout.Database(1), 100-4*i))
	}
	cfg := s.purging()
	cfg.Batch = 4
	if r := s.purge(cfg); r.Bells != 10 && r.Bells != 11 { // 100, 96 ... 64 minutes, perhaps 60
		t.Errorf("%+v", r)
	}
	cfg.BellAge = time.Minute
	if _, err := NewPurger(cfg); err == nil {
		t.Error("bells that nodes still wait for")
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

func TestPurgeGoesRoundAMissingTable(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.fill()
	s.exec("DROP TABLE " + s.layout.Table(2))
	r, err := s.tryPurge(s.purging())
	if err == nil || strings.Count(err.Error(), s.layout.Table(2)) != 2 { // the wrap names it, and the server's own message
		t.Errorf("error %v", err)
	}
	if r.Tables != 3 || r.Types["short"].Done != 15 || !reflect.DeepEqual(r.Failed, []string{"db1"}) {
		t.Errorf("%+v", r)
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
			cfg := s.purging()
			cfg.Batch = 50
			results[i] = s.purge(cfg)
		})
	}
	both.Wait()
	if n := results[0].Total().Done + results[1].Total().Done; n != 2000 || s.left(tocsin.Done) != 0 {
		t.Errorf("%d removed, %d left", n, s.left(tocsin.Done))
	}
}

func TestPurgeLeavesATableThatStaysLockedOrRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    string // of table 1
		class    mysql.Class
		timeouts int
	}{
		"lock time-outs": {"SELECT job_id FROM {table} FOR UPDATE", mysql.Contended, 5}, // of 20, 5 and three times 1 rows
		"another fault":  {"CREATE TRIGGER {table}_kept BEFORE DELETE ON {table} FOR EACH ROW SIGNAL SQLSTATE '45000'", mysql.Other, 0},
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
			r, err := s.tryPurge(s.purging())
			if mysql.ClassOf(err) != c.class || r.Timeouts != c.timeouts || r.Types["short"] != (Removed{60, 60, 0}) || r.Tables != 3 {
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
	for n, want := range []int{0, 20} {
		cfg := s.purging()
		cfg.Policies = func(context.Context) ([]biztype.Policy, error) { return purgePolicies[:n], broken }
		if r, err := s.tryPurge(cfg); !errors.Is(err, broken) || r.Total().Done != want {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

func TestRunPurgesAtItsTimes(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.fill()
	ctx, end := context.WithCancel(t.Context())
	cfg := s.purging()
	asked := 0
	cfg.Policies = func(context.Context) ([]biztype.Policy, error) {
		if asked++; asked == 2 {
			end()
		}
		return purgePolicies, nil
	}
	p, err := NewPurger(cfg)
	if err != nil {
		t.Fatal(err)
	}
	at, err := ParseTimes("@every 1s")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(ctx, at); err != nil || s.left(tocsin.Done) != 12 {
		t.Errorf("%v, %d left", err, s.left(tocsin.Done))
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
		p, err := NewPurger(PurgeConfig{
			Logger:   log.Logger(), // and no store, since it begins with the policies
			Policies: func(context.Context) ([]biztype.Policy, error) { return nil, errors.New("connection refused") },
		})
		if err != nil {
			t.Fatal(err)
		}
		at, err := ParseTimes("@every 1s")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Run(ctx, at); err != nil || len(log.Lines("purge failed in part")) != 2 {
			t.Errorf("%v; logged %v", err, log.Lines())
		}
	})
}
