package judge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/output"
	"github.com/tocsinhq/tocsin/internal/runkey"
)

// Runs as the cases know them. A run is late, that is missed, from a minute on.
var (
	inTime   = is{}
	late     = is{at: -10 * time.Minute}
	retried  = is{at: -10 * time.Minute, attempts: 1, waited: true}
	crashed  = is{at: -10 * time.Minute, crashes: 1, waited: true}
	putOff   = is{at: -10 * time.Minute, waited: true}
	byHand   = is{at: -10 * time.Minute, kind: runkey.Manual, made: -10 * time.Minute}
	backfill = is{at: -48 * time.Hour, kind: runkey.Backfill, made: -10 * time.Minute}
	former   = is{revision: 2}
)

// earlier are runs before that of base.
func earlier(minutes int, run is) is {
	run.at -= time.Duration(minutes) * time.Minute
	return run
}

var (
	pending   = is{}
	claimed   = is{status: tocsin.Claimed}
	done      = is{status: tocsin.Done}
	dead      = is{status: tocsin.Dead, attempts: 10}
	willRetry = is{attempts: 2, waited: true}
	waiting   = is{waited: true}
)

const (
	isDone  = "done"
	isWait  = "waits"
	skips   = "skipped: "
	misses  = "missed: "
	cancels = "cancelled: "
	stays   = "stays"
)

