package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/ids"
)

// edited are edits of each field of a definition. TestEachFieldIsEdited holds them against the struct. A field that never changes has none.
var edited = map[string][]func(*Definition){
	"Name": nil, "BizID": nil, "Key": nil,
	"App":     {func(d *Definition) { d.App += "x" }},
	"BizType": {func(d *Definition) { d.BizType = "mail.send" }, func(d *Definition) { d.BizType = "report.make" }},
	"Cron": {
		func(d *Definition) { d.Cron = "0 9 * * 0-6" }, func(d *Definition) { d.Cron = "0 9,10 * * *" }, func(d *Definition) { d.Cron = "0 */3 * * *" }, // 09:00 too
		func(d *Definition) { d.Cron = "0 8 * * *" }, func(d *Definition) { d.Cron = "0 10 * * *" }, func(d *Definition) { d.Cron = "@hourly" },
		func(d *Definition) { d.Cron = "@every 6h" }, func(d *Definition) { d.Cron = "@every 3h" }, func(d *Definition) { d.Cron = "* * * * *" },
	},
	"Zone":           {func(d *Definition) { d.Zone = "Europe/Berlin" }, func(d *Definition) { d.Zone = "Africa/Abidjan" }, func(d *Definition) { d.Zone = "UTC" }},
	"Start":          {func(d *Definition) { d.Start = nine }, func(d *Definition) { d.Start = nine.Add(1) }, func(d *Definition) { d.Start = nine.Add(-240 * time.Hour) }, func(d *Definition) { d.Start = time.Time{} }},
	"End":            {func(d *Definition) { d.End = nine.Add(time.Millisecond) }, func(d *Definition) { d.End = nine }, func(d *Definition) { d.End = nine.Add(240 * time.Hour) }, func(d *Definition) { d.End = time.Time{} }},
	"Jitter":         {jittered(0), jittered(time.Minute - 1), jittered(50 * time.Minute)},
	"Payload":        {func(d *Definition) { d.Payload += "x" }},
	"PayloadVersion": {func(d *Definition) { d.PayloadVersion = 5 - d.PayloadVersion }},
	"Headers":        {func(d *Definition) { d.Headers = map[string]string{"k": fmt.Sprint(len(d.Headers["k"]))} }},
	"StartWithin":    {func(d *Definition) { d.StartWithin = biztype.Duration(time.Second) }, func(d *Definition) { d.StartWithin = biztype.Duration(3 * time.Hour) }},
	"Missed":         {func(d *Definition) { d.Missed = MissedSkip }, func(d *Definition) { d.Missed = MissedAll }},
	"MissedMost":     {func(d *Definition) { d.MissedMost = 3 }},
	"Overlap":        {func(d *Definition) { d.Overlap = OverlapQueue }, func(d *Definition) { d.Overlap = OverlapAllow }},
	"PauseAfter":     {func(d *Definition) { d.PauseAfter = 3 - d.PauseAfter }},
}

func jittered(j time.Duration) func(*Definition) {
	return func(d *Definition) { d.Jitter = biztype.Duration(j.Truncate(time.Millisecond)) }
}

// nine is a fire time of the definitions of these tests.
var nine = time.Date(2030, 1, 16, 9, 0, 0, 0, time.UTC)

func TestEachFieldIsEdited(t *testing.T) {
	t.Parallel()
	all := reflect.TypeFor[Definition]()
	for i := range all.NumField() {
		if _, ok := edited[all.Field(i).Name]; !ok {
			t.Errorf("field %s is edited by none of these tests: what becomes of a run at that edit?", all.Field(i).Name)
		}
	}
	if len(edited) != all.NumField() {
		t.Errorf("%d fields, %d edited", all.NumField(), len(edited))
	}
}

// world is a schedule with its runs in memory, at a time. Its makers, edits and nodes use the decisions of this package, and
// nothing else of it.
type world struct {
	t    testing.TB
	now  time.Time
	row  *row
	runs []*worldRun
	told map[int64]int // runs that were dropped, by their ids
}

// worldRun is a run. A node that begins it without a claim changes nothing in its row.
type worldRun struct {
	pendingRun
	bizType string
	fire    time.Time
	begun   int // deliveries that began
}

func newWorld(t testing.TB, d Definition, created time.Time, seed uint64) *world {
	w := &world{t: t, now: created, told: map[int64]int{}, row: &row{}}
	w.row.Definition = d.WithDefaults()
	w.row.ID, w.row.State, w.row.Revision = tocsin.JobID(seed), Active, 1
	w.row.Anchor, w.row.MadeUntil, w.row.ReadAt = w.row.anchorAt(created), created, created
	w.window(nil)
	return w
}

