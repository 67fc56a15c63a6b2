package client_test

import (
	"database/sql"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// edges are times that a program may come upon. Those that are due at once, as they are past, are stored; the others are refused.
var edges = map[string]struct {
	at     time.Time
	stored bool
}{
	"the last second there is":            {time.Unix(math.MaxInt64, 0), false},
	"the first second there is":           {time.Unix(math.MinInt64, 0), false},
	"the last that package time compares": {time.Unix(math.MaxInt64-62135596801, 999999999), false},
	"behind that":                         {time.Unix(math.MaxInt64-62135596800, 0), false},
	"the last milliseconds":               {time.UnixMilli(math.MaxInt64), false},
	"the first milliseconds":              {time.UnixMilli(math.MinInt64), false},
	"a duration before the epoch":         {time.Unix(0, math.MinInt64), true},
	"a duration behind the epoch":         {time.Unix(0, math.MaxInt64), false},
	"zero":                                {time.Time{}, false},
	"just above zero":                     {time.Time{}.Add(1), false},
	"the year 999":                        {time.Date(999, 12, 31, 23, 59, 59, 999_000_000, time.UTC), false},
	"the year 1000":                       {time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC), true},
	"the year 9999":                       {time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC), false},
	"rounded up to the year 10000":        {time.Date(9999, 12, 31, 23, 59, 59, 999_500_000, time.UTC), false},
	"the year 10000":                      {time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), false},
	"year 0 in another zone":              {time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("far", 23*3600)), false},
	"in ten years and a day":              {time.Now().AddDate(10, 0, 1), false},
	"in nearly ten years":                 {time.Now().AddDate(10, 0, -1), true},
	"a nanosecond ago":                    {time.Now().Add(-1), true},
}

var spans = map[string]struct {
	in     time.Duration
	stored bool
}{
	"the longest": {math.MaxInt64, false}, "the longest in the past": {math.MinInt64, true}, "none": {0, true}, "a nanosecond": {1, true},
	"a nanosecond ago": {-1, true}, "eleven years": {11 * 365 * day, false}, "nine years": {9 * 365 * day, true},
}

func TestAYearThatIsFarBackIsNotShownAsOneFarAhead(t *testing.T) {
	t.Parallel()
	want := "action time 9223372036854775808 s before 1970: before the year 1000"
	if err := client.CheckTime("action time", time.Unix(math.MinInt64, 0)); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Nothing is sent of a call with a time that no column holds, or that is too far away: all of it is refused as ErrInvalid. What is
// stored of the others is the time, rounded up, or now.
func TestTimesAtTheEdges(t *testing.T) {
	t.Parallel()
	cfg := withOutbox(t, cluster(t))
	plain := cfg
	plain.Outbox = tocsin.Outbox{}
	relayed, direct, db := open(t, cfg), open(t, plain), session(t, devtest.DSN(t), "")
	bizID := uint64(0)
	check := func(name string, when tocsin.When, stored bool) {
		bizID += 100
		tasks := make([]tocsin.NewTask, 10)
		for i := range tasks {
			tasks[i] = remind.New(bizID+uint64(i), "p", tocsin.In(day))
		}
		tasks[5] = remind.New(bizID+5, "p", when)
		for how, add := range map[string]func() error{
			"add":      func() error { return second(direct.Add(t.Context(), tasks[5])) },
			"add many": func() error { return second(direct.AddMany(t.Context(), tasks[5:6])) },
			"add many in a transaction": func() error {
				return unsent(t, db, cfg.Layout.Table(cfg.Layout.TableOf(bizID)), bizID, func(tx *sql.Tx) error { return second(direct.AddManyTx(t.Context(), tx, tasks)) })
			},
			"through an outbox": func() error {
				return unsent(t, db, cfg.Outbox.Table, bizID, func(tx *sql.Tx) error { return second(relayed.AddManyTx(t.Context(), tx, tasks)) })
			},
			"reschedule": func() error { return second(direct.Reschedule(t.Context(), remind.Of(bizID+5), when)) },
		} {
			if err := add(); stored && err != nil || !stored && !errors.Is(err, tocsin.ErrInvalid) {
				t.Errorf("%s, %s: %v", name, how, err)
			}
		}
		for _, info := range listed(t, direct, bizID+5) {
			if y := info.DueTime.Year(); !stored || y < 1000 || y > 9999 || info.ActionTime.Before(info.DueTime) {
				t.Errorf("%s: %+v", name, info)
			}
		}
	}
	for name, e := range edges {
		check(name, tocsin.At(e.at), e.stored)
	}
	for name, e := range spans {
		check("in "+name, tocsin.In(e.in), e.stored)
	}
}

// unsent calls do in a transaction that does not last. If do fails, it has written no row of a biz_id into a table.
func unsent(t *testing.T, db *sql.DB, table string, bizID uint64, do func(*sql.Tx) error) error {
	t.Helper()
	return rolledBack(t, db, func(tx *sql.Tx) error {
		err := do(tx)
		var n int
		if failed := tx.QueryRow("SELECT COUNT(*) FROM "+table+" WHERE biz_id = ?", bizID).Scan(&n); failed != nil || err != nil && n != 0 {
			t.Errorf("%d rows of %d in %s beside %v: %v", n, bizID, table, err, failed)
		}
		return err
	})
}

// second is the error of a call.
func second[T any](_ T, err error) error { return err }

// A page of a list has bounds that columns hold, or is refused.
func TestAPageHasBoundsThatColumnsHold(t *testing.T) {
	t.Parallel()
	c, _ := start(t)
	for name, e := range edges {
		inside := e.at.IsZero() || e.at.Unix() >= time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC).Unix() && e.at.Unix() < time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
		for which, q := range map[string]tocsin.ListQuery{"from": {BizID: 1, Limit: 1, From: e.at}, "to": {BizID: 1, Limit: 1, To: e.at}} {
			if _, _, err := c.ListPage(t.Context(), q); inside != (err == nil) || !inside && !errors.Is(err, tocsin.ErrInvalid) {
				t.Errorf("%s %s: %v", which, name, err)
			}
		}
	}
	for _, limit := range []int{math.MinInt, -1, 0, tocsin.MaxListed + 1, math.MaxInt} {
		if _, _, err := c.ListPage(t.Context(), tocsin.ListQuery{BizID: 1, Limit: limit}); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	for _, version := range []int{math.MinInt, -1} {
		if _, err := c.Add(t.Context(), remind.Version(version).New(1, "p", tocsin.In(0))); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
