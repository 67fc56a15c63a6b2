package upkeep

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Counts are outcomes, as the intake settled them.
type Counts struct {
	Delivered int `json:"delivered"` // completed
	Retried   int `json:"retried"`   // failed or snoozed: due again later
	Dead      int `json:"dead"`      // given up
	Skipped   int `json:"skipped"`   // runs of schedules that are not delivered, by their schedules' policies
	Away      int `json:"-"`         // given back, as their target could not be reached: part of SweepResult.Left
	Newer     int `json:"-"`         // left alone, since their payload is newer than the target reads: part of SweepResult.Left
}

func (c Counts) plus(b Counts) Counts {
	return Counts{c.Delivered + b.Delivered, c.Retried + b.Retried, c.Dead + b.Dead, c.Skipped + b.Skipped, c.Away + b.Away, c.Newer + b.Newer}
}

func (c Counts) minus(b Counts) Counts {
	return Counts{c.Delivered - b.Delivered, c.Retried - b.Retried, c.Dead - b.Dead, c.Skipped - b.Skipped, c.Away - b.Away, c.Newer - b.Newer}
}

func (c Counts) total() int { return c.Delivered + c.Retried + c.Dead + c.Skipped + c.Away + c.Newer }

// SweepResult is the result of one sweep.
type SweepResult struct {
	Tables     int            `json:"tables"`  // read without an error
	Overdue    int            `json:"overdue"` // entries found past their grace time, of all types
	Claimed    int            `json:"claimed"` // by this sweep, whatever became of them
	Counts                    //
	Elsewhere  int            `json:"elsewhere"`   // claimed, settled, cancelled or rescheduled by another meanwhile
	CutOff     int            `json:"cut_off"`     // left because the time was over, or the sweep was told to end
	InDelivery int            `json:"in_delivery"` // in progress when the time of a resident sweep was over; they go on
	Left       map[string]int `json:"left"`        // overdue and not delivered: by biz type and reason, "order.close (paused)"
	Unread     int            `json:"unread"`      // tables not read to their end: more may be left
	Made       int            `json:"made"`        // runs of schedules whose fire times had passed, and no node had made them
	Recovered  int            `json:"recovered"`   // run-out claims given back
	Buried     int            `json:"buried"`      // part of these: dead after the last crash
	Failed     []string       `json:"failed"`      // servers that could not be swept in full
	TimedOut   bool           `json:"timed_out"`   // its time was over
	Stopped    bool           `json:"stopped"`     // it was told to end
	Upkeep     map[string]int `json:"upkeep"`      // what was done beside delivering, by the words of Upkept
	Took       time.Duration  `json:"took_ns"`

	accounts map[uint64]account // by biz type
	underWay bool               // tasks that are not settled may still be
	dry      bool               // nothing is settled
}

// What is done beside delivering.
const (
	RunsMade        = "runs_made"         // of schedules
	TimesPassedOver = "times_passed_over" // fire times that were missed, and for which no run was made
	SchedulesFailed = "schedules_failed"  // their runs could not be made, or they could not be read
	AlarmsRaised    = "alarms_raised"
	AlarmsFailed    = "alarms_failed"     // tries; each is tried again
	RunsRecorded    = "runs_recorded"     // in the history
	RunsNotRecorded = "runs_not_recorded" // dropped, or refused by their database
)

// Upkept are the words for it.
var Upkept = []string{RunsMade, TimesPassedOver, SchedulesFailed, AlarmsRaised, AlarmsFailed, RunsRecorded, RunsNotRecorded}

// account counts the overdue tasks of one biz type.
type account struct {
	name      string
	left      string // why none is started, or none any longer; "": they are
	reported  bool   // from the beginning they are only counted
	carried   int    // held by the intake since an earlier sweep
	found     int    // overdue entries
	elsewhere int
	inHand    int // held by the intake at the end
}

