package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// scheduleNext is the flags of `schedule next`.
type scheduleNext struct {
	*app
	spec              firetimes.Spec
	start, end, after string
	file              string
	n                 int
}

// maxNext bounds what is printed.
const maxNext = 10_000

func newScheduleNext(a *app) *cobra.Command {
	f := &scheduleNext{app: a}
	cmd := &cobra.Command{
		Use: "next (NAME | --file FILE [NAME] | --cron EXPRESSION)", Short: "Show the next fire times",
		Long: `Shows the next fire times of a schedule, of the schedules of a file, or of a cron expression. With --file
and --cron it needs neither a config nor a database; @every counts from --after then. Now is the time of
the schedule's database, and with --file and --cron that of this machine. Runs are due later than their
fire time by the schedule's jitter: a constant that is known once the schedule is applied. Of a schedule
that is inactive or paused they are those that it would have.`,
		Example: `  tocsin schedule next report.daily
  tocsin schedule next --cron '30 2 * * *' --zone Europe/Berlin -n 5
  tocsin schedule next --file configs/schedules.yaml --after 2027-03-27T00:00:00Z`,
		Args: oneNameAtMost, ValidArgsFunction: completing(a.scheduleNames),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	cmd.Flags().StringVar(&f.spec.Cron, "cron", "", `five fields, @daily and the like, or "@every 90s"`)
	cmd.Flags().StringVar(&f.spec.Zone, "zone", "", "with --cron: IANA time zone (default UTC)")
	cmd.Flags().StringVar(&f.start, "start", "", "with --cron: no fire time before, RFC 3339")
	cmd.Flags().StringVar(&f.end, "end", "", "with --cron: no fire time from then on, RFC 3339")
	cmd.Flags().StringVar(&f.file, "file", "", "show those of the schedules in this YAML file")
	cmd.Flags().StringVar(&f.after, "after", "", "fire times after this time, RFC 3339 (default now)")
	cmd.Flags().IntVarP(&f.n, "count", "n", 5, "show at most this many fire times")
	within(cmd, "count", 1, maxNext)
	return cmd
}

func (f *scheduleNext) run(ctx context.Context, args []string) error {
	after, err := f.times() // zero: now
	if err != nil {
		return err
	}
	cron, file := f.spec.Cron != "", f.file != ""
	if !cron && (f.spec.Zone != "" || f.start != "" || f.end != "") {
		return usage("--zone, --start and --end belong to --cron: a schedule has its own")
	}
	switch {
	case cron && !file && len(args) == 0:
		return f.ofCron(orNow(after))
	case file && !cron:
		return f.ofFile(orNow(after), args)
	case !file && !cron && len(args) == 1:
		return f.ofStored(ctx, after, args[0])
	}
	return usage("name one schedule, or give either --file FILE or --cron EXPRESSION")
}

// orNow is this machine's time for the zero time.
func orNow(t time.Time) time.Time {
	if t.IsZero() {
		return time.Now()
	}
	return t
}

// times reads the flags that are times and numbers.
func (f *scheduleNext) times() (after time.Time, err error) {
	for flag, value := range map[string]struct {
		text string
		into *time.Time
	}{"after": {f.after, &after}, "start": {f.start, &f.spec.Start}, "end": {f.end, &f.spec.End}} {
		if value.text == "" {
			continue
		}
		if *value.into, err = parseTime(flag, value.text); err != nil {
			return after, err
		}
	}
	return after, nil
}

// nextTimes is the JSON of `schedule next`, one for each schedule.
type nextTimes struct {
	Name  string     `json:"name,omitempty"`
	Cron  string     `json:"cron"`
	Zone  string     `json:"zone"`
	Times []nextTime `json:"times"`

	jitter time.Duration // that is not drawn yet
	idle   string        // why none of the times makes a run
}

type nextTime struct {
	Time  time.Time  `json:"time"`  // UTC
	Local string     `json:"local"` // in the schedule's zone
	Due   *time.Time `json:"due,omitempty"`
}

func (f *scheduleNext) ofCron(after time.Time) error {
	f.spec.Anchor = after
	if !f.spec.Start.IsZero() { // as in a schedule
		f.spec.Anchor = f.spec.Start
	}
	times, err := firetimes.Parse(f.spec)
	if err != nil {
		return usageError{err}
	}
	one := nextTimes{Cron: f.spec.Cron, Zone: times.Location().String()}
	for t := times.Next(after); !t.IsZero() && len(one.Times) < f.n; t = times.Next(t) {
		one.add(t, nil, times.Location())
	}
	return f.printNext([]nextTimes{one})
}

func (f *scheduleNext) ofFile(after time.Time, names []string) error {
	definitions, err := readSchedules(f.file)
	if err != nil {
		return err
	}
	var all []nextTimes
	for _, d := range definitions {
		if len(names) > 0 && names[0] != d.Name {
			continue
		}
		d = d.WithDefaults()
		fires, err := d.Next(after, f.n)
		if err != nil {
			return err
		}
		one := nextTimes{Name: d.Name, Cron: d.Cron, Zone: d.Zone, jitter: d.Jitter.D()}
		loc := locationOf(d)
		for _, t := range fires {
			one.add(t, nil, loc)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no schedule %q", f.file, names[0])
	}
	return f.printNext(all)
}

func (f *scheduleNext) ofStored(ctx context.Context, after time.Time, name string) error {
	return f.withSchedules(ctx, func(s *schedule.Schedules) error {
		stored, err := s.Get(ctx, name)
		if err != nil {
			return err
		}
		if after.IsZero() {
			after = stored.ReadAt
		}
		fires, err := stored.Following(after, f.n)
		if err != nil {
			return err
		}
		one := nextTimes{Name: stored.Name, Cron: stored.Cron, Zone: stored.Zone}
		switch stored.State {
		case schedule.Ended:
			one.idle = stored.Name + " has " + stored.Stands()
		case schedule.Inactive, schedule.Paused:
			one.idle = fmt.Sprintf("%s is %s and makes no runs: `tocsin schedule activate %s` lets it", stored.Name, stored.State, stored.Name)
		}
		loc := locationOf(stored.Definition)
		for _, fire := range fires {
			one.add(fire.Time, &fire.Due, loc)
		}
		return f.printNext([]nextTimes{one})
	})
}

// locationOf is the zone of a definition that was validated.
func locationOf(d schedule.Definition) *time.Location {
	loc, err := time.LoadLocation(d.Zone)
	if err != nil {
		return time.UTC
	}
	return loc
}

func (n *nextTimes) add(t time.Time, due *time.Time, loc *time.Location) {
	n.Times = append(n.Times, nextTime{t.UTC(), t.In(loc).Format("Mon 2006-01-02 15:04:05 MST"), due})
}

func (f *scheduleNext) printNext(all []nextTimes) error {
	for i := range all {
		all[i].Times = orEmpty(all[i].Times)
	}
	return f.print(all, func(w io.Writer) {
		for _, one := range all {
			one.write(w, len(all) > 1)
		}
	})
}

// write prints the times for people, under the name if there are several schedules.
func (n nextTimes) write(w io.Writer, named bool) {
	if named {
		fmt.Fprintf(w, "%s: %s in %s\n", n.Name, oneCell(n.Cron), n.Zone)
	}
	if len(n.Times) == 0 && n.idle == "" {
		fmt.Fprintln(w, "no fire time is left")
	}
	rows := make([][]string, len(n.Times))
	for i, t := range n.Times {
		rows[i] = []string{t.Local, t.Time.Format(timeText)}
		if t.Due != nil && !t.Due.Equal(t.Time) {
			rows[i] = append(rows[i], "due "+t.Due.UTC().Format(timeText))
		}
	}
	columns(w, rows...)
	if n.idle != "" {
		fmt.Fprintln(w, n.idle)
	}
	if n.jitter > 0 {
		fmt.Fprintf(w, "runs are due later by a constant below %s (jitter)\n", n.jitter)
	}
}

// scheduleRuns is the JSON of `schedule runs`.
type scheduleRuns struct {
	Open []schedule.OpenRun `json:"open"` // the first to be delivered first
	Runs []operator.Run     `json:"runs"` // the latest first
}

func newScheduleRuns(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "runs NAME", Short: "Show the pending runs of a schedule, and the history of the others", Args: exactArgs("NAME"),
		Long: `Shows the runs of a schedule that are pending or being delivered, the first to be delivered first, and then the
history: a line for each attempt, the latest first, as ` + "`tocsin task runs`" + ` shows it for one task.
Runs are made up to 20 minutes ahead.`,
		ValidArgsFunction: completing(a.scheduleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := a.runsOf(cmd.Context(), args[0], limit)
			return a.show(all, err, func(w io.Writer) { all.write(w, time.Now()) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "show at most this many open runs, and this many attempts of the history")
	within(cmd, "limit", 1, min(schedule.MaxOpen, operator.MaxRuns))
	return cmd
}

func (a *app) runsOf(ctx context.Context, name string, limit int) (all scheduleRuns, err error) {
	var one schedule.Schedule
	err = a.withSchedules(ctx, func(s *schedule.Schedules) error {
		if one, err = s.Get(ctx, name); err == nil {
			all.Open, err = s.OpenRuns(ctx, name, limit)
		}
		return err
	})
	if err != nil {
		return all, err
	}
	err = using(ctx, a, operator.Open, func(o *operator.Operator) error {
		all.Runs, err = o.Runs(ctx, operator.RunsQuery{Schedule: uint64(one.ID), Limit: limit})
		return err
	})
	return all, err
}

func (r scheduleRuns) write(w io.Writer, now time.Time) {
	if len(r.Open) == 0 {
		fmt.Fprintln(w, "no open runs")
	}
	rows := make([][]string, len(r.Open))
	for i, o := range r.Open {
		what := madeFor[o.For]
		if !o.Time.IsZero() {
			what += " " + o.Time.UTC().Format(timeText)
		}
		rows[i] = []string{
			"job_id " + o.JobID.String(), what, o.Status.String(),
			whenText(tocsin.Info{Status: o.Status, ActionTime: o.Action}, now), "attempts " + strconv.Itoa(o.Attempts),
		}
	}
	columns(w, rows...)
	if len(r.Runs) == 0 {
		fmt.Fprintln(w, "no history: none of its runs was delivered yet, or they were purged")
		return
	}
	table(w, append([]string{"JOB_ID", "FIRE TIME"}, runHead...), r.Runs, func(run operator.Run) []any {
		return append([]any{run.JobID, cmp.Or(fireText(run.FireTime), "-")}, runRow(run)...)
	})
}

// madeFor are words for people.
var madeFor = map[schedule.Why]string{schedule.ForBackfill: "backfill of", schedule.ForFireTime: "fire time", schedule.ForRunNow: "run-now"}

func newTaskRuns(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "runs JOB_ID", Short: "Show what became of each attempt of a task", Args: exactArgs("JOB_ID"),
		Long: `Shows what became of each attempt of a task, the latest first: when it started, how late and for how
long, its outcome and output, and for a failure its error. The biz type must have "history: true",
or the task be a run of a schedule. Runs outlive the row of their task, if that is purged first.

Outcomes: completed, retried, snoozed, buried; cancelled and rescheduled (in flight), lost (another
attempt settled the task first), cut_off (by the end of the node), missed and skipped (by the
policies of a schedule).`,
		Example: "  tocsin task runs 1523399873241099",
		RunE: ofJob(func(cmd *cobra.Command, id tocsin.JobID) error {
			return using(cmd.Context(), a, operator.Open, func(o *operator.Operator) error {
				runs, err := o.Runs(cmd.Context(), operator.RunsQuery{JobID: id, Limit: limit})
				return a.show(runs, misused(err), func(w io.Writer) {
					if len(runs) == 0 {
						fmt.Fprintf(w, "no runs of task %s: its biz type has no \"history: true\", it was not delivered since, or they were purged\n", id)
						return
					}
					table(w, runHead, runs, runRow)
				})
			})
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "show at most this many runs, "+strconv.Itoa(operator.MaxRuns)+" at most")
	within(cmd, "limit", 1, operator.MaxRuns)
	return cmd
}

// shortOutput is how many characters of an output stand in a line. --json has all.
const shortOutput = 120

var runHead = []string{"STARTED", "VERSION", "ATTEMPT", "OUTCOME", "LATE", "TOOK", "NODE", "OUTPUT"}

func runRow(r operator.Run) []any {
	return []any{
		r.Started.Format(timeText), r.Version, r.Attempt, r.Outcome,
		milliseconds(r.LatenessMS), milliseconds(r.DurationMS), oneCell(r.Node), shortened(oneCell(r.Output)),
	}
}

// shortened cuts a text for a line.
func shortened(s string) string {
	if all := []rune(s); len(all) > shortOutput {
		return string(all[:shortOutput]) + "..."
	}
	return s
}
