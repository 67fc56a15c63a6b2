package schedule

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/ids"
)

func TestApplyCreatesChangesAndLeavesAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := s.create(every("other", "1m"))
	a, b := every("a", "1m"), every("b", "1h")
	b.BizID, b.App = 77, "billing"
	dry, err := s.Apply(t.Context(), []Definition{a, b}, true)
	if err != nil || len(dry) != 2 || dry[0].Verdict != Created || dry[1].Verdict != Created || dry[1].ID != 0 {
		t.Fatalf("%+v, %v", dry, err)
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("a dry run created it: %v", err)
	}
	made, err := s.Apply(t.Context(), []Definition{a, b}, false)
	if err != nil || made[0].Verdict != Created || made[0].Revision != 1 || made[0].ID == 0 || made[1].State != Active {
		t.Fatalf("%+v, %v", made, err)
	}
	before := s.get("b")
	if before.BizID != 77 || before.Key != "" || before.App != "billing" || before.Table != s.cfg.Layout.TableOf(77) {
		t.Errorf("%+v", before)
	}
	for range 2 {
		b.Cron = strings.Repeat(" ", 300) + b.Cron + "\n" // which means nothing, and would not fit the column
		same, err := s.Apply(t.Context(), []Definition{a, b}, false)
		if err != nil || same[0].Verdict != Unchanged || same[1].Verdict != Unchanged || same[1].Changes != nil {
			t.Fatalf("%+v, %v", same, err)
		}
	}
	if now := s.get("b"); !now.Modified.Equal(before.Modified) || now.Revision != 1 {
		t.Errorf("%+v was written, was %+v", now, before)
	}
	b.Payload, b.Jitter, b.BizType, b.Headers = "new", biztype.Duration(time.Minute), "mail.send", map[string]string{"a": "b"}
	want := []Change{{"biz_type", "report.make", "mail.send"}, {"jitter", "0s", "1m0s"}, {"payload", "p of b", "new"}, {"headers", "", `{"a":"b"}`}}
	dry, err = s.Apply(t.Context(), []Definition{b}, true)
	if err != nil || dry[0].Verdict != Changed || !slices.Equal(dry[0].Changes, want) || dry[0].Revision != 1 {
		t.Errorf("%+v, %v", dry, err)
	}
	if got := s.apply(b); got.Verdict != Changed || !slices.Equal(got.Changes, want) || got.Revision != 2 {
		t.Errorf("%+v", got)
	}
	if got := s.get("b"); got.Payload != "new" || got.BizType != "mail.send" || got.Jitter.D() != time.Minute || got.Headers["a"] != "b" || !got.Anchor.Equal(before.Anchor) {
		t.Errorf("%+v", got)
	}
	if got := s.get("other"); got.Revision != other.Revision || !got.Modified.Equal(other.Modified) && got.Modified.Sub(other.Modified) > time.Second {
		t.Errorf("%+v, was %+v", got, other)
	}
}

func TestApplyRefusesInOneLine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.create(every("a", "1m"))
	moved, keyed := every("a", "1m"), every("a", "1m")
	moved.BizID, keyed.Key = 5, "k"
	unknown := every("b", "1m")
	unknown.BizType = "no.such"
	for want, all := range map[string][]Definition{
		`schedule a: key never changes, and is "a", not "k": delete the schedule, and make another`: {keyed},
		`schedule a: biz_id never changes, and is "", not "5"`:                                      {moved},
		"schedule b: unknown biz type \"no.such\": apply it with `tocsin biz apply`":                {unknown},
		"schedule b: the name stands twice":                                                         {every("b", "1m"), every("b", "2m")},
		"schedule c: cron expression \"@every 1x\"":                                                 {every("b", "1m"), every("c", "1x")},
	} {
		_, err := s.Apply(t.Context(), all, false)
		if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := s.Get(t.Context(), "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("something was written: %v", err)
	}
	if _, err := s.Create(t.Context(), every("a", "2m")); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	if _, err := s.Update(t.Context(), every("b", "1m"), 0); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := s.Update(t.Context(), every("a", "2m"), 7); !errors.Is(err, ErrRevision) {
		t.Error(err)
	}
	if a, err := s.Update(t.Context(), every("a", "2m"), 1); err != nil || a.Verdict != Changed || a.Revision != 2 {
		t.Error(a, err)
	}
}

