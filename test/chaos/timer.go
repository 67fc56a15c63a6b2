package chaos

import (
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/schedule"
)

// beat is when a schedule fires, as the harness counts it: from an anchor, or by the wall clock of a zone.
type beat struct {
	Every  time.Duration // from the anchor; 0: by the clock
	Step   int           // by the clock: each minute that it divides; 0: see Minute
	Minute int           // of each hour
	Daily  bool          // at Hour and Minute of each day, not of each hour
	Hour   int
}

// cron is the beat as a schedule has it.
func (b beat) cron() string {
	switch {
	case b.Every > 0:
		return "@every " + b.Every.String()
	case b.Step == 1:
		return "* * * * *"
	case b.Step > 1:
		return fmt.Sprintf("*/%d * * * *", b.Step)
	case b.Daily:
		return fmt.Sprintf("%d %d * * *", b.Minute, b.Hour)
	}
	return fmt.Sprintf("%d * * * *", b.Minute)
}

// pace is how often a beat strikes, in a word.
func (b beat) pace() string {
	switch {
	case b.Every > 0:
		return "each second"
	case b.Step > 0:
		return "each minute"
	case b.Daily:
		return "each day"
	}
	return "each hour"
}

// strikes reports whether t is a fire time.
func (b beat) strikes(zone *time.Location, anchor, t time.Time) bool {
	if b.Every > 0 {
		return t.After(anchor) && t.Sub(anchor)%b.Every == 0
	}
	wall := t.In(zone)
	switch {
	case wall.Second() != 0 || wall.Nanosecond() != 0:
		return false
	case b.Step > 0:
		return wall.Minute()%b.Step == 0
	}
	return wall.Minute() == b.Minute && (!b.Daily || wall.Hour() == b.Hour)
}

// fires are the fire times between two times, without both, in UTC. It asks each moment that may be one.
func (b beat) fires(zone *time.Location, anchor, after, before time.Time) (all []time.Time) {
	first, step := after.Truncate(time.Minute), time.Minute
	if b.Every > 0 {
		first, step = anchor, b.Every
		if after.After(anchor) {
			first = anchor.Add(after.Sub(anchor).Truncate(b.Every))
		}
	}
	for t := first; t.Before(before); t = t.Add(step) {
		if t.After(after) && b.strikes(zone, anchor, t) {
			all = append(all, t.UTC())
		}
	}
	return all
}

// What people do to schedules.
const (
	createTimer     = "create"
	editTimer       = "edit"
	activateTimer   = "activate"
	deactivateTimer = "deactivate"
	runTimer        = "run-now"
	cancelRun       = "cancel of a run"
	backfillTimer   = "backfill"
	deleteTimer     = "delete"
)

// timing is what a change wants a schedule to be.
type timing struct {
	Beat   beat
	Mark   int // in the payload: tells the runs of one revision from those of another
	Active bool
}

// timerOp is one thing that was done to a schedule.
type timerOp struct {
	Kind string
	asked
	Want     timing       // after it
	Revision uint32       // as answered; 0: none, as of a run
	Job      tocsin.JobID // of a run
	Changed  bool         // of a cancel: it took hold
	From, To time.Time    // of a backfill
	Runs     int          // of a backfill: the fire times that it names, made now or there
	after    *timing      // what the schedule was found to be after a change without success; nil: as wanted
}

// revises reports whether the change makes a revision.
func (c *timerOp) revises() bool {
	return c.Kind != runTimer && c.Kind != cancelRun && c.Kind != backfillTimer
}

// String is for a breach's trace.
func (c *timerOp) String() string {
	text := fmt.Sprintf("%s %s", c.Kind, &c.asked)
	if c.Kind == backfillTimer {
		return fmt.Sprintf("%s, from %s to %s, %d fire times", text, c.From.UTC().Format(clockForm), c.To.UTC().Format(clockForm), c.Runs)
	}
	if !c.revises() {
		return fmt.Sprintf("%s, job_id %s, changed %t", text, c.Job, c.Changed)
	}
	return fmt.Sprintf("%s, revision %d: %s, mark %d, active %t", text, c.Revision, c.Want.Beat.cron(), c.Want.Mark, c.Want.Active)
}

// timer is a schedule of the cluster as the harness asked for it. Its changes are made one after the other, and belong to the
// load until that has ended.
type timer struct {
	Name        string
	ID          tocsin.JobID // its schedule_id; 0: nobody has told
	Type        string
	Zone        string
	Jitter      time.Duration
	StartWithin time.Duration // 0: no run is ever missed
	plan
	changes []*timerOp
}