// window makes runs, as here.window does.
func (w *world) window(t *transition) {
	times, err := w.row.Times()
	if err != nil {
		w.t.Fatal(err)
	}
	made := windowOf(w.row.Schedule, times, w.now)
	w.row.MadeUntil, w.row.NextFire = made.until, made.next
	if made.next.IsZero() {
		w.row.State = Ended
	}
	for _, f := range t.fires(made, times) {
		key := ids.OfTime(uint64(w.row.ID), w.row.Revision, f.Time)
		r := &worldRun{bizType: w.row.BizType, fire: f.Time}
		r.id, r.of, r.key, r.status = tocsin.JobID(len(w.runs)+1), key, key.String(), tocsin.Pending
		r.due, r.created, r.action = f.Due.UnixMilli(), w.now.UnixMilli(), later(f.Due, w.now).UnixMilli()
		w.runs = append(w.runs, r)
	}
}

// make is what makers do at a time.
func (w *world) make() {
	for range 20 {
		if w.row.State != Active || w.row.NextFire.After(w.now.Add(Step)) {
			return
		}
		w.window(nil)
	}
}

// edit changes the schedule, as change and here.replace do.
func (w *world) edit(change func(*row)) {
	next := w.row.clone()
	change(next)
	next.Revision++
	w.row.ReadAt = w.now
	var pending []pendingRun
	for _, r := range w.runs {
		if r.status == tocsin.Pending && r.bizType == w.row.BizType {
			pending = append(pending, r.pendingRun)
		}
	}
	t := transitionOf(w.row, next, pending, w.now, firstLead)
	for _, g := range t.gone {
		w.runs[g.id-1].status = tocsin.Cancelled
	}
	for _, d := range t.dropped {
		w.told[int64(d.id)]++
	}
	next.MadeUntil, next.NextFire = t.until, time.Time{}
	w.row = next
	if next.State == Active {
		w.window(t)
	}
}

// define edits the definition. False: it is refused.
func (w *world) define(by func(*Definition)) bool {
	d := w.row.Definition
	by(&d)
	if d.Validate() != nil {
		return false
	}
	w.edit(func(next *row) { next.define(d.WithDefaults(), w.now) })
	return true
}

// open counts the runs for a fire time that were delivered or will be.
func (w *world) open(fire time.Time) (n int, of []*worldRun) {
	for _, r := range w.runs {
		if r.fire.Equal(fire) {
			of = append(of, r)
			if r.begun > 0 || r.status != tocsin.Cancelled {
				n++
			}
		}
	}
	return n, of
}

func (w *world) has(of *row, fire time.Time) bool {
	times, err := of.Times()
	return err == nil && times.Has(fire)
}

// stages are how far the run for nine o'clock is at the time of an edit.
var stages = map[string]func(*worldRun, time.Time){
	"pending": func(*worldRun, time.Time) {},
	"begun, and no row shows it": func(r *worldRun, now time.Time) {
		if r.action <= now.UnixMilli() {
			r.begun++
		}
	},
	"claimed": func(r *worldRun, now time.Time) {
		if r.action <= now.UnixMilli() {
			r.status, r.action = tocsin.Claimed, now.Add(time.Minute).UnixMilli()
			r.begun++
		}
	},
	"done": func(r *worldRun, now time.Time) {
		if r.action <= now.UnixMilli() {
			r.status = tocsin.Done
			r.begun++
		}
	},
	"waits for its turn": func(r *worldRun, now time.Time) {
		if r.action <= now.UnixMilli() {
			r.action = now.Add(10 * time.Second).UnixMilli()
		}
	},
}

// moments of an edit: around the fire time, and around the time when its run is due.
func moments(offset time.Duration) (all []time.Time) {
	for _, of := range []time.Time{nine, nine.Add(offset)} {
		for _, by := range []time.Duration{-15 * time.Minute, -2 * time.Second, -time.Second, -999 * time.Millisecond, -time.Millisecond, 0, time.Millisecond, time.Second, 1001 * time.Millisecond, 5 * time.Minute} {
			all = append(all, of.Add(by))
		}
	}
	return append(all, nine.Add(offset/2).Truncate(time.Millisecond), nine.Add(offset+70*time.Minute))
}

