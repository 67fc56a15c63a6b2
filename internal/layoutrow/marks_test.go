package layoutrow

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnOlderCopyIsRefused(t *testing.T) {
	t.Parallel()
	const now = int64(1_790_000_000_000)
	minute := Tolerated.Milliseconds()
	for name, c := range map[string]struct {
		row  Row
		want string // part of the refusal; "": none
	}{
		"as it is known":          {Row{Identity: "a", Mark: now}, ""},
		"newer than it is known":  {Row{Identity: "a", Mark: now + 1}, ""},
		"lacks a minute":          {Row{Identity: "a", Mark: now - minute}, ""},
		"lacks more":              {Row{Identity: "a", Mark: now - minute - 1}, "toc_3 on db1 is an older copy: it ends at 2026-09-21 14:12:19 UTC, and what is known of it 1m0s later"},
		"made anew":               {Row{Identity: "a"}, "toc_3 on db1 was made anew or is an older copy: it has no mark, and what is known of it ends at 2026-09-21 "},
		"of another cluster":      {Row{Identity: "b", Mark: 1}, ""},
		"without an identity":     {Row{Mark: 1}, ""},
		"another database's mark": {Row{Identity: "a", Asked: 1, Mark: 1}, ""},
	} {
		var m Marks
		m.Note("a", 0, now)
		m.Note("a", 0, now-day)
		m.Note("", 1, now)
		got := m.Known().Refuse(c.row, "toc_3 on db1")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

const day = int64(24 * time.Hour / time.Millisecond)

// A database that is wrong in another way teaches no mark, and is not called an older copy.
func TestMarksOfWrongDatabasesDoNotCount(t *testing.T) {
	t.Parallel()
	var m Marks
	m.Note("a", 0, 2*day)
	m.Note("a", 3, 2*day)
	rows := map[int]Row{
		0: {Asked: 0, Identity: "a", Mark: day},
		1: {Asked: 1, Identity: "a", Mark: day},
		2: {Asked: 2, Identity: "a", Mark: day},
		3: {Asked: 3, Identity: "a", Mark: day, State: Held},
	}
	problems := map[int]Problem{1: {Why: "of another cluster", Differs: true}, 3: {Why: "held", Differs: true, Older: true}}
	m.Compare(m.Known(), rows, problems, func(int) string { return "it" })
	if len(problems) != 3 || !problems[0].Older || problems[1].Older || !strings.HasPrefix(problems[3].Why, "it is an older copy") {
		t.Errorf("problems %+v", problems)
	}
	if got, want := m.Of("a"), map[int]int64{0: 2 * day, 2: day, 3: 2 * day}; !maps.Equal(got, want) {
		t.Errorf("marks %v, want %v", got, want)
	}
}

func TestAHeldDatabaseIsOfItsCluster(t *testing.T) {
	t.Parallel()
	w := Want{Databases: 1, Tables: 1, Cluster: "a"}
	row := Row{Cluster: "a", Identity: "i", Databases: 1, Tables: 1, Hash: Hash, Version: SchemaVersion, WorksWith: SchemaVersion, State: Held}
	found := w.Judge([]int{0}, map[int]Row{0: row}, nil, func(int) string { return "toc_0 on db1" })[0]
	if !found.Older || found.Moved || !strings.Contains(found.Why, "toc_0 on db1 is held") || !strings.Contains(found.Why, "`tocsin ddl restore-check`") {
		t.Errorf("got %+v", found)
	}
	var ids Identities
	if ids.Note(w, row); ids.Agreed() != "i" {
		t.Errorf("identity %q", ids.Agreed())
	}
	row.Cluster = "b"
	if found := w.Judge([]int{0}, map[int]Row{0: row}, nil, func(int) string { return "" })[0]; found.Older || found.Moved {
		t.Errorf("of another cluster: %+v", found)
	}
}

// A node reads a layout row, another one raises the mark and a second look of the first sees that, and only then is the
// first reading compared: the database is no older copy, however long nobody had raised its mark.
func TestAMarkThatIsRaisedWhileARowIsReadRefusesNothing(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int64{"made just now": 0, "stopped since yesterday": day} {
		var m Marks
		m.Note("a", 0, before)
		known := m.Known()
		row := Row{Identity: "a", Mark: before}
		m.Note("a", 0, 2*day) // by the second look
		problems := map[int]Problem{}
		m.Compare(known, map[int]Row{0: row}, problems, func(int) string { return "it" })
		if len(problems) != 0 {
			t.Errorf("%s: %+v", name, problems)
		}
	}
}

// Nodes were stopped for a day. The first mark after it is not on the replica yet when that becomes the primary: the
// replica is as healthy as it was.
func TestALeapCountsOnceAReplicaHadTimeToGetIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m Marks
		then := time.Now().UnixMilli()
		m.Note("a", 0, then)
		see := func(mark int64) (older bool) {
			problems := map[int]Problem{}
			m.Compare(m.Known(), map[int]Row{0: {Identity: "a", Mark: mark}}, problems, func(int) string { return "it" })
			return problems[0].Older
		}
		counts := func(want int64) {
			t.Helper()
			if got := m.Of("a")[0]; got != want {
				t.Errorf("%s after the stop %d counts, want %d", time.Since(time.UnixMilli(then)), got-then, want-then)
			}
		}
		time.Sleep(24 * time.Hour)
		leap := time.Now().UnixMilli()
		for range 3 {
			if see(time.Now().UnixMilli()) {
				t.Error("the first mark after a day refuses its database")
			}
			counts(then)
			time.Sleep(ripe/3 - time.Millisecond)
		}
		if see(then) {
			t.Error("a replica without the first mark after a day is refused")
		}
		if time.Sleep(ripe); see(then) {
			t.Error("a mark that the database has lost counted later")
		}
		if !see(then - day) {
			t.Error("a real copy is not refused while a mark waits")
		}
		see(time.Now().UnixMilli())
		if time.Sleep(2 * ripe); see(then) { // the fail-over took longer than a mark waits
			t.Error("a mark that was not seen again refuses a replica without it")
		}
		counts(then)

		see(leap + day) // the server's clock is a day ahead
		counts(then)
		time.Sleep(ripe)
		counts(then) // nobody has seen that the database still has it
		see(leap + day + ripe.Milliseconds())
		counts(leap + day + ripe.Milliseconds())
		if !see(then) {
			t.Error("a copy without a mark that has waited is not refused")
		}
	})
}

// A sweep that cron runs each minute has no time to wait: an old mark counts at once.
func TestAnOldLeapCountsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			ago    time.Duration
			counts bool
		}{"just made": {ripe - time.Millisecond, false}, "half a minute old": {ripe, true}} {
			var m Marks
			mark := time.Now().Add(-c.ago).UnixMilli()
			m.Compare(m.Known(), map[int]Row{0: {Identity: "a", Mark: mark}}, map[int]Problem{}, func(int) string { return "it" })
			if _, counts := m.Of("a")[0]; counts != c.counts {
				t.Errorf("%s: counts: %t", name, counts)
			}
		}
	})
}
