package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// act returns an act of a minute.
func act(minute int, change ...func(*PastAct)) PastAct {
	a := PastAct{
		At: time.Date(2026, 11, 26, 3, minute, 0, 0, time.UTC), Person: "alice@ops-1", Via: "command", Operation: "pause_biz_type",
		Object: fmt.Sprintf("biz type %d", minute), Outcome: "ok",
	}
	for _, c := range change {
		c(&a)
	}
	return a
}

// minutes are those of acts.
func minutes(acts []PastAct) (all []int) {
	for _, a := range acts {
		all = append(all, a.At.Minute())
	}
	return all
}

func TestActsAreReadFromTheNewestOn(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	if err := b.NoteActs(t.Context(), nil); err != nil {
		t.Error(err)
	}
	long := func(a *PastAct) { a.Object, a.Reason, a.Outcome = strings.Repeat("ü", 300), "why's? \\", "x\xff" }
	for _, some := range [][]PastAct{{act(1), act(3, long)}, {act(2)}, {act(5), act(4)}} {
		if err := b.NoteActs(t.Context(), some); err != nil {
			t.Fatal(err)
		}
	}
	b.exec("INSERT INTO " + b.layout.Database(1) + ".act SELECT * FROM " + b.layout.Database(0) + ".act WHERE object = 'biz type 5'") // as after a lost answer
	page, err := b.Acts(t.Context(), 0, maxMilli<<10, 10)
	if err != nil || !slices.Equal(minutes(page.Acts), []int{5, 4, 3, 2, 1}) || page.Next != 0 {
		t.Fatalf("%+v, %v", page, err)
	}
	if got := page.Acts[2]; got.Object != strings.Repeat("ü", 255) || got.Reason != "why's? \\" || got.Outcome != `x\xff` || got.Person != "alice@ops-1" || got.Via != "command" {
		t.Errorf("%+v", got)
	}
	var seen []int
	for before := uint64(maxMilli << 10); before > 0; before = page.Next {
		if page, err = b.Acts(t.Context(), 0, before, 2); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, minutes(page.Acts)...)
	}
	if !slices.Equal(seen, []int{5, 4, 3, 2, 1}) {
		t.Errorf("by pages: %v", seen)
	}
	if page, err = b.Acts(t.Context(), ActAt(act(2).At), ActAt(act(4).At), 10); err != nil || !slices.Equal(minutes(page.Acts), []int{3, 2}) {
		t.Errorf("a span: %+v, %v", page, err)
	}
}

func TestOldActsArePurged(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	if err := b.NoteActs(t.Context(), []PastAct{act(1), act(2), act(3), act(4)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 1, 0} {
		if n, err := b.PurgeActs(t.Context(), 0, act(4).At, 2); err != nil || n != want {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	if page, err := b.Acts(t.Context(), 0, maxMilli<<10, 10); err != nil || !slices.Equal(minutes(page.Acts), []int{4}) {
		t.Errorf("%+v, %v", page, err)
	}
}

// Databases that were made before there were acts have none, and hide no others.
func TestADatabaseWithoutTheTableHasNoActs(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.exec("DROP TABLE " + b.layout.Database(0) + ".act")
	if err := b.NoteActs(t.Context(), []PastAct{act(1)}); err != nil {
		t.Fatal(err)
	}
	if page, err := b.Acts(t.Context(), 0, maxMilli<<10, 10); err != nil || len(page.Acts) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	if n, err := b.PurgeActs(t.Context(), 0, time.Now(), 2); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	b.exec("DROP TABLE " + b.layout.Database(1) + ".act")
	if err := b.NoteActs(t.Context(), []PastAct{act(1)}); err == nil {
		t.Error("stored nowhere")
	}
}
