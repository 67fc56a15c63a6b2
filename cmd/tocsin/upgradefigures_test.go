package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/quantile"
)

// slowLog is the server's log of slow statements, a file beside its data: a log in a table would be slow itself.
const slowLog = "tocsin-slow.log"

// logSlow has the server note every statement of 10 ms or more of the sessions that begin from now on.
func (u *upgradeRun) logSlow() {
	u.t.Helper()
	for _, set := range []string{"log_slow_admin_statements = 1", "log_output = 'FILE'", "slow_query_log_file = '" + slowLog + "'", "long_query_time = 0.01", "slow_query_log = 1"} {
		u.exec("SET GLOBAL " + set)
	}
	u.t.Cleanup(func() { u.exec("SET GLOBAL slow_query_log = 0") })
}

// slowest returns the longest statement of each sender in a span, which the log knows to the second.
func (u *upgradeRun) slowest(from, to time.Time) map[string]time.Duration {
	u.t.Helper()
	var dir string
	if err := u.db.QueryRow("SELECT @@datadir").Scan(&dir); err != nil {
		u.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, slowLog))
	if err != nil {
		u.t.Fatal(err)
	}
	longest := map[string]time.Duration{}
	for _, m := range slowEntry.FindAllStringSubmatch(string(text), -1) {
		took, err := strconv.ParseFloat(m[1], 64)
		at, wrong := strconv.ParseInt(m[2], 10, 64)
		if err != nil || wrong != nil {
			u.t.Fatalf("slow log: %q", m[0])
		}
		if begun := time.Unix(at, 0); !begun.Before(from.Truncate(time.Second)) && begun.Before(to) {
			longest[m[3]] = max(longest[m[3]], time.Duration(took*1e6)*time.Microsecond)
		}
	}
	return longest
}

// slowEntry is a statement of ours in the log: how long it took, when it began, and who sent it.
var slowEntry = regexp.MustCompile(`(?m)^# Query_time: ([0-9.]+) .*\n(?:#.*\n|use .*\n)*SET timestamp=([0-9]+)(?:\.[0-9]+)?;\n[^#;]{0,100}?/\* (tocsin [a-z ]+[a-z]) \*/`)

// sentBy finds who sent a statement.
var sentBy = regexp.MustCompile(`/\* (tocsin [a-z ]+[a-z]) \*/`)

// lockWaits is what waits for a table, looked at every few milliseconds.
type lockWaits struct {
	stop    context.CancelFunc
	ended   chan struct{}
	longest map[string]time.Duration // by sender
	most    int                      // statements at once
	looks   int
	err     error
}

// watchLocks looks until the end of the watch.
func (u *upgradeRun) watchLocks() *lockWaits {
	ctx, cancel := context.WithCancel(u.t.Context())
	w := &lockWaits{stop: cancel, ended: make(chan struct{}), longest: map[string]time.Duration{}}
	go func() {
		defer close(w.ended)
		since := map[waiter]time.Time{}
		for ctx.Err() == nil && w.err == nil {
			w.err = w.look(ctx, u, since)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return w
}

// waiter is a statement that waits.
type waiter struct {
	id   int64 // of its connection
	text string
}

// look notes who waits, and since when. MySQL's own log of slow statements has a lock of another name.
func (w *lockWaits) look(ctx context.Context, u *upgradeRun, since map[waiter]time.Time) error {
	rows, err := u.db.QueryContext(ctx, `SELECT id, COALESCE(LEFT(info, 1000), '') FROM information_schema.processlist WHERE state = 'Waiting for table metadata lock'`)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer func() { _ = rows.Close() }()
	now, waiting := time.Now(), map[waiter]bool{}
	for rows.Next() {
		var one waiter
		if err := rows.Scan(&one.id, &one.text); err != nil {
			return unlessEnded(ctx, err)
		}
		waiting[one] = true
		if since[one].IsZero() {
			since[one] = now
		}
		if m := sentBy.FindStringSubmatch(one.text); m != nil && now.After(since[one]) {
			w.longest[m[1]] = max(w.longest[m[1]], now.Sub(since[one]).Truncate(time.Millisecond))
		}
	}
	maps.DeleteFunc(since, func(one waiter, _ time.Time) bool { return !waiting[one] })
	w.most, w.looks = max(w.most, len(waiting)), w.looks+1
	return unlessEnded(ctx, rows.Err())
}

func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// end stops the watch and prints what it saw.
func (w *lockWaits) end(t *testing.T) {
	t.Helper()
	w.stop()
	<-w.ended
	if w.err != nil {
		t.Error(w.err)
	}
	t.Logf("waits for tables, in %d looks: at most %d statements at once, the longest seen by sender: %v", w.looks, w.most, w.longest)
}

// verdict waits until all is delivered, prints the figures, and fails for a task that is lost, early, or came twice.
func (u *upgradeRun) verdict(services ...added) {
	u.t.Helper()
	u.waitFor("all tasks are done", func() bool { return u.notDone() == u.size.rows })
	u.begin("the end")
	for _, s := range services {
		u.t.Logf("a service: %+v", s)
		if s.Failed > 0 {
			u.t.Errorf("%d adds failed", s.Failed)
		}
	}
	done := u.rows() - u.size.rows
	seen, again, early := u.counts()
	u.t.Logf("%d tasks done beside %d that are not due: %d lost, %d early, %d more than once", done, u.size.rows, done-seen, early, again)
	if done < 2*u.size.rate || done != seen || early != 0 || again != 0 {
		u.t.Error("a promise is broken")
	}
	for i, p := range u.phases[:len(u.phases)-1] {
		to := u.phases[i+1].from
		u.t.Logf("%s: %.1f s; lateness %s; longest statements %v", p.name, to.Sub(p.from).Seconds(), u.lateness(p.from, to), u.slowest(p.from, to))
	}
}

// lateness describes the callbacks of tasks that were due in a span.
func (u *upgradeRun) lateness(from, to time.Time) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var late []time.Duration
	for _, a := range u.arrivals {
		if a.due.After(from) && a.due.Before(to) {
			late = append(late, a.at.Sub(a.due))
		}
	}
	if len(late) == 0 {
		return "of none"
	}
	slices.Sort(late)
	at := func(q float64) time.Duration { return quantile.Of(late, q).Round(100 * time.Microsecond) }
	return fmt.Sprintf("of %d: p50 %s, p99 %s, max %s", len(late), at(0.5), at(0.99), at(1))
}