// TestAnEditNeitherLosesNorDoublesARun plays one edit of each field at each moment, of a schedule with jitter and without, whose run is in each
// stage: a fire time that both revisions have is delivered once; a run that is dropped is told.
func TestAnEditNeitherLosesNorDoublesARun(t *testing.T) {
	t.Parallel()
	plays, lost, twice := 0, 0, 0
	for field, edits := range edited {
		for i, by := range edits {
			for _, jitter := range []time.Duration{0, 59 * time.Minute} {
				for stage, set := range stages {
					for _, overlap := range []Overlap{OverlapAllow, OverlapQueue} {
						d := Definition{Name: "report", BizType: "report.make", Cron: "0 9 * * *", Jitter: biztype.Duration(jitter), Overlap: overlap}
						for _, at := range moments(offsetOf(d, 77)) {
							if (stage == "waits for its turn") == (overlap == OverlapAllow) && stage != "pending" && stage != "claimed" && stage != "done" {
								continue // Begin, which claims, has a run wait
							}
							w := newWorld(t, d, nine.Add(-50*time.Hour), 77)
							for w.now = nine.Add(-time.Hour); w.now.Before(at); w.now = w.now.Add(Step) {
								w.make()
							}
							w.now = at
							w.make()
							_, of := w.open(nine)
							for _, r := range of {
								set(r, at)
							}
							before := w.row
							if !w.define(by) {
								continue
							}
							plays++
							w.settle(func(promise string) {
								lost++
								t.Errorf("%s, edit %d, jitter %s, %s, %s, edited at %s: %s", field, i, jitter, stage, overlap, at.Sub(nine), promise)
							}, func(promise string) {
								twice++
								t.Errorf("%s, edit %d, jitter %s, %s, %s, edited at %s: %s", field, i, jitter, stage, overlap, at.Sub(nine), promise)
							}, []*row{before, w.row})
						}
					}
				}
			}
		}
	}
	t.Logf("%d plays, %d runs lost, %d doubled", plays, lost, twice)
	if plays < 4000 {
		t.Errorf("only %d plays", plays)
	}
}

func offsetOf(d Definition, seed uint64) time.Duration {
	s := Schedule{Definition: d.WithDefaults(), ID: tocsin.JobID(seed), Anchor: nine}
	times, _ := s.Times()
	return times.Offset()
}

// settle holds the runs for nine o'clock against the revisions that were in force from when its run was made.
func (w *world) settle(lost, twice func(string), revisions []*row) {
	w.make()
	n, of := w.open(nine)
	wanted := len(of) > 0 || nine.After(w.now) && nine.Before(w.now.Add(Step))
	for _, r := range revisions {
		wanted = wanted && w.has(r, nine)
	}
	switch {
	case n > 1:
		twice(fmt.Sprintf("%d runs", n))
	case n == 0 && wanted:
		lost("both revisions have it")
	}
	for _, r := range of {
		again := slices.ContainsFunc(of, func(o *worldRun) bool { return o.id > r.id })
		if r.status == tocsin.Cancelled && !again && w.told[int64(r.id)] != 1 {
			lost(fmt.Sprintf("run %d was dropped, and told %d times", r.id, w.told[int64(r.id)]))
		}
	}
}

// TestEditsInARowNeitherLoseNorDoubleARun plays edits in a row, at random moments, of random fields, with makers and nodes between them.
func TestEditsInARowNeitherLoseNorDoubleARun(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(edited))
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := Definition{Name: "report", BizType: "report.make", Cron: "0 9 * * *", Overlap: []Overlap{OverlapAllow, OverlapQueue}[r.IntN(2)]}
		if r.IntN(2) == 0 {
			d.Jitter = biztype.Duration(59 * time.Minute)
		}
		w := newWorld(t, d, nine.Add(-50*time.Hour), seed)
		at := nine.Add(offsetOf(d, seed)).Add(time.Duration(r.IntN(3_000)-1500) * time.Millisecond)
		if r.IntN(2) == 0 {
			at = nine.Add(time.Duration(r.IntN(100)-50) * time.Minute)
		}
		revisions := []*row{w.row}
		types := map[string]bool{w.row.BizType: true}
		for range 1 + r.IntN(4) {
			w.until(at, r)
			edits := edited[names[r.IntN(len(names))]]
			if len(edits) > 0 && w.define(edits[r.IntN(len(edits))]) {
				revisions, types[w.row.BizType] = append(revisions, w.row), true
			}
			at = at.Add([]time.Duration{0, time.Millisecond, 300 * time.Millisecond, 1100 * time.Millisecond, 7 * time.Minute}[r.IntN(5)])
		}
		note := func(promise string) {
			var trace string
			for _, v := range revisions {
				trace += fmt.Sprintf("\n  revision %d: %+v", v.Revision, v.Definition)
			}
			t.Errorf("seed %d: %s, now %s, %s", seed, promise, w.now, trace)
		}
		w.settle(note, note, revisions)
	}
}

// until passes the time until a moment: makers make runs, and nodes begin some of those that are due.
func (w *world) until(at time.Time, r *rand.Rand) {
	w.now = later(w.now, nine.Add(-time.Hour))
	for {
		if w.now.After(at) {
			w.now = at
		}
		w.make()
		for _, run := range w.runs {
			if run.status == tocsin.Pending && run.action <= w.now.UnixMilli() && run.begun == 0 && r.IntN(2) == 0 {
				run.begun++
				switch {
				case r.IntN(2) == 0:
					run.status = tocsin.Done
				case w.row.Overlap != OverlapAllow || run.of.Revision != w.row.Revision: // claimed by Begin
					run.status = tocsin.Claimed
				}
			}
		}
		if !w.now.Before(at) {
			return
		}
		w.now = w.now.Add(Step)
	}
}
