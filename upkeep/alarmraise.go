package upkeep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/webhook"
)

// look notes the biz types whose tasks became dead since the last look: deaths that no process has raised an alarm about
// yet, or that another process is about to report. Deaths later than behind before now are left to the next look.
func (a *Alarms) look(ctx context.Context, behind time.Duration) {
	var types []uint64
	for _, p := range a.cfg.Policies() {
		if p.AlarmOn(biztype.OnDead) && a.cfg.Mine(p) {
			types = append(types, p.Number)
		}
	}
	if len(types) == 0 || !slices.Equal(types, a.kinds) {
		a.looked, a.kinds = nil, types
	}
	if len(types) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	t := a.tally(ctx, toCount{
		types: types, behind: behind, limit: deathsAny, now: a.cfg.Store.Now,
		from: func(database int, now int64) int64 { return max(a.looked[database], now-lookBack.Milliseconds()) },
	})
	a.looked = t.until
	for _, n := range types {
		if t.capped || t.types[n].count > 0 {
			a.found(about{n, biztype.OnDead})
		}
	}
}

// toll is what died in all tables.
type toll struct {
	types  map[uint64]deaths
	limit  int
	capped bool          // not all were counted
	until  map[int]int64 // by database: up to when it was read, by its server's clock; a database that could not be read is left out, or is as it was
	unread map[int]int64 // by database: from when on it was to be read
}

// deaths are those of one biz type.
type deaths struct {
	count int
	jobs  []tocsin.JobID // some of them
}

// toCount says what to count.
type toCount struct {
	types  []uint64
	behind time.Duration // deaths until so long before now
	limit  int           // of each table

	now  func(server int) int64              // by the server's clock, which is asked for before; once for all of its databases
	from func(database int, now int64) int64 // from when on, by the same clock
}

// tally counts the tasks that became dead, on all servers side by side. A database that can't be read is not counted.
func (a *Alarms) tally(ctx context.Context, c toCount) toll {
	all := toll{types: map[uint64]deaths{}, limit: c.limit, until: map[int]int64{}, unread: map[int]int64{}}
	var mu sync.Mutex
	store.EachServer(len(a.cfg.Store.Servers()), func(server int) {
		away := a.measure(ctx, server)
		now := c.now(server)
		for database, tables := range a.databases(server) {
			q := store.DeathsQuery{Server: server, Tables: tables, Types: c.types, From: c.from(database, now), Until: now - c.behind.Milliseconds(), Limit: c.limit}
			var found []store.Deaths
			err := away
			if err == nil {
				found, err = a.cfg.Store.Deaths(ctx, q)
			}
			mu.Lock()
			all.take(database, q, found, err)
			mu.Unlock()
			if err != nil {
				a.limit.Of(a.cfg.Logger, "look "+a.cfg.Store.Servers()[server]).Warn("dead tasks can't be counted for alarms", "error", err)
			}
		}
	})
	return all
}

// measure asks for a server's clock. It does not wait for a server that hangs.
func (a *Alarms) measure(ctx context.Context, server int) error {
	name := a.cfg.Store.Servers()[server]
	if waiting := a.cfg.Store.Waiting(server); waiting > hangs {
		return fmt.Errorf("server %s: no answer for %s", name, waiting.Round(100*time.Millisecond))
	}
	if _, err := a.cfg.Store.Measure(ctx, server); err != nil {
		return err
	}
	if a.cfg.Store.Now(server) == 0 {
		return fmt.Errorf("server %s: its clock is not known just now", name)
	}
	return nil
}

// databases returns the tables of each database of a server.
func (a *Alarms) databases(server int) map[int][]int {
	all := map[int][]int{}
	for _, table := range a.cfg.Store.TablesOf(server) {
		db := a.cfg.Store.Layout().DatabaseOf(table)
		all[db] = append(all[db], table)
	}
	return all
}

// take adds what one database has. A database that can't be read in full is not counted now, and is read again from the
// same time on.
func (t *toll) take(database int, q store.DeathsQuery, found []store.Deaths, err error) {
	if err != nil {
		t.unread[database] = q.From
		t.until[database] = q.From
		return
	}
	t.until[database] = max(q.From, q.Until)
	rows := map[int]int{} // by table
	for _, d := range found {
		of := t.types[d.Type]
		of.count += d.Rows
		if len(of.jobs) < alarmExamples {
			of.jobs = append(of.jobs, d.Job)
		}
		t.types[d.Type] = of
		if rows[d.Table] += d.Rows; rows[d.Table] >= t.limit {
			t.capped = true
		}
	}
}

// link is the next alarm of a chain, while it is made.
type link struct {
	about  about
	policy biztype.Policy // with its defaults
	to     biztype.Policy // that delivers it
	home   int            // server on which the alarms of this biz type are
	now    int64          // by home's clock

	key    int64 // up to when the alarm before has counted; 0: there is none
	since  int64 // from when on this one counts, but not from before oldest
	oldest int64
	wait   time.Duration    // until it may be added
	again  map[string]int64 // databases that the alarm before could not read: from when on, by their servers' clocks
}