// decisions are one run that is delivered beside others.
var decisions = map[string]struct {
	plan   plan
	run    is
	beside []is
	want   string // begins with
	others string // what becomes of those beside; "": stays
}{
	"skip, in time":                           {plan{missed: "skip"}, inTime, nil, isDone, ""},
	"skip, late":                              {plan{missed: "skip"}, late, nil, "missed: 10m10s late", ""},
	"skip, late within the limit":             {plan{missed: "skip", within: time.Hour}, late, nil, isDone, ""},
	"skip, retried":                           {plan{missed: "skip"}, retried, nil, isDone, ""},
	"skip, crashed":                           {plan{missed: "skip"}, crashed, nil, isDone, ""},
	"skip, put off by the judge":              {plan{missed: "skip"}, putOff, nil, misses, ""},
	"skip, by hand":                           {plan{missed: "skip"}, byHand, nil, isDone, ""},
	"skip, backfill":                          {plan{missed: "skip"}, backfill, nil, isDone, ""},
	"once, in time":                           {plan{missed: "once"}, inTime, nil, isDone, ""},
	"once, late, a later one is due":          {plan{missed: "once"}, late, nil, misses, ""},
	"once, late, the latest":                  {plan{missed: "once", cron: "50 * * * *"}, late, nil, isDone, ""},
	"once, retried":                           {plan{missed: "once"}, retried, nil, isDone, ""},
	"all, in time":                            {plan{missed: "all", most: 3}, inTime, nil, isDone, ""},
	"all, late":                               {plan{missed: "all", most: 10}, late, nil, isDone, ""},
	"all, late, beyond the bound":             {plan{missed: "all", most: 9}, late, nil, misses, ""},
	"all, retried":                            {plan{missed: "all", most: 1}, retried, nil, isDone, ""},
	"former revision, in time":                {plan{}, former, nil, isDone, ""},
	"former revision, put off":                {plan{}, is{revision: 2, waited: true}, nil, cancels, ""},
	"former revision, swept":                  {plan{within: time.Hour}, is{at: -10 * time.Minute, revision: 2}, nil, cancels, ""},
	"former revision, retried":                {plan{}, is{revision: 2, attempts: 1, waited: true}, nil, cancels, ""},
	"former revision, by hand":                {plan{revision: 9}, byHand, nil, isDone, ""},
	"allow, one open":                         {plan{overlap: "allow"}, inTime, []is{earlier(1, claimed)}, isDone, ""},
	"skip, none open":                         {plan{overlap: "skip"}, inTime, nil, isDone, ""},
	"skip, one claimed":                       {plan{overlap: "skip", within: time.Hour}, inTime, []is{earlier(1, claimed)}, "skipped: run of 2026-11-02T02:59:00Z is open", ""},
	"skip, one pending":                       {plan{overlap: "skip", within: time.Hour}, inTime, []is{earlier(1, pending)}, skips, ""},
	"skip, one is retried":                    {plan{overlap: "skip"}, inTime, []is{earlier(5, willRetry)}, skips, ""},
	"skip, one of a former revision":          {plan{overlap: "skip", within: time.Hour}, inTime, []is{{at: -time.Minute, status: tocsin.Claimed, revision: 1}}, skips, ""},
	"skip, by hand, open":                     {plan{overlap: "skip"}, inTime, []is{{kind: runkey.Manual, made: -time.Minute, status: tocsin.Claimed}}, skips, ""},
	"skip, by hand, later":                    {plan{overlap: "skip"}, inTime, []is{{kind: runkey.Manual, made: time.Second, status: tocsin.Claimed}}, isDone, ""},
	"skip, by hand, just before":              {plan{overlap: "skip"}, inTime, []is{{kind: runkey.Manual, made: -900 * time.Millisecond, status: tocsin.Claimed}}, isDone, ""},
	"skip, by hand, a second before":          {plan{overlap: "skip"}, inTime, []is{{kind: runkey.Manual, made: -1001 * time.Millisecond, status: tocsin.Claimed}}, skips, ""},
	"skip, crashed beside one open":           {plan{overlap: "skip", within: time.Hour}, crashed, []is{earlier(15, claimed)}, skips, ""},
	"skip, crashed beside one in doubt":       {plan{overlap: "skip"}, crashed, []is{earlier(20, claimed)}, isWait, ""},
	"queue, crashed beside one open":          {plan{overlap: "queue", within: time.Hour}, crashed, []is{earlier(15, claimed)}, isWait, ""},
	"replace, crashed beside one open":        {plan{overlap: "replace", within: time.Hour}, crashed, []is{earlier(15, claimed)}, isDone, "replaced: by the run of 2026-11-02T02:50:00Z"},
	"skip, settled ones":                      {plan{overlap: "skip"}, inTime, []is{earlier(1, done), earlier(2, dead)}, isDone, ""},
	"skip, a later one":                       {plan{overlap: "skip"}, inTime, []is{{at: time.Minute}}, isDone, ""},
	"skip, retried beside one open":           {plan{overlap: "skip"}, retried, []is{earlier(20, claimed)}, isDone, ""},
	"skip, one that may be missed":            {plan{overlap: "skip"}, inTime, []is{earlier(2, pending)}, isWait, ""},
	"skip, one claimed that may be":           {plan{overlap: "skip"}, inTime, []is{earlier(20, claimed)}, isWait, ""},
	"skip, it still is after a wait":          {plan{overlap: "skip"}, waiting, []is{earlier(2, pending)}, skips, ""},
	"skip, one that is missed for certain":    {plan{overlap: "skip"}, inTime, []is{earlier(20, pending)}, isDone, ""},
	"skip, all missed ones are open":          {plan{overlap: "skip", missed: "all", most: 99}, inTime, []is{earlier(20, pending)}, skips, ""},
	"skip, made after its time, beside doubt": {plan{overlap: "skip", missed: "once", cron: "50 * * * *"}, is{at: -10 * time.Minute, afterIt: true}, []is{earlier(71, claimed)}, isWait, ""},
	"skip, made after its time, too late":     {plan{overlap: "skip"}, is{at: -10 * time.Minute, afterIt: true}, nil, misses, ""},
	"skip, beside one made after its time":    {plan{overlap: "skip", missed: "once"}, inTime, []is{{at: -time.Minute * 2, afterIt: true}}, isWait, ""},
	"queue, none open":                        {plan{overlap: "queue"}, inTime, nil, isDone, ""},
	"queue, one open":                         {plan{overlap: "queue", within: time.Hour}, inTime, []is{earlier(1, claimed)}, isWait, ""},
	"queue, it waits":                         {plan{overlap: "queue", within: time.Hour}, waiting, []is{earlier(1, claimed)}, isWait, ""},
	"queue, it has waited":                    {plan{overlap: "queue"}, putOff, nil, isDone, ""},
	"queue, two open":                         {plan{overlap: "queue", within: time.Hour}, inTime, []is{earlier(2, claimed), earlier(1, waiting)}, skips, ""},
	"replace, none open":                      {plan{overlap: "replace"}, inTime, nil, isDone, ""},
	"replace, all kinds of open":              {plan{overlap: "replace", within: time.Hour}, inTime, []is{earlier(2, claimed), earlier(1, pending), earlier(3, willRetry)}, isDone, "replaced: by the run of 2026-11-02T03:00:00Z"},
	"replace, settled and later ones":         {plan{overlap: "replace"}, inTime, []is{earlier(2, done), earlier(1, dead), {at: time.Minute}}, isDone, ""},
	"by hand, one open":                       {plan{overlap: "skip"}, byHand, []is{earlier(20, willRetry)}, isWait, ""},
	"by hand, replaces none":                  {plan{overlap: "replace"}, byHand, []is{earlier(20, willRetry)}, isWait, ""},
	"by hand, one that is due at once":        {plan{overlap: "skip", within: time.Hour}, byHand, []is{{at: -10*time.Minute + 900*time.Millisecond}}, isWait, ""},
	"by hand, one that is due later":          {plan{overlap: "skip", within: time.Hour}, byHand, []is{{at: -10*time.Minute + 1100*time.Millisecond}}, isDone, ""},
	"by hand, one stored before it":           {plan{overlap: "skip"}, byHand, []is{{kind: runkey.Manual, made: -10 * time.Minute, stored: -time.Millisecond}}, isWait, ""},
	"by hand, one stored after it":            {plan{overlap: "skip"}, byHand, []is{{kind: runkey.Manual, made: -11 * time.Minute, stored: 2 * time.Minute}}, isDone, ""},
	"by hand, later ones":                     {plan{overlap: "skip"}, byHand, []is{earlier(1, willRetry), {kind: runkey.Manual, made: time.Minute}}, isDone, ""},
	"by hand, by a clock that is ahead":       {plan{overlap: "skip"}, is{kind: runkey.Manual, made: -10 * time.Minute, wrong: 2 * time.Minute}, []is{earlier(9, willRetry)}, isDone, ""},
	"by hand, by a clock that is behind":      {plan{overlap: "skip"}, is{kind: runkey.Manual, made: -10 * time.Minute, wrong: -2 * time.Minute}, []is{earlier(11, willRetry)}, isWait, ""},
	"skip, by hand, open, by a clock ahead":   {plan{overlap: "skip"}, inTime, []is{{kind: runkey.Manual, made: -time.Minute, wrong: 2 * time.Minute, status: tocsin.Claimed}}, skips, ""},
	"by hand, later, by a clock behind":       {plan{overlap: "skip"}, byHand, []is{{kind: runkey.Manual, made: -9 * time.Minute, wrong: -2 * time.Minute, status: tocsin.Claimed}}, isDone, ""},
	"backfill, one before it":                 {plan{overlap: "queue"}, backfill, []is{{at: -72 * time.Hour, kind: runkey.Backfill, made: -11 * time.Minute}}, isWait, ""},
}

