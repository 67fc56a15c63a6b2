package layoutrow

import (
	"maps"
	"strings"
	"testing"
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