var errNoTarget = errors.New("its policy names a biz type that there is not: run `tocsin biz apply` with both")

// raise adds an alarm if its time has come and there is something to report. It reports whether it has to be called
// again, at n.at.
func (a *Alarms) raise(ctx context.Context, of about, n *noted) (again bool) {
	policy, wanted := a.policy(of)
	if !wanted {
		return false
	}
	l := &link{about: of, policy: policy.WithDefaults()}
	err := errNoTarget
	policies := a.cfg.Policies()
	if i := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Name == policy.Alarm.To }); i >= 0 {
		l.to = policies[i]
		again, err = a.add(ctx, l, n)
	}
	if err != nil {
		a.failed(l, err)
		n.at = time.Now().Add(raiseAgain)
		return true
	}
	return again
}

// failed logs why an alarm was not added.
func (a *Alarms) failed(l *link, err error) {
	a.failures.Inc()
	text := "an alarm can't be added: it is tried again"
	if mysql.ClassOf(err) == mysql.Denied {
		text = "an alarm can't be added for lack of rights: grant the role client-add too, see `tocsin ddl grants --role client-add`"
	}
	a.limit.Of(a.cfg.Logger, "add "+l.policy.Name).Error(text, "error", err, "biz_type", l.policy.Name, "kind", l.about.kind, "to", l.policy.Alarm.To)
}

// add adds the alarm, or returns when to try again.
func (a *Alarms) add(ctx context.Context, l *link, n *noted) (again bool, err error) {
	if err := a.follow(ctx, l); err != nil {
		return false, err
	}
	if l.wait > 0 {
		n.at = time.Now().Add(l.wait)
		return true, nil
	}
	alarm, again := a.tell(ctx, l, n)
	if alarm == nil {
		return again, ctx.Err()
	}
	if a.client == nil {
		if a.client, err = tocsin.Open(ctx, a.cfg.Cluster); err != nil {
			return false, err
		}
	}
	key := prefix(l.about.kind) + time.UnixMilli(l.key).UTC().Format(keyTime)
	added, err := a.client.Add(ctx, tocsin.Define[webhook.Alarm](l.to.Name).New(l.policy.Number, *alarm, tocsin.In(0)).Dedup(key))
	if err != nil {
		return false, err
	}
	if added.Existing { // another process was faster: what it has not counted waits for the next one
		n.at = time.Now().Add(time.Second)
		return true, nil
	}
	a.raised.WithLabelValues(l.policy.Name, l.about.kind).Inc()
	a.cfg.Logger.Warn("alarm", "biz_type", l.policy.Name, "kind", l.about.kind, "count", alarm.Count, "to", l.to.Name, "job_id", added.JobID.String())
	if l.about.kind == biztype.OnDead && a.at(n.last, l.home) > alarm.Until.UnixMilli() { // it may not have counted the last ones
		*n = noted{at: time.Now().Add(l.policy.Alarm.AtMostEvery.D())}
		return true, nil
	}
	return false, nil
}

// keyTime is the form of the times in dedup_keys, in which they sort as they follow one another.
const keyTime = "2006-01-02T15:04:05.000Z"

func prefix(kind string) string { return kind + " since " }

// follow finds the alarm before.
func (a *Alarms) follow(ctx context.Context, l *link) error {
	l.home = a.cfg.Store.ServerOf(a.cfg.Store.Layout().TableOf(l.policy.Number))
	if err := a.measure(ctx, l.home); err != nil {
		return err
	}
	latest, err := a.cfg.Store.LatestKey(ctx, l.policy.Number, l.to.Number, prefix(l.about.kind))
	if err != nil {
		return err
	}
	l.now = a.cfg.Store.Now(l.home)
	l.after(latest)
	return nil
}

// after returns from when on the alarm counts, and when it may be added, given the alarm before; nil if there is none. It
// is pure.
func (l *link) after(latest *store.Row) {
	l.oldest = l.now - lookBack.Milliseconds()
	if latest == nil {
		return
	}
	every := l.policy.Alarm.AtMostEvery.D()
	l.oldest -= every.Milliseconds() // this one comes so long after the one before, or later
	created := latest.Created.UnixMilli()
	l.key = created
	var before webhook.Alarm
	if json.Unmarshal([]byte(latest.Payload), &before) == nil && !before.Until.IsZero() {
		l.key, l.again = before.Until.UnixMilli(), map[string]int64{}
		for database, from := range before.Unread {
			l.again[database] = from.UnixMilli()
		}
	}
	l.since = l.key
	future := l.now + lag.Milliseconds()    // now is a little behind the clock
	if l.key > future || created > future { // the clock was set back
		l.since = min(l.key, l.now-every.Milliseconds())
	}
	if created <= future {
		l.wait = every - time.Duration(l.now-created)*time.Millisecond
	}
}

// until returns the time up to which an alarm counts. It grows along a chain, even if the clock is set back.
func (l *link) until(behind time.Duration) time.Time {
	return time.UnixMilli(max(l.now-behind.Milliseconds(), l.key+1)).UTC()
}