// rest returns how many tasks were left, and why.
func (a account) rest(settled Counts, r *SweepResult) (n int, why string) {
	if a.reported {
		return a.found, a.left
	}
	if r.underWay || r.dry {
		return 0, ""
	}
	n = max(a.carried+a.found-a.elsewhere-a.inHand-settled.total(), 0)
	switch {
	case a.left != "":
		return n, a.left
	case r.TimedOut:
		return n, leftTimedOut
	case r.Stopped:
		return n, leftStopped
	}
	return n, leftFailed
}

// Settled returns the result once the intake has ended. by has all outcomes of the
// sweep, by biz type. Tasks that the intake held until its end count as left.
func (r SweepResult) Settled(by map[uint64]Counts) SweepResult {
	r.accounts = maps.Clone(r.accounts)
	for t, a := range r.accounts {
		a.inHand = 0
		r.accounts[t] = a
	}
	return r.with(by)
}

// with sums up the accounts, with outcomes by biz type.
func (r SweepResult) with(by map[uint64]Counts) SweepResult {
	r.Overdue, r.Counts, r.Elsewhere, r.CutOff, r.InDelivery, r.Left = 0, Counts{}, 0, 0, 0, map[string]int{}
	for t, a := range r.accounts {
		n, why := a.rest(by[t], &r)
		r.Overdue += a.found
		r.Counts = r.Counts.plus(by[t])
		r.Elsewhere += a.elsewhere
		r.InDelivery += a.inHand
		if n > 0 {
			r.Left[a.name+" ("+why+")"] += n
		}
		for why, n := range map[string]int{leftAway: by[t].Away, leftNewer: by[t].Newer} {
			if n > 0 {
				r.Left[a.name+" ("+why+")"] += n
			}
		}
		if why == leftTimedOut || why == leftStopped {
			r.CutOff += n
		}
	}
	return r
}

// LeftTotal is the number of overdue tasks that were left where they are.
func (r SweepResult) LeftTotal() (n int) {
	for _, c := range r.Left {
		n += c
	}
	return n
}

// Err names the overdue tasks that were left, except those of paused biz types; nil
// if there are none.
func (r SweepResult) Err() error {
	var left []string
	for _, key := range slices.Sorted(maps.Keys(r.Left)) {
		if !strings.HasSuffix(key, " ("+leftPaused+")") {
			left = append(left, key+": "+strconv.Itoa(r.Left[key]))
		}
	}
	switch {
	case len(left) > 0:
		return errors.New("overdue tasks are left: " + strings.Join(left, ", "))
	case r.Unread > 0:
		return fmt.Errorf("%d tables were not read to their end", r.Unread)
	}
	return nil
}

// String is the summary line.
func (r SweepResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tables, %d overdue, %d delivered, %d retried, %d dead, %d elsewhere, %d left, %d recovered, %d buried, took %s",
		r.Tables, r.Overdue, r.Delivered, r.Retried, r.Dead, r.Elsewhere, r.LeftTotal(), r.Recovered, r.Buried, r.Took.Round(time.Millisecond))
	for _, note := range []struct {
		holds bool
		text  string
	}{
		{r.Made > 0, strconv.Itoa(r.Made) + " runs of schedules made"},
		{r.Skipped > 0, strconv.Itoa(r.Skipped) + " runs skipped by their schedules"},
		{r.TimedOut, "its time was over"},
		{r.Stopped, "stopped before its end"},
		{r.InDelivery > 0, strconv.Itoa(r.InDelivery) + " in delivery"},
		{r.Unread > 0, strconv.Itoa(r.Unread) + " tables not read to their end"},
	} {
		if note.holds {
			b.WriteString("; " + note.text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Left)) {
		fmt.Fprintf(&b, "; left %s: %d", name, r.Left[name])
	}
	if len(r.Failed) > 0 {
		fmt.Fprintf(&b, "; not swept in full: %s", strings.Join(r.Failed, ", "))
	}
	return b.String()
}

