package sweeper

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/store"
	"github.com/tocsinhq/tocsin/upkeep"
)

// bareServers are the names of servers without tables.
type bareServers struct {
	Tables
	names []string
}

func (b bareServers) Servers() []string { return b.names }

func (b bareServers) TablesOf(int) []int { return nil }

func (b bareServers) Measure(context.Context, int) (store.Offset, error) { return store.Offset{}, nil }

// bare makes a sweeper without servers.
func bare(t *testing.T, log *bytes.Buffer) *Sweeper {
	t.Helper()
	s, err := New(Config{
		Tables:   bareServers{},
		Policies: func() []biztype.Policy { return types }, Can: func(biztype.Policy) bool { return true },
		Logger: devtest.NewLogger(log),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestASweepUnderWayLogsItsResultEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRun(bare(t, &log))
		ctx, end := context.WithTimeout(t.Context(), 3*time.Minute+time.Second)
		defer end()
		r.accounts[1].found = 9 // not yet settled: nothing is left so far
		r.tell(ctx)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines in three minutes:\n%s", len(lines), log.String())
		}
		for _, part := range []string{`"level":"info"`, "9 overdue, 0 delivered", " 0 left, ", "took 2m0s", `"message":"sweep goes on"`} {
			if !strings.Contains(lines[1], part) {
				t.Errorf("%s lacks %s", lines[1], part)
			}
		}
	})
}

// A commit that hangs may be seen for the first seconds only.
func TestAServerThatWasSickShortlyBeforeTheEndIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := map[int]time.Duration{0: 30 * time.Second, 1: 45 * time.Second} // until then
		begin := time.Now()
		s := bare(t, &bytes.Buffer{})
		s.cfg.Tables = bareServers{names: []string{"db0", "db1", "db2"}}
		s.cfg.Sick = func(server int) error {
			if time.Since(begin) > hangs[server] {
				return nil
			}
			return errors.New("no answer")
		}
		r := newRun(s)
		ctx, end := context.WithTimeout(t.Context(), 100*time.Second)
		defer end()
		r.examine(ctx)
		r.blame()
		if !slices.Equal(r.total.Failed, []string{"db1"}) || len(r.errs) != 1 {
			t.Errorf("failed %v: %v", r.total.Failed, r.errs)
		}
	})
}

func TestAResidentSweepHasLessThanTheTimeToItsNext(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]time.Duration{
		"* * * * *": 50 * time.Second, "*/5 * * * *": 250 * time.Second, "@every 6s": 5 * time.Second, "@every 12h": 10 * time.Hour,
	} {
		at, err := upkeep.ParseTimes(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got := untilNext(at, time.Date(2026, 1, 1, 4, 0, 0, 0, time.UTC)); got != want {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
	if got := untilNext(ended{}, time.Now()); got >= 0 {
		t.Errorf("the last one has %s", got)
	}
}

// ended is a schedule that never fires again.
type ended struct{}

func (ended) Next(time.Time) time.Time { return time.Time{} }

func TestAResidentSweeperLogsWhatASweepDid(t *testing.T) {
	t.Parallel()
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	left := map[string]int{"a (no time left)": 2}
	for name, c := range map[string]struct {
		ctx    context.Context
		result Result
		err    error
		want   string
	}{
		"nothing found":            {t.Context(), Result{}, nil, ""},
		"all delivered":            {t.Context(), Result{Overdue: 1}, nil, `"level":"info","message":"swept","result":`},
		"claims given back":        {t.Context(), Result{Recovered: 1}, nil, `"message":"swept"`},
		"tasks left":               {t.Context(), Result{Overdue: 2, Left: left}, nil, `"level":"warn","message":"swept; overdue tasks are left","error":"overdue tasks are left: a (no time left): 2"`},
		"tables not read":          {t.Context(), Result{TimedOut: true, Unread: 3}, nil, `"level":"warn","message":"swept; overdue tasks are left","error":"3 tables were not read to their end"`},
		"a server away":            {t.Context(), Result{Failed: []string{"db1"}}, errors.New("db1 is away"), `"level":"error","message":"sweep failed in part","error":"db1 is away"`},
		"stopped, nothing found":   {stopped, Result{Stopped: true}, context.Canceled, ""},
		"stopped, something found": {stopped, Result{Stopped: true, Overdue: 1}, context.Canceled, `"message":"sweep stopped before its end"`},
	} {
		var log bytes.Buffer
		bare(t, &log).log(c.ctx, c.result, c.err)
		if got := log.String(); (c.want == "") != (got == "") || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