// at is an instant of this process by a server's clock.
func (a *Alarms) at(t time.Time, server int) int64 {
	return a.cfg.Store.Now(server) - time.Since(t).Milliseconds()
}

// tell makes the alarm. It returns nil if there is nothing to report, or if it must be tried again later.
func (a *Alarms) tell(ctx context.Context, l *link, n *noted) (alarm *webhook.Alarm, again bool) {
	if l.about.kind == biztype.OnMissed {
		return a.tellMissed(l, n), false
	}
	began := time.Now()
	counting, cancel := context.WithTimeout(ctx, alarmLimit/2) // a server that hangs leaves time to add the alarm
	defer cancel()
	t := a.tally(counting, toCount{
		types: []uint64{l.policy.Number}, behind: lag, limit: deathsMost,
		now:  func(server int) int64 { return a.elsewhere(l, server) },
		from: func(database int, now int64) int64 { return a.from(l, database, now) },
	})
	found := t.types[l.policy.Number]
	alarm = &webhook.Alarm{
		Kind: l.about.kind, BizType: l.policy.Name, Count: found.count, AtLeast: t.capped || len(t.unread) > 0,
		Since: time.UnixMilli(max(l.since, l.oldest)).UTC(), Until: l.until(lag), JobIDs: found.jobs,
	}
	// Deaths that this process has noted count even if the tables don't show them: a transaction may have ended late.
	told := n.count > 0 && a.at(n.last, l.home) > l.since+lag.Milliseconds()
	switch {
	case found.count == 0 && !told:
		n.at = began.Add(lookEvery)
		return nil, len(t.unread) > 0
	case found.count == 0:
		alarm.Count, alarm.AtLeast = n.count, true
	}
	for _, id := range n.jobs {
		if len(alarm.JobIDs) < alarmExamples && !slices.Contains(alarm.JobIDs, id) {
			alarm.JobIDs = append(alarm.JobIDs, id)
		}
	}
	alarm.LastError = a.errorOf(ctx, alarm.JobIDs)
	for database, from := range t.unread {
		if alarm.Unread == nil {
			alarm.Unread = map[string]time.Time{}
		}
		alarm.Unread[a.cfg.Store.Layout().Database(database)] = time.UnixMilli(from).UTC()
	}
	alarm.Do = []string{
		"tocsin task list --status dead --type " + l.policy.Name,
		"tocsin task redrive --type " + l.policy.Name,
	}
	return alarm, false
}

// elsewhere returns l.now by the clock of a server, or as it is if that clock is not known.
func (a *Alarms) elsewhere(l *link, server int) int64 {
	there, home := a.cfg.Store.Now(server), a.cfg.Store.Now(l.home)
	if server == l.home || there == 0 || home == 0 {
		return l.now
	}
	return l.now + there - home
}

// from returns from when on the dead tasks of a database count. now is l.now by its server's clock.
func (a *Alarms) from(l *link, database int, now int64) int64 {
	from, unread := l.again[a.cfg.Store.Layout().Database(database)]
	if !unread {
		from = l.since + now - l.now
	}
	return max(from, l.oldest+now-l.now)
}

// tellMissed makes an alarm of the missed runs that this process has noted.
func (a *Alarms) tellMissed(l *link, n *noted) *webhook.Alarm {
	alarm := &webhook.Alarm{
		Kind: l.about.kind, BizType: l.policy.Name, Count: n.count,
		Since: time.UnixMilli(a.at(n.first, l.home)).UTC(), Until: l.until(0),
	}
	for _, m := range n.runs {
		alarm.Runs = append(alarm.Runs, missedText(m))
		for _, command := range commandsAfter(m) {
			if !slices.Contains(alarm.Do, command) {
				alarm.Do = append(alarm.Do, command)
			}
		}
	}
	return alarm
}

// missedText says what was missed.
func missedText(m schedule.MissedRun) string {
	if m.Time.IsZero() {
		return fmt.Sprintf("%s: %s", m.Schedule, m.Why)
	}
	return fmt.Sprintf("%s %s: %s", m.Schedule, m.Time.UTC().Format(time.RFC3339), m.Why)
}

// commandsAfter returns the commands that show the schedule and activate it again.
func commandsAfter(m schedule.MissedRun) []string {
	shows := "tocsin schedule runs " + m.Schedule
	if m.Time.IsZero() {
		return []string{shows, "tocsin schedule activate " + m.Schedule}
	}
	return []string{shows, "tocsin schedule run-now " + m.Schedule}
}

// errorOf returns the last error of the first task that has one; "" if none can be read.
func (a *Alarms) errorOf(ctx context.Context, ids []tocsin.JobID) string {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	for _, id := range ids {
		rows, err := a.cfg.Store.Look(ctx, a.cfg.Store.ServerOf(id.Table()), []tocsin.JobID{id})
		if err == nil && len(rows) > 0 && rows[0].LastError != "" {
			return rows[0].LastError
		}
	}
	return ""
}
