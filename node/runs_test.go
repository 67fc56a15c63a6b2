package node_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/ids"
)

// hourly is a schedule of order 7 in a test, which starts within a minute or is missed. It makes no runs by itself.
type hourly struct {
	*testing.T
	p  place
	db *sql.DB
	id uint64
}

func newHourly(t *testing.T, p place) *hourly {
	t.Helper()
	db := openDB(t, devtest.DSN(t))
	table := p.cfg.Layout.TableOf(7)
	s := &hourly{T: t, p: p, db: db, id: uint64(time.Since(tocsin.Epoch).Milliseconds())<<22 | uint64(table)<<9}
	s.exec(`INSERT INTO `+p.cfg.Layout.Database(p.cfg.Layout.DatabaseOf(table))+`.schedule (schedule_id, gmt_create, gmt_modified, name, table_no, biz_type,
		biz_id, cron, zone, start_within_ms, missed, missed_most, overlap, state, revision, anchor, made_until, attribute)
		VALUES (?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 'report', ?, 1, 7, '@every 1h', 'UTC', 60000, 'skip', 1, 'allow', 'inactive', 1,
		UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '')`, s.id, table)
	return s
}

func (s *hourly) exec(query string, args ...any) {
	s.Helper()
	execute(s.T, s.db, query, args...)
}

// add stores a run that is due in so long.
func (s *hourly) add(in time.Duration) (tocsin.JobID, time.Time) {
	s.Helper()
	id := add(s.T, s.p, orderClose.New(7, order{7}, tocsin.In(in)))
	info, err := s.p.client.Get(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	key := ids.OfTime(s.id, 1, info.DueTime)
	s.exec("UPDATE "+info.Table+" SET dedup_key = ? WHERE job_id = ?", []byte(key.String()), uint64(id))
	return id, info.DueTime
}

// age makes a run due so long ago.
func (s *hourly) age(id tocsin.JobID, by time.Duration) {
	s.Helper()
	info, err := s.p.client.Get(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	s.exec("UPDATE "+info.Table+" SET due_time = due_time - INTERVAL ? SECOND, action_time = action_time - INTERVAL ? SECOND WHERE job_id = ?",
		int(by.Seconds()), int(by.Seconds()), uint64(id))
}

// TestANodeJudgesRuns, with owners and without.
func TestANodeJudgesRuns(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		s := newHourly(t, p)
		missed, _ := s.add(0)
		s.age(missed, 5*time.Minute)
		inTime, nominal := s.add(time.Second)
		got := make(chan tocsin.Info, 9)
		_, stop := run(t, p.config("orders"), closing(func(_ context.Context, task *tocsin.Task[order]) error {
			got <- task.Info
			return nil
		}))
		task := receive(t, got, "the run in time")
		if task.JobID != inTime || task.Schedule != "report" || !task.FireTime.Equal(nominal) {
			t.Errorf("the handler got %+v", task)
		}
		info := await(t, p, missed, "the end of the missed run", withStatus(tocsin.Cancelled))
		if !strings.HasPrefix(info.LastError, "missed: 5m") || info.DedupKey != "" || info.Attempts != 0 {
			t.Errorf("the missed run is %+v", info)
		}
		stop()
	})
}

func TestASweepJudgesRuns(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	s := newHourly(t, p)
	missed, _ := s.add(0)
	s.age(missed, 5*time.Minute)
	inTime, _ := s.add(0)
	h := closing(closes)
	sweeper := newSweeper(t, p.sweepConfig(), h)
	result, err := sweeper.Sweep(t.Context())
	if err != nil || result.Delivered != 1 || result.Skipped != 1 || result.Err() != nil {
		t.Errorf("%s, %v", result, err)
	}
	await(t, p, inTime, "the run in time", withStatus(tocsin.Done))
	await(t, p, missed, "the missed run", withStatus(tocsin.Cancelled))
}
