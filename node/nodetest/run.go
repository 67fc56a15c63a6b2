package nodetest

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/outbox/relay"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// mostAtOnce is how many deliveries RunDue makes within one second of its clock, for each task that was due in it at the same
// time: a handler that always adds a task that is due at once would never end.
const mostAtOnce = 100

// run is a RunDue under way.
type run struct {
	cluster  *tocsintest.Cluster
	handlers *node.Handlers
	config   node.Config
	until    time.Time
	db       *sql.DB          // of the tasks
	boxes    []*outbox.Outbox // of the cluster

	clock time.Time                  // of the servers, for the sweepers
	tried map[tocsin.JobID]time.Time // what was chosen and not delivered, with its action time
	burst time.Time                  // end of the second in which deliveries are counted
	made  int                        // deliveries in that second
	peak  int                        // tasks that were due in it at the same time

	mu        sync.Mutex
	all       []Delivery
	schedules map[uint64]string // names by schedule_id
}

// clocks are the clocks of clusters after their last RunDue, by the prefix of their databases.
var clocks sync.Map

// note takes down a delivery. It is a node.Config's OnOutcome.
func (r *run) note(_ context.Context, task tocsin.Info, o node.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key, ok := ids.ParseRunKey(task.DedupKey); ok { // as the judge tells the handler
		task.Schedule, task.FireTime = r.schedules[key.Schedule], key.Nominal()
	}
	r.all = append(r.all, Delivery{task, o})
}

// run does all that is due until the end.
func (r *run) run(ctx context.Context) (err error) {
	if r.db, err = sql.Open("mysql", r.cluster.Config.Servers[0].DSN); err != nil {
		return err
	}
	defer r.db.Close()
	for _, cfg := range r.cluster.Outboxes {
		box, err := outbox.Open(cfg)
		if err != nil {
			return err
		}
		defer box.Close()
		r.boxes = append(r.boxes, box)
	}
	prefix := r.cluster.Config.Layout.Prefix
	r.clock = time.Now()
	if last, ok := clocks.Load(prefix); ok && last.(time.Time).After(r.clock) {
		r.clock = last.(time.Time)
	}
	r.burst = r.clock.Add(time.Second)
	for more := true; more && err == nil; {
		if err = r.relay(ctx); err == nil {
			more, err = r.step(ctx)
		}
	}
	r.advance(r.until, nil)
	clocks.Store(prefix, r.clock)
	return err
}

