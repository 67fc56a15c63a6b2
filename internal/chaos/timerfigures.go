package chaos

import "cmp"

// FireFigures are those of schedules.
type FireFigures struct {
	Schedules  map[string]int // by how often they fire
	Zones      int
	Changes    map[string]int // by kind and answer
	Fires      int            // that were to be, while a revision was in force
	First      int            // of those, the ones in the first minute after a change
	Lost       int            // without a task
	FirstLost  int            // of those, in the first minute after a change
	Twice      int            // with two tasks, or done for two revisions
	Made       int            // runs
	ByHand     int            // of those, the ones that people made
	Backfilled int            // of those, the ones of backfills
	Policies   map[string]int // schedules
	AtOnce     map[string]int // deliveries beside one of another run that is to be alone, by why
	Waits      Lateness       // of runs that depend on others: from the end of these, or their time, to their begin, outside faults
	Paused     int            // revisions that were paused after as many failed runs as was asked for
	PausedNear int            // likewise with more or fewer, or not, beside a fault
	Cancelled  map[string]int // by why
	Overdue    int            // cancelled by a change 3 s after their time, or later
	Purged     int
	Faults     map[string]int // by kind
	Aimed      int            // freezes at the moment at which a run was admitted
	Dead       Dead
	Outlasted  int // deliveries that began more than 5 s after the claim of their run
	Costs      []cost
}

// Dead are deliveries that began after their run was cancelled.
type Dead struct {
	Loaded int // shortly: they had been loaded or claimed
	Frozen int // by a node that was frozen in between
	Begun  int // others: a broken promise
}

func newFireFigures(of *timetable) *FireFigures {
	f := &FireFigures{Schedules: map[string]int{}, Changes: map[string]int{}, Cancelled: map[string]int{}, Policies: map[string]int{}, AtOnce: map[string]int{}, Made: len(of.runs), Costs: of.costs}
	zones := map[string]bool{}
	for _, t := range of.timers {
		zones[t.Zone] = true
		f.Policies[t.plan.String()]++
		if len(t.changes) > 0 {
			f.Schedules[t.changes[0].Want.Beat.pace()]++
		}
	}
	f.Zones = len(zones)
	return f
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

func (f *FireFigures) changes(t *timer) {
	for _, c := range t.changes {
		f.Changes[c.Kind+" "+string(c.Word)]++
	}
}

func (f *FireFigures) faults(all []incident) {
	f.Faults = map[string]int{}
	for _, i := range all {
		f.Faults[string(i.Fault)]++
	}
}

func (f *FireFigures) wanted(first bool) {
	f.Fires++
	if first {
		f.First++
	}
}

func (f *FireFigures) lost(first bool) {
	f.Lost++
	if first {
		f.FirstLost++
	}
}

// lines are for the report.
func (r *Report) fires(line func(what, format string, args ...any)) {
	f := r.Fires
	line("schedules", "%s; %d time zones", counted(f.Schedules), f.Zones)
	line("faults", "%s; %d of the freezes at the moment at which a run was admitted", counted(f.Faults), f.Aimed)
	line("changes", "%s", counted(f.Changes))
	line("fire times", "%d, %d lost, %d twice, %d early", f.Fires, f.Lost, f.Twice, r.Early)
	line("  first minute of a change", "%d, %d lost", f.First, f.FirstLost)
	line("runs", "%d made, %d of them by hand, %d of these backfilled; %d purged", f.Made, f.ByHand, f.Backfilled, f.Purged)
	line("  final states", "%s", counted(r.States))
	line("  cancelled", "%s; %d of those by a change were overdue", counted(f.Cancelled), f.Overdue)
	line("begun after a cancel", "%d loaded or claimed before it, %d by a node that was frozen, %d others", f.Dead.Loaded, f.Dead.Frozen, f.Dead.Begun)
	line("begun 5 s after its claim", "%d, by nodes that were frozen", f.Outlasted)
	line("policies", "%s", counted(f.Policies))
	line("  two runs at once", "%s", cmp.Or(counted(f.AtOnce), "never, where a policy forbids it"))
	line("  began after others", "%s", f.Waits)
	line("  paused", "%d after as many failed runs as asked for, %d with another count beside a fault", f.Paused, f.PausedNear)
	line("deliveries", "%d", r.Deliveries)
	line("dead revisions", "%d runs begun or made for one", r.count(promiseDead))
	line("second deliveries", "%d, of one task at most %d", r.Seconds(), r.MostAgain)
	r.again(line)
	line("lateness outside faults", "%s", r.Calm)
	line("lateness inside faults", "%s", r.Troubled)
	for _, c := range f.Costs {
		line("cost, "+c.name, "%s", c)
	}
}

// count is how often a promise was broken.
func (r *Report) count(promise string) (n int) {
	for _, b := range r.Breaches {
		if b.Promise == promise {
			n++
		}
	}
	return n
}