// TestAMarkAboveARunIsForgotten: it is of a time when the server's clock was ahead, and earlier runs may be made again.
func TestAMarkAboveARunIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, set := range map[string]func(schedule uint64, key string){
		"in memory": func(schedule uint64, key string) { r.marks.set(tocsin.JobID(schedule), mark{key: key}) },
		"in the row": func(schedule uint64, key string) {
			r.exec("UPDATE $.schedule SET open_from = ? WHERE schedule_id = ?", []byte(key), schedule)
		},
	} {
		schedule := r.plan(plan{overlap: "skip", within: time.Hour})
		set(schedule, runkey.OfTime(schedule, 3, base.Add(3*time.Hour)).String())
		r.add(schedule, earlier(1, claimed))
		id := r.add(schedule, inTime)
		r.deliver(r.sink, r.load(id))
		if got := r.became(id); !strings.HasPrefix(got, skips) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestADefinitionIsReadAgainAfterAMinute: a fail-over may have lost an edit, and another one has its revision now.
func TestADefinitionIsReadAgainAfterAMinute(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	schedule := r.plan(plan{within: time.Hour})
	first, second, third := r.add(schedule, is{at: -30 * time.Second}), r.add(schedule, is{at: -20 * time.Second}), r.add(schedule, inTime)
	r.add(schedule, earlier(3, claimed))
	r.deliver(r.sink, r.load(first))
	r.exec("UPDATE $.schedule SET overlap = 'skip' WHERE schedule_id = ?", schedule)
	r.deliver(r.sink, r.load(second))
	if n := r.seen.judged.Load(); n != 1 || r.became(second) != isDone {
		t.Errorf("read %d times, %s: within a minute what was read counts", n, r.became(second))
	}
	d, _ := r.known.get(tocsin.JobID(schedule))
	d.read = d.read.Add(-knownFor)
	r.deliver(r.sink, r.load(third))
	if got := r.became(third); !strings.HasPrefix(got, skips) || r.seen.judged.Load() != 2 {
		t.Errorf("read %d times, %s", r.seen.judged.Load(), got)
	}
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, c := range decisions {
		schedule := r.plan(c.plan)
		var ids []tocsin.JobID
		var before []string
		for _, run := range c.beside {
			ids = append(ids, r.add(schedule, run))
			before = append(before, r.became(ids[len(ids)-1]))
		}
		id := r.add(schedule, c.run)
		r.told = nil
		r.deliver(r.sink, r.load(id))
		got := r.became(id)
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if told := len(r.told) == 1 && r.told[0].Why == got && r.told[0].Time.Equal(base.Add(c.run.at)); told != strings.HasPrefix(c.want, misses) {
			t.Errorf("%s: told of %+v", name, r.told)
		}
		for i := range ids {
			want := before[i]
			if c.others != "" {
				want = c.others
			}
			if got := r.became(ids[i]); got != want {
				t.Errorf("%s: beside it %+v became %q, want %q", name, c.beside[i], got, want)
			}
		}
	}
}

func TestARunOfADeletedScheduleIsCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.add(1<<22, inTime)
	r.deliver(r.sink, r.load(id))
	if got := r.became(id); got != "cancelled: its schedule was deleted" {
		t.Error(got)
	}
}

