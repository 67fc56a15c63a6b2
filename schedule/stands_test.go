package schedule

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// TestAScheduleSaysWhatWillHappen in each state, where runs of its last fire times are to come and where they are not.
func TestAScheduleSaysWhatWillHappen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	at := func(by time.Duration) time.Time { return now.Add(by) }
	var played []State
	for name, c := range map[string]struct {
		end    time.Time
		jitter time.Duration
		state  State
		reason string
		fires  time.Time
		says   string
	}{
		"active":                               {time.Time{}, 0, Active, "", at(10 * time.Minute), "active"},
		"ended, its only run is to come":       {at(11 * time.Minute), 0, Ended, "x", at(10 * time.Minute), "ended: its last run is made, and is due 2026-11-28 12:10:00.000Z"},
		"ended, its last run waits for jitter": {at(-10 * time.Minute), 50 * time.Minute, Ended, "x", at(-50 * time.Minute), "ended: its last run is made, and is due 2026-11-28 12:"},
		"ended, all is over":                   {at(-10 * time.Minute), 0, Ended, "x", time.Time{}, "ended: no fire time is left"},
		"inactive":                             {time.Time{}, 0, Inactive, "", time.Time{}, "inactive"},
		"paused":                               {time.Time{}, 0, Paused, "paused after 3 failures", time.Time{}, "paused: paused after 3 failures"},
	} {
		s := Schedule{Definition: Definition{Name: "a", BizType: "b", Cron: "10 * * * *", End: c.end}.WithDefaults(), State: c.state, Reason: c.reason, ReadAt: now, MadeUntil: at(20 * time.Minute), ID: 1}
		if c.jitter > 0 {
			jittered(59*time.Minute + 59*time.Second)(&s.Definition)
			for times, _ := s.Times(); times.Offset() < c.jitter+time.Minute; times, _ = s.Times() {
				s.ID++
			}
		}
		if c.state == Active {
			s.NextFire = at(10 * time.Minute)
		}
		if got := s.Stands(); !strings.HasPrefix(got, c.says) || !s.Fires().Equal(c.fires) {
			t.Errorf("%s: %q, fires %s, want %q, %s", name, got, s.Fires(), c.says, c.fires)
		}
		played = append(played, c.state)
	}
	for _, state := range States {
		if !slices.Contains(played, state) {
			t.Errorf("state %s is not played", state)
		}
	}
}

// TestAScheduleThatHasEndedSaysThatARunWaits: nothing else is to come of it, and its history lacks that run.
func TestAScheduleThatHasEndedSaysThatARunWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("short", "1m")
	d.End = s.now().Add(90 * time.Second)
	made := s.create(d)
	runs := s.pending(made)
	if made.State != Ended || len(runs) != 1 {
		t.Fatalf("%+v has %d runs", made, len(runs))
	}
	s.exec(made, "UPDATE {schedule} SET end_time = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND WHERE schedule_id = ?", uint64(made.ID))
	for _, c := range []struct {
		status tocsin.Status
		says   string
	}{
		{tocsin.Pending, "no fire time is left, and its run " + runs[0].ID.String() + " waits since " + runs[0].Due.Format(dueText)},
		{tocsin.Claimed, "no fire time is left, and its run " + runs[0].ID.String() + " is in delivery"},
		{tocsin.Done, "no fire time is left"},
		{tocsin.Dead, "no fire time is left"},
	} {
		s.exec(made, "UPDATE {task} SET status = ? WHERE job_id = ?", uint8(c.status), uint64(runs[0].ID))
		if got := s.get(d.Name); got.Reason != c.says || got.Stands() != "ended: "+c.says {
			t.Errorf("%s: %q, %q, want %q", c.status, got.Reason, got.Stands(), c.says)
		}
	}
}

// TestStatesAreComplete: States has each constant, and each place that can't use States names them all.
func TestStatesAreComplete(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "stored.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var constants []State
	ast.Inspect(file, func(n ast.Node) bool {
		if v, is := n.(*ast.ValueSpec); is {
			if of, is := v.Type.(*ast.Ident); is && of.Name == "State" {
				constants = append(constants, State(strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`)))
			}
		}
		return true
	})
	if len(constants) < 4 || !slices.Equal(constants, States) {
		t.Errorf("the constants are %v, and States %v", constants, States)
	}
	for path, format := range map[string]string{
		"../docs/schedules.md":           "| `%` |",
		"../ddl/sql/schedule.sql":        "%",
		"../internal/store/auditrest.go": "'%'",
		"../api/openapi.yaml":            "- %\n",
		"../cmd/tocsin/schedule_list.go": "%",
		"../api/console/text.json":       `"status.%"`,
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range constants {
			if want := strings.Replace(format, "%", string(state), 1); !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
	}
}