func TestAScheduleWithoutAFireTimeLeftIsNotCreated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("report", "1m")
	d.End = time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	calls := map[string]func() error{
		"create": func() error { _, err := s.Create(t.Context(), d); return err },
		"apply":  func() error { _, err := s.Apply(t.Context(), []Definition{d, every("other", "1m")}, false); return err },
		"dry":    func() error { _, err := s.Apply(t.Context(), []Definition{d}, true); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "create schedule report: its end ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.Get(t.Context(), "report"); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := s.get("other"); got.State != Active {
		t.Errorf("it stopped the others: %+v", got)
	}
}

func TestAnEditReplacesPendingRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("report", "1m")
	made := s.create(d)
	old := s.runs(made)
	s.exec(made, "UPDATE {task} SET status = 1 WHERE job_id = ?", uint64(old[3].ID))                                                                    // claimed
	s.exec(made, "UPDATE {task} SET attempts = 1, action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR WHERE job_id = ?", uint64(old[4].ID))                // waits for a retry
	s.exec(made, "UPDATE {task} SET due_time = UTC_TIMESTAMP(3), action_time = UTC_TIMESTAMP(3) WHERE job_id = ?", uint64(old[0].ID))                   // may have started
	s.exec(made, "UPDATE {task} SET due_time = UTC_TIMESTAMP(3), action_time = UTC_TIMESTAMP(3) - INTERVAL 1 HOUR WHERE job_id = ?", uint64(old[1].ID)) // overdue
	manual, err := s.RunNow(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	s.exec(made, "UPDATE {task} SET action_time = action_time + INTERVAL 1 HOUR WHERE job_id = ?", uint64(manual.JobID))
	d.Payload = "new"
	s.apply(d)
	left := map[tocsin.JobID]bool{old[3].ID: true, old[0].ID: true, old[1].ID: true, manual.JobID: true} // their fire times get no other runs
	now, fresh := s.get("report"), 0
	for _, r := range s.runs(now) {
		switch {
		case r.Payload == "new" && r.Key.Revision == 2 && r.Status == tocsin.Pending:
			fresh++
		case r.Status == tocsin.Cancelled && r.Key == ids.RunKey{} && !left[r.ID]:
		case r.Status != tocsin.Cancelled && left[r.ID]:
		default:
			t.Errorf("%+v", r)
		}
	}
	if fresh != 17 || now.Revision != 2 || !now.Anchor.Equal(made.Anchor) {
		t.Errorf("%d new runs of %+v", fresh, now)
	}
	if n := s.count("SELECT COUNT(*) FROM " + s.cfg.Layout.Table(made.Table) + " WHERE status = 3 AND last_error = 'the schedule was changed'"); n != 17 {
		t.Errorf("%d runs are cancelled", n)
	}
}