// TestAnOutageUnderEachPolicy delivers the runs of an hour in which nothing ran. Two of them are in time.
func TestAnOutageUnderEachPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for missed, want := range map[string]int{"skip": 2, "once": 2, "all": 2 + 7} {
		schedule := r.plan(plan{missed: missed, most: 7, within: 70 * time.Second})
		var ids []tocsin.JobID
		for minute := range 60 {
			ids = append(ids, r.add(schedule, is{at: -time.Duration(minute) * time.Minute}))
		}
		for _, id := range ids {
			r.deliver(r.sink, r.load(id))
		}
		var done []int
		for minute, id := range ids {
			if r.became(id) == isDone {
				done = append(done, minute)
			}
		}
		if len(done) != want || done[len(done)-1] != want-1 {
			t.Errorf("%s: delivered those of minutes %v before the end, want %d", missed, done, want)
		}
	}
}

func TestTasksThatAreNoRunsPassUntouched(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, key := range []string{"", "mine", strings.Repeat("\xff", 21), "\x00short"} {
		if errs := r.sink.Deliver(t.Context(), []tocsin.Info{{JobID: 5, DedupKey: key}}); errs[0] != nil {
			t.Errorf("key %q: %v", key, errs[0])
		}
	}
	if n := r.seen.judged.Load(); n != 0 {
		t.Errorf("%d statements", n)
	}
}

