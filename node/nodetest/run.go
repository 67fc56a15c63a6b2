package nodetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// run is a RunDue under way.
type run struct {
	cluster *tocsintest.Cluster
	until   time.Time
	held    map[tocsin.JobID]bool // due, but not delivered: without a handler, or paused

	mu    sync.Mutex
	all   []Delivery
	times map[tocsin.JobID]int // deliveries of each task
}

// note takes down a delivery. It is a node.Config's OnOutcome.
func (r *run) note(_ context.Context, task tocsin.Info, o node.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, Delivery{task, o})
	r.times[task.JobID]++
}

// pending is a row that is due until the end of the run.
type pending struct {
	id tocsin.JobID
	at time.Time // its action_time

	delivered int // times so far
}

// step brings the next tasks forward and delivers them; false: there are none.
func (r *run) step(ctx context.Context, s *node.Sweeper) (bool, error) {
	rows, err := r.due(ctx)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	next := earliest(rows)
	forward := time.Now().Add(-time.Second).UTC().Truncate(time.Second)
	for _, row := range next {
		if err := r.move(ctx, row.id, row.at, min(row.at.UnixMilli(), forward.UnixMilli())); err != nil {
			return false, err
		}
	}
	if _, err := s.Sweep(ctx); err != nil {
		return false, err
	}
	for _, row := range next { // what was not delivered gets its time back
		r.held[row.id] = r.times[row.id] == row.delivered
		if err := r.move(ctx, row.id, time.UnixMilli(min(row.at.UnixMilli(), forward.UnixMilli())), row.at.UnixMilli()); err != nil {
			return false, err
		}
	}
	return true, nil
}

// earliest returns the rows that come next: those that are overdue, else those of the first second.
func earliest(rows []pending) []pending {
	slices.SortFunc(rows, func(a, b pending) int { return a.at.Compare(b.at) })
	first := rows[0].at.Add(time.Second)
	if now := time.Now(); first.Before(now) {
		first = now
	}
	end := slices.IndexFunc(rows, func(p pending) bool { return !p.at.Before(first) })
	if end < 0 {
		end = len(rows)
	}
	return rows[:end]
}

// timeForm is how DATETIME(3) is written.
const timeForm = "2006-01-02 15:04:05.000"

// due reads the rows that are due until the end of the run, but those that are held.
func (r *run) due(ctx context.Context) ([]pending, error) {
	var tables []string
	for table := range r.cluster.Config.Layout.Total() {
		tables = append(tables, fmt.Sprintf("SELECT job_id, CAST(action_time AS CHAR) FROM %s WHERE status = 0 AND action_time <= '%s'",
			r.cluster.Config.Layout.Table(table), r.until.UTC().Format(timeForm)))
	}
	found, err := r.cluster.DB.QueryContext(ctx, strings.Join(tables, " UNION ALL "))
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []pending
	for found.Next() {
		var id uint64
		var at string
		if err := found.Scan(&id, &at); err != nil {
			return nil, err
		}
		when, err := time.Parse(timeForm, at)
		if err != nil {
			return nil, err
		}
		if !r.held[tocsin.JobID(id)] {
			rows = append(rows, pending{tocsin.JobID(id), when, r.times[tocsin.JobID(id)]})
		}
	}
	return rows, found.Err()
}

// move gives a row another action_time, in Unix ms, if it is pending and has the one it had.
func (r *run) move(ctx context.Context, id tocsin.JobID, from time.Time, to int64) error {
	_, err := r.cluster.DB.ExecContext(ctx, "UPDATE "+r.cluster.Config.Layout.Table(id.Table())+
		" SET action_time = ? WHERE job_id = ? AND status = 0 AND action_time = ?",
		time.UnixMilli(to).UTC().Format(timeForm), uint64(id), from.UTC().Format(timeForm))
	return err
}