// strict reports whether runs are claimed before each delivery.
func (t *timer) strict() bool { return t.Type == strictRun.Name() }

// String is for a breach's trace.
func (t *timer) String() string {
	text := []string{fmt.Sprintf("schedule %s, %s, of %s in %s, overlap %s, pause_after %d", t.ID, t.Name, t.Type, t.Zone, t.overlap, t.pauseAfter)}
	for _, c := range t.changes {
		text = append(text, c.String())
	}
	return strings.Join(text, "\n  ")
}

// location is the schedule's zone. The harness draws from a list of its own, so the zone is there.
func (t *timer) location() *time.Location {
	zone, err := time.LoadLocation(t.Zone)
	if err != nil {
		panic(err)
	}
	return zone
}

// plan is what a schedule has beside its times.
type plan struct {
	overlap    schedule.Overlap
	pauseAfter int
	millis     int // how long a run takes at least
	good       int // see Work; 0: no run fails for that
}

// plans are those of the schedules, by turns of four schedules. Four types and each fifth schedule have something else, so
// their number is no multiple of these. Runs take longer than the second in which the next one is due, but for replace: of
// those some end.
var plans = []plan{
	{overlap: schedule.OverlapAllow},
	{overlap: schedule.OverlapSkip, millis: 1200},
	{overlap: schedule.OverlapQueue, millis: 1200},
	{overlap: schedule.OverlapReplace, millis: 700},
	{overlap: schedule.OverlapSkip, pauseAfter: 3, good: 7},
	{overlap: schedule.OverlapAllow},
	{overlap: schedule.OverlapQueue, millis: 1200},
	{overlap: schedule.OverlapSkip, millis: 1200},
	{overlap: schedule.OverlapAllow, pauseAfter: 3, good: 3}, // two in a row fail: it goes on
	{overlap: schedule.OverlapReplace, millis: 700},
	{overlap: schedule.OverlapAllow},
}

// String names the policy for the report.
func (p plan) String() string {
	if p.pauseAfter > 0 {
		return "pause_after"
	}
	return string(p.overlap)
}

// judged reports whether the begin of a run depends on other runs.
func (p plan) judged() bool { return p.overlap != schedule.OverlapAllow }

// alone reports whether a run is not to begin while another one is in delivery.
func (p plan) alone() bool {
	return p.overlap == schedule.OverlapSkip || p.overlap == schedule.OverlapQueue
}

// newTimer is the schedule of a number as it is drawn.
func newTimer(i int) *timer {
	types := []string{briefRun.Name(), keptRun.Name(), strictRun.Name(), hookRun.Name()}
	t := &timer{Name: fmt.Sprintf("timer-%04d", i), Type: types[i/4%len(types)], Zone: zones[i/16%len(zones)], plan: plans[i/4%len(plans)]}
	if t.pauseAfter > 0 {
		t.Type = brittleRun.Name()
	}
	if i%5 == 1 {
		t.StartWithin = missedWithin
	}
	if i%20 < 4 {
		t.Jitter = smallJitter
	}
	return t
}

// definition is the schedule as it is to be.
func (t *timer) definition(number int, want timing) schedule.Definition {
	millis := number % 10
	if t.millis > 0 {
		millis = t.millis + 130*millis
	}
	d := schedule.Definition{
		Name: t.Name, BizType: t.Type, BizID: uint64(number + 1), Cron: want.Beat.cron(), Zone: t.Zone, Jitter: biztype.Duration(t.Jitter),
		Payload: fmt.Sprintf(`{"ms":%d,"fail":%d,"good":%d,"mark":%d}`, millis, failsOf(want.Mark), t.good, want.Mark), Missed: schedule.MissedAll,
		Overlap: t.overlap, PauseAfter: t.pauseAfter,
	}
	if t.StartWithin > 0 {
		d.StartWithin, d.Missed = biztype.Duration(t.StartWithin), schedule.MissedSkip
	}
	return d
}

// failsOf is how many attempts of a revision's runs fail: one, of each fifth.
func failsOf(mark int) int {
	if mark%5 == 4 {
		return 1
	}
	return 0
}

// attempts is after how many a run is dead.
func (t *timer) attempts() int {
	if t.Type == brittleRun.Name() {
		return brittleAttempts
	}
	return attempts
}
