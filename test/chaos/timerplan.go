package chaos

import (
	"fmt"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/schedule"
)

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