func TestRunsInTimeCostNoStatement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	schedule := r.plan(plan{})
	var got []tocsin.Info
	r.handler = func(_ context.Context, task tocsin.Info) error {
		got = append(got, task)
		return nil
	}
	for i := range 20 {
		r.deliver(r.sink, r.load(r.add(schedule, is{at: time.Duration(i) * time.Second})))
	}
	if n := r.seen.judged.Load(); n != 1 || r.seen.row.Load() != 0 {
		t.Errorf("%d reads of the schedule, %d runs read", n, r.seen.row.Load())
	}
	if got[7].Schedule == "" || !got[7].FireTime.Equal(base.Add(7*time.Second)) {
		t.Errorf("the handler got %+v", got[7])
	}
}

// TestAnEditIsSeenByARunThatWasInADelivery: the edit has cancelled pending runs, and could not cancel that one.
func TestAnEditIsSeenByARunThatWasInADelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	schedule := r.plan(plan{within: time.Hour})
	r.deliver(r.sink, r.load(r.add(schedule, inTime))) // the judge knows revision 3 now
	r.exec("UPDATE $.schedule SET revision = 4")
	r.mu.Lock()
	d, _ := r.known.get(tocsin.JobID(schedule))
	d.read = d.read.Add(-freshFor)
	r.mu.Unlock()
	for name, run := range map[string]is{"retried": retried, "given back": putOff, "found by a sweep": late} {
		id := r.add(schedule, run)
		r.deliver(r.sink, r.load(id))
		if got := r.became(id); !strings.HasPrefix(got, cancels) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestARunWaitsWhileItsScheduleCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.add(r.plan(plan{}), inTime)
	r.seen.away.Store(true)
	infos := r.load(id)
	var kept output.Outputs
	verb, in, _ := tocsin.AsOutcome(r.sink.Deliver(context.WithValue(t.Context(), output.Key, &kept), infos)[0])
	if !kept.Left(uint64(id)) {
		t.Error("the history would have a run each time that it waits")
	}
	if verb != tocsin.Snoozed || in < putOffTime || in > 2*putOffTime {
		t.Errorf("%s in %s", verb, in)
	}
	r.seen.away.Store(false)
	r.deliver(r.sink, infos)
	if got := r.became(id); got != isDone {
		t.Error(got)
	}
}

func TestRunsOfOneBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for overlap, want := range map[string][2]string{
		"allow": {isDone, isDone}, "skip": {isDone, skips}, "queue": {isDone, isWait}, "replace": {"replaced: ", isDone},
	} {
		schedule := r.plan(plan{overlap: overlap, within: time.Hour})
		ids := []tocsin.JobID{r.add(schedule, earlier(1, pending)), r.add(schedule, inTime)}
		plain := tocsin.Info{JobID: 5}
		infos := r.load(ids...)
		all := []tocsin.Info{infos[0], plain, infos[1]}
		errs := r.sink.Deliver(t.Context(), all)
		if errs[1] != nil {
			t.Errorf("%s: the task between them: %v", overlap, errs[1])
		}
		r.settle(infos, []error{errs[0], errs[2]})
		for i, id := range ids {
			if got := r.became(id); !strings.HasPrefix(got, want[i]) {
				t.Errorf("%s: run %d is %q, want %q", overlap, i, got, want[i])
			}
		}
	}
}

// TestAReplacedDeliveryEnds: its context ends, and whatever it returns changes nothing.
func TestAReplacedDeliveryEnds(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"success": nil, "failure": errors.New("interrupted")} {
		r := newRig(t)
		schedule := r.plan(plan{overlap: "replace", within: time.Hour})
		first, second := r.add(schedule, earlier(1, pending)), r.add(schedule, inTime)
		infos := r.load(first, second)
		began, ended := make(chan struct{}), make(chan []error)
		r.handler = func(ctx context.Context, task tocsin.Info) error {
			if task.JobID == second {
				return nil
			}
			close(began)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), errReplaced) {
				t.Errorf("%s: its context ends with %v", name, context.Cause(ctx))
			}
			return answer
		}
		go func() { ended <- r.sink.Deliver(t.Context(), infos[:1]) }()
		<-began
		r.deliver(r.sink, infos[1:])
		r.settle(infos[:1], <-ended)
		if a, b := r.became(first), r.became(second); !strings.HasPrefix(a, "replaced: ") || b != isDone {
			t.Errorf("%s: %q and %q", name, a, b)
		}
		if len(r.running) != 0 {
			t.Errorf("%s: %d runs are still known as running", name, len(r.running))
		}
	}
}

