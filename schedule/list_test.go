package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

// listed reads a list in pages, and returns it with how many pages it had.
func (s *site) listed(q Query) (all []Schedule, pages int) {
	s.t.Helper()
	for after := (Place{}); ; {
		page, err := s.Page(s.t.Context(), q, after)
		if err != nil {
			s.t.Fatal(err)
		}
		all, pages = append(all, page.Schedules...), pages+1
		if page.Next == nil {
			return all, pages
		}
		if after = *page.Next; after.Name != "" && (q.Sees != nil || !strings.Contains(after.Name, strings.ToLower(q.Part))) {
			s.t.Errorf("a place names %s", after.Name)
		}
	}
}

// Schedules that a query does not name stand before those that it does, in thousands: no page looks through more than 2,000 of a
// database, and none is lost.
func TestAListOfSomeIsReadInWindows(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.db.SetMaxOpenConns(1) // fill's settings are of its session
	s.fill(0, 4500, "0", time.Hour)
	s.fill(1, 150, "2", 3*time.Hour)
	s.exec(Schedule{}, "UPDATE "+s.cfg.Layout.Database(1)+".schedule SET next_fire = UTC_TIMESTAMP(3) + INTERVAL 4 HOUR WHERE schedule_id % 4 < 3")
	for _, c := range []struct {
		Query
		want, pages int
	}{
		{Query{Part: "S1.", Limit: 100}, 150, 4}, // two windows of others, and two pages
		{Query{Part: "s1.", ByNext: true, Limit: 100}, 150, 4},
		{Query{Limit: 4000}, 4650, 2},
		{Query{ByNext: true, Limit: 4000}, 4650, 2},
		{Query{Part: "none", Limit: 100}, 0, 3},
		{Query{Sees: func(string) bool { return false }, Limit: 100}, 0, 3},
		{Query{State: Active, Limit: 1000}, 4650, 6},
		{Query{State: Paused, ByNext: true, Limit: 1000}, 0, 3},
	} {
		all, pages := s.listed(c.Query)
		seen := map[string]bool{}
		for i, one := range all {
			if seen[one.Name] || i > 0 && c.ByNext && one.NextFire.Before(all[i-1].NextFire) || i > 0 && !c.ByNext && one.Name <= all[i-1].Name {
				t.Errorf("%+v: %s, %s is in the wrong place", c.Query, one.Name, one.NextFire)
			}
			seen[one.Name] = true
		}
		if len(all) != c.want || pages > c.pages {
			t.Errorf("%+v: %d schedules in %d pages, want %d in %d", c.Query, len(all), pages, c.want, c.pages)
		}
		q := c.Query
		q.Limit = MaxListed
		if whole, err := s.List(t.Context(), q); err != nil || len(whole) != c.want {
			t.Errorf("%+v: a list of %d, %v", c.Query, len(whole), err)
		}
	}
}

// Each statement of a page reads its page, or its window, wherever that begins: also among schedules that all fire at midnight.
func TestAPageOfAListIsASmallRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.db.SetMaxOpenConns(1)
	s.fill(0, 20_000, "0", time.Hour)
	s.exec(Schedule{}, "UPDATE "+s.cfg.Layout.Database(0)+".schedule SET next_fire = '2030-01-01'")
	midnight := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	id := func(n int) tocsin.JobID {
		return tocsin.JobID(s.count(fmt.Sprintf("SELECT schedule_id FROM %s.schedule ORDER BY schedule_id LIMIT 1 OFFSET %d", s.cfg.Layout.Database(0), n)))
	}
	deep := map[*order][2]Place{
		&byName: {{Name: "s0.3600.13"}, {Name: "s0.3600.14"}}, // 1,111 are between
		&byNext: {{Fire: midnight, ID: id(10_000)}, {Fire: midnight, ID: id(12_000)}},
	}
	for o, places := range deep {
		for name, c := range map[string]struct {
			question string
			args     []any
			most     int
		}{
			"the first page":      {o.page, slices.Concat(o.args(o.first), o.args(o.last), []any{"", "", "", "", "", 101}), 130},
			"a page in the midst": {o.page, slices.Concat(o.args(places[0]), o.args(o.last), []any{"", "", "", "", "", 101}), 130},
			"a window":            {o.page, slices.Concat(o.args(places[0]), o.args(places[1]), []any{"none", "none", "", "", "", 101}), 2050},
			"the end of a window": {o.end, append(o.args(places[0]), looksThrough-1), 2050},
		} {
			question := strings.NewReplacer("{database}", s.cfg.Layout.Database(0), "{types}", "TRUE").Replace(c.question)
			before := s.reads(s.db)
			if _, err := s.db.Exec("DO (SELECT COUNT(*) FROM ("+question+") AS page)", c.args...); err != nil {
				t.Fatal(err)
			}
			// what is read of the table that holds the page counts too
			if n := s.reads(s.db) - before; n > 2*c.most {
				t.Errorf("%s of %.40s: %d entries were read", name, c.question, n)
			}
			if _, key, extra := s.explain(question, c.args...); strings.Contains(extra, "filesort") || key != "uk_name" && key != "idx_next" {
				t.Errorf("%s of %.40s is read by %q, %s", name, c.question, key, extra)
			}
		}
	}
}

func TestAListHasTheLastRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := map[string]Schedule{}
	for i := range 60 {
		name := fmt.Sprintf("s%02d", i)
		made[name] = s.create(Definition{Name: name, BizType: "report.make", Cron: "@yearly"})
	}
	record := func(name string, number uint64, outcome string) {
		of := made[name].ID
		run := &store.Run{JobID: of + 1<<22, Schedule: uint64(of), Type: number, Attempt: 1, Node: "n", Started: 1_800_000_000_123, Lateness: 4, Took: 17, Outcome: outcome}
		if _, err := s.tables.RecordRuns(t.Context(), 0, []*store.Run{run}); err != nil {
			t.Fatal(err)
		}
	}
	record("s07", 1, store.RunCompleted)
	record("s07", 1, store.RunBuried)
	record("s55", 2, store.RunCompleted) // when it was of another biz type
	page, err := s.Page(t.Context(), Query{Last: true, Limit: 1000}, Place{})
	if err != nil || len(page.Schedules) != MaxLast || page.Next == nil {
		t.Fatalf("%d schedules, %v", len(page.Schedules), err)
	}
	for _, sees := range []func(string) bool{nil, func(name string) bool { return name == "report.make" }} {
		all, err := s.List(t.Context(), Query{Last: true, Sees: sees, Limit: 1000})
		if err != nil || len(all) != 60 {
			t.Fatalf("%d schedules, %v", len(all), err)
		}
		for _, one := range all {
			want := ""
			switch {
			case one.Name == "s07":
				want = "buried 2027-01-15T08:00:00.123Z 4 17"
			case one.Name == "s55" && sees == nil:
				want = "completed 2027-01-15T08:00:00.123Z 4 17"
			}
			got := ""
			if r := one.Last; r != nil {
				got = fmt.Sprint(r.Outcome, " ", r.Started.Format(time.RFC3339Nano), " ", r.LatenessMS, " ", r.DurationMS)
			}
			if got != want {
				t.Errorf("%s: %q, want %q", one.Name, got, want)
			}
		}
	}
}

func TestManySchedulesAreTurnedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	names := []string{}
	for i := range 20 {
		names = append(names, s.create(every(fmt.Sprint("s", i), "1m")).Name)
	}
	s.create(Definition{Name: "mail", BizType: "mail.send", Cron: "@every 1m"})
	if _, _, err := s.Deactivate(t.Context(), "s3"); err != nil {
		t.Fatal(err)
	}
	names = append(names, "none", "mail", "s5") // s5 twice
	seen := func(bizType string) bool { return bizType == "report.make" }
	all, err := s.DeactivateMany(t.Context(), names, seen)
	if err != nil || len(all) != len(names) {
		t.Fatalf("%+v, %v", all, err)
	}
	changed := 0
	for i, one := range all {
		if one.Changed {
			changed++
		}
		switch {
		case one.Name != names[i]:
			t.Errorf("%s stands in the place of %s", one.Name, names[i])
		case one.Name == "none" || one.Name == "mail":
			if !errors.Is(one.Err, ErrNotFound) || one.Err.Error() != missing(one.Name).Error() {
				t.Errorf("%+v", one)
			}
		case one.Err != nil || one.Schedule.State != Inactive || one.Name == "s3" && one.Changed:
			t.Errorf("%+v", one)
		}
	}
	if changed != 19 || s.get("mail").State != Active || len(s.pending(s.get("s9"))) > 1 { // one may be due at this very moment
		t.Errorf("%d are changed", changed)
	}
	if all, err = s.ActivateMany(t.Context(), names[:20], nil); err != nil || slices.ContainsFunc(all, func(one Turned) bool { return !one.Changed || one.Schedule.State != Active }) {
		t.Errorf("%+v, %v", all, err)
	}
}