// relay moves what is in the outboxes.
func (r *run) relay(ctx context.Context) error {
	for i, box := range r.boxes {
		left, err := waiting(ctx, box)
		if err == nil && left > 0 {
			err = r.relayAll(ctx, box, r.cluster.Outboxes[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// relayAll relays one outbox until it is empty.
func (r *run) relayAll(ctx context.Context, box *outbox.Outbox, cfg outbox.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	ended := make(chan error, 1)
	go func() {
		to := relay.Config{Tables: r.cluster.Config, Outboxes: []outbox.Config{cfg}, Poll: time.Millisecond, Logger: r.config.Logger}
		ended <- relay.Turn(ctx, to, client.MoverOf(r.cluster.Client))
	}()
	for left := 1; left > 0 && err == nil; {
		select {
		case err := <-ended:
			cancel()
			return fmt.Errorf("relay %s: %w", box, cmp.Or(err, ctx.Err()))
		case <-time.After(5 * time.Millisecond):
		}
		left, err = waiting(ctx, box)
	}
	cancel()
	<-ended // it was told to end
	return err
}

// waiting returns how many rows an outbox has, at most a thousand.
func waiting(ctx context.Context, box *outbox.Outbox) (int, error) {
	rows, err := box.List(ctx, 0, 1000, false)
	for _, row := range rows {
		if row.LastError != "" {
			return 0, fmt.Errorf("row %d of %s can't be moved: %s", row.ID, box, row.LastError)
		}
	}
	return len(rows), err
}

// step delivers the next task, or the next batch, or makes the next runs of schedules; false: nothing is left.
func (r *run) step(ctx context.Context) (bool, error) {
	rows, err := r.due(ctx)
	if err != nil {
		return false, err
	}
	fire, err := r.nextFire(ctx)
	if err != nil {
		return false, err
	}
	switch {
	case !fire.IsZero() && (len(rows) == 0 || !rows[0].at.Before(fire)):
		return true, r.makeRuns(ctx, fire)
	case len(rows) == 0:
		return false, nil
	}
	only := r.choose(rows)
	before := len(r.all)
	r.advance(rows[0].at, rows)
	if err := r.sweep(ctx, only); err != nil {
		return false, err
	}
	for _, d := range r.all[before:] {
		delete(r.tried, d.Task.JobID)
	}
	if r.made += len(r.all) - before; r.made > mostAtOnce*r.peak {
		return false, fmt.Errorf("%d deliveries within a second of its clock, and more are due: does a handler always add a task, or put it off, that is due at once? The last is %s",
			r.made, r.all[len(r.all)-1])
	}
	return true, nil
}

// advance moves the clock on, never back. Times that are not ahead of this machine's clock begin no new burst: a chain of
// tasks that are due at once moves on with that.
func (r *run) advance(to time.Time, rows []pending) {
	if to.After(r.clock) {
		r.clock = to
	}
	now := time.Now()
	if !to.Before(r.burst) && to.After(now) {
		r.burst, r.made, r.peak = to.Add(time.Second), 0, 0
	}
	due := slices.IndexFunc(rows, func(p pending) bool { return !p.at.Before(r.burst) && p.at.After(now) })
	if due < 0 {
		due = len(rows)
	}
	r.peak = max(r.peak, due)
}

// choose returns the next row, or the next batch of its biz type.
func (r *run) choose(rows []pending) map[uint64]bool {
	first, only := rows[0], map[uint64]bool{}
	most := max(client.Batch(r.handlers, first.bizType), 1)
	now := r.clock
	if first.at.After(now) {
		now = first.at
	}
	for _, row := range rows {
		if len(only) < most && row.bizType == first.bizType && !row.at.After(now) {
			only[uint64(row.id)] = true
			r.tried[row.id] = row.at
		}
	}
	return only
}

// sweep delivers some tasks, at the clock's time.
func (r *run) sweep(ctx context.Context, only map[uint64]bool) error {
	cfg := r.config
	cfg.Tables.Servers = slices.Clone(cfg.Tables.Servers)
	for i, server := range cfg.Tables.Servers { // each of its sessions has this time
		cfg.Tables.Servers[i].DSN = fmt.Sprintf("%s?%s=%d.%03d", server.DSN, mysql.ClockParam, r.clock.Unix(), r.clock.Nanosecond()/1e6)
	}
	client.Step(&cfg, only)
	s, err := node.NewSweeper(cfg, r.handlers)
	if err == nil {
		_, err = s.Sweep(ctx)
	}
	return err
}

// makeRuns makes runs of schedules whose fire time has come.
func (r *run) makeRuns(ctx context.Context, fire time.Time) error {
	r.advance(fire, nil)
	if err := r.sweep(ctx, map[uint64]bool{}); err != nil {
		return err
	}
	if next, err := r.nextFire(ctx); err != nil || next.Equal(fire) {
		return cmp.Or(err, fmt.Errorf("the runs of a schedule that are due at %s can't be made: see the log", fire))
	}
	return nil
}

// pending is a row that is due until the end of the run.
type pending struct {
	id      tocsin.JobID
	at      time.Time // its action_time
	bizType string
}

// timeForm is how DATETIME(3) is written.
const timeForm = "2006-01-02 15:04:05.000"

// due reads the rows that are due until the end of the run, the first one first. A row that was chosen and is still as it was is
// left out: it is paused, or has no handler.
func (r *run) due(ctx context.Context) (rows []pending, err error) {
	layout := r.cluster.Config.Layout
	var tables []string
	for table := range layout.Total() {
		tables = append(tables, fmt.Sprintf("SELECT t.job_id, CAST(t.action_time AS CHAR), b.name, t.biz_type FROM %s t JOIN %s.biz_type b ON b.number = t.biz_type "+
			"WHERE t.status = 0 AND t.action_time <= '%s'", layout.Table(table), layout.Database(layout.DatabaseOf(table)), r.until.UTC().Format(timeForm)))
	}
	err = r.query(ctx, strings.Join(tables, " UNION ALL ")+" ORDER BY 2, 4, 1", func(scan func(...any) error) error {
		var row pending
		var id, number uint64
		var at string
		err := scan(&id, &at, &row.bizType, &number)
		if err != nil {
			return err
		}
		row.id = tocsin.JobID(id)
		if row.at, err = time.Parse(timeForm, at); err == nil && !r.tried[row.id].Equal(row.at) {
			rows = append(rows, row)
		}
		return err
	})
	return rows, err
}

// nextFire returns the earliest fire time until the end for which no run is made; zero: there is none.
func (r *run) nextFire(ctx context.Context) (first time.Time, err error) {
	layout := r.cluster.Config.Layout
	var databases []string
	for db := range layout.Databases {
		databases = append(databases, fmt.Sprintf("SELECT schedule_id, name, CAST(next_fire AS CHAR) FROM %s.schedule", layout.Database(db)))
	}
	names := map[uint64]string{}
	err = r.query(ctx, strings.Join(databases, " UNION ALL "), func(scan func(...any) error) error {
		var id uint64
		var name string
		var next sql.NullString
		if err := scan(&id, &name, &next); err != nil {
			return err
		}
		names[id] = name
		at, err := time.Parse(timeForm, next.String)
		if next.Valid && err == nil && !at.After(r.until) && (first.IsZero() || at.Before(first)) {
			first = at
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedules = names
	return first, err
}

func (r *run) query(ctx context.Context, query string, each func(scan func(...any) error) error) error {
	rows, err := r.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