// TestARunThatWasReplacedBeforeItBegan was loaded when the later one replaced it.
func TestARunThatWasReplacedBeforeItBegan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	schedule := r.plan(plan{overlap: "replace", within: time.Hour})
	first, second := r.add(schedule, earlier(1, pending)), r.add(schedule, inTime)
	infos := r.load(first, second)
	r.deliver(r.sink, infos[1:])
	r.handler = func(context.Context, tocsin.Info) error {
		t.Error("it is delivered")
		return nil
	}
	r.deliver(r.sink, infos[:1])
	if got := r.became(first); !strings.HasPrefix(got, "replaced: ") {
		t.Error(got)
	}
}

// TestSettledRunsAreReadOnce: with 1,700 of them, each of ten deliveries reads those since the last one, and a judge that
// starts reads at most one page more than it must.
func TestSettledRunsAreReadOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	schedule := r.plan(plan{cron: "@every 1s", overlap: "skip"})
	for i := range 1700 {
		r.add(schedule, is{at: -time.Hour + time.Duration(i)*time.Second, status: tocsin.Done})
	}
	read := func(by Sink, at time.Duration) int32 {
		before := r.seen.row.Load()
		id := r.add(schedule, is{at: at})
		r.deliver(by, r.load(id))
		if got := r.became(id); got != isDone {
			t.Errorf("at %s: %s", at, got)
		}
		return r.seen.row.Load() - before
	}
	if n := read(r.sink, 0); n != 1700 {
		t.Errorf("the first read %d runs", n)
	}
	for i := range 9 {
		if n := read(r.sink, time.Duration(i+1)*time.Second); n != 1 {
			t.Errorf("run %d read %d runs", i, n)
		}
	}
	if n := read(r.around(r.another()), 20*time.Second); n > page+10 {
		t.Errorf("after a restart %d runs are read", n)
	}
}

// TestOneOfManyIsAlwaysDelivered judges due runs of one schedule by two judges in many orders, and settles each only after
// the next ones were judged.
func TestOneOfManyIsAlwaysDelivered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sinks := []Sink{r.sink, r.around(r.another())}
	for _, missed := range []string{"skip", "once", "all"} {
		for _, overlap := range []string{"skip", "queue"} {
			for order := range 6 {
				schedule := r.plan(plan{missed: missed, overlap: overlap, most: 2})
				var ids []tocsin.JobID
				for i := range 3 {
					ids = append(ids, r.add(schedule, is{at: -time.Duration(i) * time.Minute}))
				}
				permute(ids, order)
				infos := r.load(ids...)
				errs := make([]error, len(infos))
				for i := range infos { // all of them before the first is settled
					errs[i] = sinks[i%2].Deliver(t.Context(), infos[i:i+1])[0]
				}
				r.settle(infos, errs)
				for range 5 { // those that wait
					for i := range infos {
						if r.became(ids[i]) == isWait {
							again := r.load(ids[i])
							r.deliver(sinks[i%2], again)
						}
					}
				}
				if !slices.ContainsFunc(ids, func(id tocsin.JobID) bool { return r.became(id) == isDone }) {
					t.Errorf("missed %s, overlap %s, order %d: none is delivered", missed, overlap, order)
				}
			}
		}
	}
}

func permute[T any](s []T, n int) {
	for i := len(s); i > 1; i-- {
		s[i-1], s[n%i] = s[n%i], s[i-1]
		n /= i
	}
}