func TestDeactivateAndActivate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.create(every("report", "90s"))
	claimed := s.runs(made)[0]
	s.exec(made, "UPDATE {task} SET status = 1 WHERE job_id = ?", uint64(claimed.ID))
	off, changed, err := s.Deactivate(t.Context(), "report")
	if err != nil || !changed || off.State != Inactive || off.Revision != 2 || !off.NextFire.IsZero() {
		t.Fatalf("%+v, %t, %v", off, changed, err)
	}
	if got := s.make(made.ID); got != (Made{}) || len(s.pending(made)) != 0 || len(s.runs(made)) != 13 {
		t.Errorf("%+v, %d pending", got, len(s.pending(made)))
	}
	if again, changed, err := s.Deactivate(t.Context(), "report"); err != nil || changed || again.Revision != 2 {
		t.Errorf("again: %+v, %v", again, err)
	}
	d := every("report", "90s")
	d.Payload = "new"
	if a := s.apply(d); a.Verdict != Changed || a.State != Inactive || len(s.pending(made)) != 0 {
		t.Errorf("an edit of an inactive schedule: %+v", a)
	}
	on, changed, err := s.Activate(t.Context(), "report")
	if err != nil || !changed || on.State != Active || on.Revision != 4 || !on.Anchor.After(made.Anchor) {
		t.Fatalf("%+v, %v", on, err)
	}
	runs := s.pending(on)
	if len(runs) != 13 || !runs[0].Due.Equal(on.Anchor.Add(90*time.Second)) || runs[0].Key.Revision != 4 || runs[0].Payload != "new" {
		t.Errorf("%+v", runs)
	}
	if again, changed, err := s.Activate(t.Context(), "report"); err != nil || changed || again.Revision != 4 {
		t.Errorf("again: %+v, %v", again, err)
	}
	if _, _, err := s.Activate(t.Context(), "no.such"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestADeletedScheduleLeavesNoPendingRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made, other := s.create(every("report", "1m")), s.create(every("other", "1m"))
	if _, err := s.RunNow(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	if n := len(s.pending(made)); n != 0 || len(s.runs(made)) != 21 || len(s.pending(other)) != 20 {
		t.Errorf("%d runs are pending, %d of the other schedule", n, len(s.pending(other)))
	}
	if err := s.Delete(t.Context(), "report"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if got := s.make(made.ID); got != (Made{}) {
		t.Errorf("%+v", got)
	}
	if again := s.create(every("report", "1m")); again.ID == made.ID || len(s.pending(again)) != 20 {
		t.Errorf("%+v", again)
	}
}

func TestSchedulesOfOneNameAreNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.create(every("report", "1m"))
	from, to := s.database(made), s.cfg.Layout.Database(1-s.cfg.Layout.DatabaseOf(made.Table))
	for _, statement := range []string{
		"CREATE TABLE %[2]s.copied AS SELECT * FROM %[1]s.schedule",
		"UPDATE %[2]s.copied SET schedule_id = schedule_id ^ (2 << 9), table_no = table_no ^ 2",
		"INSERT INTO %[2]s.schedule SELECT * FROM %[2]s.copied",
	} {
		if _, err := s.db.Exec(fmt.Sprintf(statement, from, to)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Get(t.Context(), "report")
	if !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), made.ID.String()) || !strings.Contains(err.Error(), from) || !strings.Contains(err.Error(), to) {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), []Definition{every("report", "2m")}, false); !errors.Is(err, ErrAmbiguous) {
		t.Error(err)
	}
	if err := s.DeleteID(t.Context(), made.ID^(2<<9)); err != nil {
		t.Fatal(err)
	}
	if got := s.get("report"); got.ID != made.ID {
		t.Errorf("%+v", got)
	}
}

// Whoever creates a schedule in one database does not see, before its commit, what another creates in another one.
func TestCreatesAtOnceInTwoDatabasesLeaveOne(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	p, dsn := devtest.NewProxy(t, devtest.DSN(t))
	slow, fast := openSite(t, withDSN(cfg, dsn)), openSite(t, cfg)
	mine, theirs := every("report", "1m"), every("report", "1m")
	mine.BizID, theirs.BizID = slow.bizID(0), slow.bizID(1)
	for name, create := range map[string]func() error{
		"Create": func() error { return second(slow.Create(context.Background(), mine)) },
		"Apply": func() error {
			return second(slow.Apply(context.Background(), []Definition{mine}, false))
		},
	} {
		held, release := p.HoldAt("INSERT /* tocsin schedule create */ INTO " + cfg.Layout.Database(0))
		defer release()
		created := make(chan error, 1)
		go func() { created <- create() }()
		<-held
		made := fast.create(theirs)
		release()
		if err := <-created; !errors.Is(err, ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
		if got := fast.get("report"); got.ID != made.ID || len(fast.pending(got)) != 20 {
			t.Errorf("%s: %+v", name, got)
		}
		if err := fast.Delete(t.Context(), "report"); err != nil {
			t.Fatal(err)
		}
	}
}

// Creates that meet, in one database or in two, leave one of them, and its caller is told so.
func TestCreatesThatMeetLeaveOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for round := range 12 {
		name := fmt.Sprint("report.", round)
		results := make(chan error, 6)
		start := make(chan struct{})
		for i := range cap(results) {
			d := every(name, fmt.Sprintf("%dm", 1+i))
			if round%2 > 0 { // else its name decides
				d.BizID = s.bizID(i % 2)
			}
			go func() {
				<-start
				results <- second(s.Create(context.Background(), d))
			}()
		}
		close(start)
		made := 0
		for range cap(results) {
			if err := <-results; err == nil {
				made++
			} else if !errors.Is(err, ErrExists) {
				t.Error(err)
			}
		}
		if made != 1 {
			t.Errorf("round %d: %d were made", round, made)
		}
		s.get(name)
	}
}

func TestAllSchedulesAreListedInPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var definitions []Definition
	for i := range 30 {
		d := every(fmt.Sprintf("s%02d", i), "1h")
		if i%3 == 0 {
			d.App, d.BizType = "billing", "mail.send"
		}
		definitions = append(definitions, d)
	}
	if _, err := s.Apply(t.Context(), definitions, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Deactivate(t.Context(), "s06"); err != nil {
		t.Fatal(err)
	}
	names := func(q Query) (names []string) {
		t.Helper()
		for {
			page, err := s.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range page {
				names = append(names, one.Name)
			}
			if len(page) < q.Limit {
				return names
			}
			q.After = names[len(names)-1]
		}
	}
	if got := names(Query{Limit: 7}); len(got) != 30 || !slices.IsSorted(got) {
		t.Errorf("%v", got)
	}
	sees := func(seen ...string) func(string) bool {
		return func(name string) bool { return slices.Contains(seen, name) }
	}
	for _, c := range []struct {
		want int
		q    Query
	}{
		{10, Query{App: "billing", Limit: 3}}, {20, Query{BizType: "report.make", Limit: 100}}, {9, Query{BizType: "mail.send", State: Active, Limit: 9}},
		{1, Query{State: Inactive, Limit: 9}}, {10, Query{Sees: sees("mail.send"), Limit: 30}}, {0, Query{Sees: sees(), Limit: 30}},
		{20, Query{BizType: "report.make", Sees: sees("report.make", "mail.send"), Limit: 30}}, {0, Query{BizType: "report.make", Sees: sees("mail.send"), Limit: 30}},
	} {
		if got := names(c.q); len(got) != c.want {
			t.Errorf("%+v: %v, want %d", c.q, got, c.want)
		}
	}
	for _, q := range []Query{{}, {Limit: MaxListed + 1}} {
		if _, err := s.List(t.Context(), q); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	}
	if _, err := s.List(t.Context(), Query{BizType: "no.such", Limit: 1}); !errors.Is(err, tocsin.ErrUnknownBizType) {
		t.Error(err)
	}
}

func TestChangesOfSchedulesGoThroughTheFunctionsOfUseChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var seen []string
	cfg := s.cfg
	cfg.UseChanges = append(cfg.UseChanges, func(next tocsin.ChangeFunc) tocsin.ChangeFunc {
		return func(ctx context.Context, call *tocsin.Changing) error {
			seen = append(seen, strings.TrimSpace(call.Op+" "+call.Schedule+" "+call.BizType))
			return next(ctx, call)
		}
	})
	hooked, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer hooked.Close()
	ctx, d, other := t.Context(), every("a", "1m"), every("b", "1m")
	made, err := hooked.Create(ctx, d)
	d.Payload = "changed"
	from := time.Now().Add(-time.Hour)
	for _, call := range []func() error{
		func() error { _, err := hooked.Apply(ctx, []Definition{d}, true); return err },
		func() error { _, err := hooked.Apply(ctx, []Definition{d, other}, false); return err },
		func() error { _, err := hooked.Update(ctx, every("a", "2m"), 0); return err },
		func() error { _, _, err := hooked.Activate(ctx, "a"); return err },
		func() error { _, _, err := hooked.Deactivate(ctx, "a"); return err },
		func() error { _, err := hooked.RunNow(ctx, "a"); return err },
		func() error { _, err := hooked.Backfill(ctx, "a", from, from.Add(time.Minute), true); return err },
		func() error { _, err := hooked.Backfill(ctx, "a", from, from.Add(time.Minute), false); return err },
		func() error { _, _, err := hooked.Edit(ctx, s.get("a"), d, false); return err },
		func() error { return hooked.DeleteID(ctx, made.ID) },
		func() error { return hooked.Delete(ctx, "b") },
		func() error { _, err := hooked.Get(ctx, "b"); return errors.Join(err, nil) },
	} {
		err = errors.Join(err, call())
	}
	want := []string{
		"schedule_create a report.make", "schedule_apply", "schedule_update a report.make", "schedule_activate a", "schedule_deactivate a", "schedule_run_now a",
		"schedule_backfill a", "schedule_edit a report.make", "schedule_delete", "schedule_delete b",
	}
	if !errors.Is(err, ErrNotFound) || !slices.Equal(seen, want) { // of Get
		t.Errorf("%q, want %q: %v", seen, want, err)
	}
}

