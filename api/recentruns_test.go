package api_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/store"
)

// newestRuns reads all pages of a list.
func (s *served) newestRuns(as, query string) (all []api.Run) {
	s.t.Helper()
	for cursor := ""; cursor != "end"; {
		page := want[api.RecentRuns](s, http.StatusOK, get("/runs?"+query+cursor).by(as))
		if all = append(all, page.Runs...); page.Complete != nil || page.Incomplete != nil {
			s.t.Errorf("%+v", page)
		}
		if cursor = "end"; page.NextCursor != "" {
			cursor = "&cursor=" + page.NextCursor
		}
	}
	if !slices.IsSortedFunc(all, func(a, b api.Run) int { return b.Started.Compare(a.Started.Time) }) {
		s.t.Errorf("%s: %+v", query, all)
	}
	return all
}

func TestTheNewestRunsAreListed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	mine, _ := s.create(hourly("mine", `, "app": "billing"`))
	theirs, _ := s.create(strings.Replace(hourly("theirs", `, "app": "crm"`), "order.close", "coupon.remind", 1))
	for i := range 5 {
		s.record(&store.Run{JobID: s.taskOf(mine), Schedule: uint64(s.taskOf(mine)), Type: 1, Attempt: i + 1, Outcome: []string{store.RunCompleted, store.RunBuried}[i%2], Output: fmt.Sprint("output ", i)})
		s.record(&store.Run{JobID: s.taskOf(theirs), Schedule: uint64(s.taskOf(theirs)), Type: 2, Attempt: i + 1, Outcome: store.RunMissed, Output: secret})
	}
	s.record(&store.Run{JobID: s.taskOf(theirs), Schedule: uint64(s.taskOf(theirs)), Type: 1, Outcome: store.RunLost}) // when it was of the token's biz type
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, c := range []struct {
		as, query string
		want      int
	}{
		{"all", "limit=1", 11}, {"all", "limit=4", 11}, {"all", "", 11}, {"read", "limit=4", 6}, {"read", "outcome=buried", 2}, {"read", "outcome=missed", 0}, {"read", "outcome=failed", 2}, {"all", "outcome=failed&limit=2", 7}, {"all", "to=2026-01-01T00:00:00%2B01:00", 0}, {"all", "to=" + future, 11}, {"all", "outcome=missed&limit=2", 5},
		{"read", "app=billing", 5}, {"read", "app=crm", 0}, {"read", "schedule=theirs", 0}, {"read", "schedule=mine&outcome=completed&limit=1", 3}, {"all", "schedule=theirs&biz_type=coupon.remind", 5},
		{"all", "schedule=theirs", 6}, {"all", "app=%27", 0}, {"all", "from=2026-01-01T00:00:00%2B01:00", 11}, {"all", "from=" + future, 0},
	} {
		if got := s.newestRuns(c.as, c.query); len(got) != c.want {
			t.Errorf("%s %s: %d runs, want %d", c.as, c.query, len(got), c.want)
		}
	}
	got := s.newestRuns("read", "")
	latest := slices.MaxFunc(got, func(a, b api.Run) int { return cmp.Compare(a.Attempt, b.Attempt) })
	if latest.Schedule != "mine" || latest.ScheduleID != mine.ID || latest.Output != "output 4" || latest.BizType != "order.close" || latest.FireTime != nil {
		t.Errorf("%+v", latest)
	}
	for _, r := range got {
		if r.Schedule == "theirs" {
			t.Errorf("%+v", r)
		}
	}
	first := want[api.RecentRuns](s, http.StatusOK, get("/runs?limit=1").by("all"))
	if got := s.do(get("/runs?cursor=" + first.NextCursor).by("read")); got.status != http.StatusOK || strings.Contains(got.text, secret) {
		t.Errorf("%d %s", got.status, got.text)
	}
	s.refuses(map[string]bad{
		"an outcome that is none":  {get("/runs?outcome=fell"), 422, "invalid", "query.outcome: expected value to be one of"},
		"runs of an unknown type":  {get("/runs?biz_type=order.none"), 404, "unknown_biz_type", `no biz type "order.none"`},
		"runs of a foreign type":   {get("/runs?biz_type=coupon.remind"), 404, "unknown_biz_type", `no biz type "coupon.remind"`},
		"runs from no time":        {get("/runs?from=yesterday"), 422, "invalid", "query.from"},
		"too many of the runs":     {get("/runs?limit=1001"), 422, "invalid", "query.limit: expected number <= 1000"},
		"a cursor of another list": {get("/runs?outcome=lost&cursor=" + first.NextCursor), 400, "cursor", "the cursor is of another list"},
		"a cursor of no list":      {get("/runs?cursor=abc"), 400, "cursor", "this is no cursor"},
	})
}

func TestAListOfRunsSaysSinceWhenItIsComplete(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.taskOf(want[api.Schedule](s, http.StatusCreated, post("/schedules", hourly("mine", ""))))
	runs := make([]*store.Run, 2001)
	for i := range runs {
		runs[i] = &store.Run{JobID: id, Schedule: uint64(id), Type: 1, Outcome: store.RunCompleted, Took: 1000}
	}
	s.record(runs...)
	page := want[api.RecentRuns](s, http.StatusOK, get("/runs?limit=1&outcome=lost").by("read"))
	if page.Complete == nil || page.Complete.Before(time.Now().Add(-time.Minute)) || page.Complete.After(time.Now().Add(time.Minute)) || len(page.Runs) != 0 || page.NextCursor != "" {
		t.Errorf("%+v", page)
	}
	from := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if page := want[api.RecentRuns](s, http.StatusOK, get("/runs?from="+from).by("read")); page.Complete != nil {
		t.Errorf("%+v", page)
	}
}