// Ended returns the metrics of the sweep. ok says that it had no error.
func (r SweepResult) Ended(ok bool) Ended {
	outcomes := map[string]int{"delivered": r.Delivered, "retried": r.Retried, "dead": r.Dead, "skipped": r.Skipped, "elsewhere": r.Elsewhere}
	through := func(set func(n int, labels ...string)) {
		for outcome, n := range outcomes {
			set(n, outcome)
		}
	}
	return Ended{Subsystem: "sweeper", Took: r.Took, OK: ok && r.Err() == nil, Figures: []Figure{
		{Name: "overdue", Last: "Overdue entries that the last sweep found.", Total: "Overdue entries found.", Value: r.Overdue},
		{Name: "claimed", Last: "Tasks that the last sweep claimed, whatever became of them.", Total: "Overdue tasks claimed, whatever became of them.", Value: r.Claimed},
		{Name: "recovered", Last: "Run-out claims that the last sweep gave back or buried.", Total: "Run-out claims given back.", Value: r.Recovered},
		{Name: "buried", Last: "Those that it buried after the last crash.", Total: "Run-out claims buried after the last crash.", Value: r.Buried},
		{Name: "unread_tables", Last: "Tables that the last sweep did not read to their end.", Value: r.Unread},
		{Name: "failed_servers", Last: "Servers that the last sweep could not sweep in full.", Value: len(r.Failed)},
		{Name: "tasks", Total: "Overdue tasks by what sweeps did with them: delivered, retried, dead, skipped (by their schedules), elsewhere (another had them).",
			Labels: []string{"outcome"}, Values: through},
		{Name: "tasks", Last: "Overdue tasks by what the last sweep did with them: delivered, retried, dead, skipped (by their schedules), elsewhere (another had them), in_delivery (they go on).",
			Labels: []string{"outcome"}, Values: func(set func(n int, labels ...string)) {
				through(set)
				set(r.InDelivery, "in_delivery")
			}},
		{Name: "upkeep", Last: "What the last sweep did beside delivering, by what; in a resident sweeper since the sweep before.",
			Labels: []string{"what"}, Values: func(set func(n int, labels ...string)) {
				for _, what := range Upkept {
					set(r.Upkeep[what], what)
				}
			}},
		{Name: "left", Last: "Overdue tasks that the last sweep left, by reason.",
			Labels: []string{"biz_type", "reason"}, Values: func(set func(n int, labels ...string)) {
				for key, n := range r.Left {
					name, why, _ := strings.Cut(strings.TrimSuffix(key, ")"), " (")
					set(n, name, why)
				}
			}},
	}}
}

type sweepMetrics struct {
	*recurring
	left prometheus.Gauge
}

func newSweepMetrics(r prometheus.Registerer, upkept func() map[string]int) *sweepMetrics {
	f := promauto.With(r)
	for _, what := range Upkept {
		f.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "tocsin", Subsystem: "sweeper", Name: "upkeep_total", ConstLabels: prometheus.Labels{"what": what},
			Help: "What sweeps did beside delivering: runs_made, times_passed_over and schedules_failed (by schedules), alarms_raised, alarms_failed, runs_recorded and runs_not_recorded (in the history).",
		}, func() float64 { return float64(upkept()[what]) })
	}
	return &sweepMetrics{
		recurring: newRecurring(r, SweepResult{}.Ended(false), "Sweep", "ok, failed, timed_out", 1, 10, 60, 600),
		left: f.NewGauge(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: "left",
			Help: "Overdue tasks that the last sweep could not deliver."}),
	}
}

func (m *sweepMetrics) observe(r SweepResult, err error) {
	word := "ok"
	switch {
	case len(r.Failed) > 0:
		word = "failed"
	case r.TimedOut:
		word = "timed_out"
	}
	m.ended(word, r.Took)
	m.left.Set(float64(r.LeftTotal()))
	m.add(r.Ended(err == nil))
}