func TestThePayloadOfAScheduleIsThatOfItsBizType(t *testing.T) {
	t.Parallel()
	type report struct {
		Shop int `json:"shop"`
	}
	d, err := Of(tocsin.Define[report]("report.make"), report{7}, every("a", "1m"))
	if err != nil || d.BizType != "report.make" || d.Payload != `{"shop":7}` || d.Name != "a" {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := Of(tocsin.Define[func()]("report.make"), func() {}, d); !errors.Is(err, tocsin.ErrInvalid) {
		t.Error(err)
	}
}

func TestTheVersionOfAPayloadIsThatOfTheBizType(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	biz := tocsin.Define[string]("report.make")
	for version, want := range map[int]string{0: "unchanged", 1: "unchanged", 2: "changed"} {
		name := fmt.Sprint("v", version)
		s.create(every(name, "1m"))
		d, err := Of(biz.Version(version), "p of "+name, every(name, "1m"))
		if err != nil {
			t.Fatal(err)
		}
		for _, verdict := range []Verdict{Verdict(want), Unchanged} {
			applied, err := s.Apply(t.Context(), []Definition{d}, false)
			if err != nil || applied[0].Verdict != verdict {
				t.Errorf("version %d: %+v, %v, want %s", version, applied, err, verdict)
			}
		}
		if got := s.get(name); got.PayloadVersion != version&^1 {
			t.Errorf("version %d is stored as %d", version, got.PayloadVersion)
		}
	}
}

// unread is a schedule without the time when it was read.
func (s Schedule) unread() Schedule {
	s.ReadAt = time.Time{}
	return s
}

func TestOnlyAScheduleAsItWasReadIsChanged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, d := s.create(every("a", "1m")), every("a", "2m")
	if same, changes, err := s.Edit(t.Context(), first, d, true); err != nil || same.Revision != 1 || len(changes) != 1 || changes[0].Field != "cron" {
		t.Error(same, changes, err)
	}
	second, changes, err := s.Edit(t.Context(), first, d, false)
	if err != nil || len(changes) != 1 || second.Revision != 2 || !reflect.DeepEqual(second.unread(), s.get("a").unread()) {
		t.Errorf("%+v %v %v\nstored %+v", second, changes, err, s.get("a"))
	}
	if same, changes, err := s.Edit(t.Context(), second, d, false); err != nil || len(changes) > 0 || same.Revision != 2 {
		t.Error(same, changes, err)
	}
	if _, _, err := s.Edit(t.Context(), first, every("a", "3m"), false); !errors.Is(err, ErrRevision) {
		t.Error(err)
	}
	if _, _, err := s.Edit(t.Context(), second, every("b", "3m"), false); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if err := s.DeleteRead(t.Context(), first); !errors.Is(err, ErrRevision) {
		t.Error(err)
	}
	if err := s.DeleteRead(t.Context(), second); err != nil {
		t.Error(err)
	}
	// It is made anew: what was read before is gone, though it has the first revision again.
	if anew := s.create(every("a", "1m")); !reflect.DeepEqual(anew.unread(), s.get("a").unread()) {
		t.Errorf("%+v\nstored %+v", anew, s.get("a"))
	}
	if _, _, err := s.Edit(t.Context(), first, d, false); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := s.DeleteRead(t.Context(), first); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
