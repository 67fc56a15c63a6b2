package store

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
)

func TestTimesAreLiteralsOfWholeMilliseconds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		milli int64
		want  string
	}{
		"an instant":        {1792836000007, "TIMESTAMP'2026-10-24 10:00:00.007'"},
		"zero":              {0, "TIMESTAMP'1970-01-01 00:00:00.000'"},
		"too early":         {-5, "TIMESTAMP'1970-01-01 00:00:00.000'"},
		"the last there is": {maxMilli + 1, "TIMESTAMP'9999-12-31 23:59:59.999'"},
	}
	for name, c := range cases {
		if got := string(appendTime(nil, c.milli)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestDurationsCountStartedMilliseconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Second: 1000} {
		if got := roundUp(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("")
	f.Add(strings.Repeat("鐘", 256))
	f.Add("\xff" + strings.Repeat("x", 300))
	f.Fuzz(func(t *testing.T, s string) {
		got := cut(s)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > tocsin.MaxError {
			t.Errorf("%q became %q", s, got)
		}
		if utf8.ValidString(s) && !strings.Contains(s, "\x00") && !strings.HasPrefix(s, got) {
			t.Errorf("%q became %q", s, got)
		}
		if cut(got) != got {
			t.Errorf("%q is cut again", got)
		}
	})
}

func TestStatementsNameTheirSenderAndLeaveNoSlotOpen(t *testing.T) {
	t.Parallel()
	for _, st := range []statement{peek, scheduleName, prolong, probe, due, load, now, fence, claimable, claim, seize, hasSession, inTurn, claimRows, claimFree, rowsClaimed, crowdedRows, ended, endedBack, endedBury, ownClaims, dueIDs, release, releaseDoubtful, openSession, openAbout, beatSession, tellSession, tellAbout, endSession, closeSession, dropAbout, sessionsSQL, sessionAbouts, complete, retry, snooze, bury, skip, fate, expired, nextRunOut, recoverBury,
		recoverBack, bells, lastBell, own, others, latest, reserve, owners, dead, redrive, ring, counts, variables, session,
		trySelect, tryInsert, tryRing, tryUpdate, tryDelete, touch} {
		text := string(st.render(nil, func(b []byte, slot string) []byte { return append(b, '1') }))
		if st.name == "" || !strings.Contains(text, "/* tocsin "+st.name+" */") || strings.ContainsAny(text, "{}\n") {
			t.Errorf("%q: %s", st.name, text)
		}
	}
}

// Each outcome is in one statement; only completed tasks of one table and
// version share one, and the tables come in the order of their locks.
func TestOutcomesAreGroupedByTableAndVersion(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 1200).Draw(rt, "outcomes")
		tables, versions := rapid.IntRange(1, 4).Draw(rt, "tables"), rapid.IntRange(1, 3).Draw(rt, "versions")
		outcomes := make([]Outcome, n)
		for i := range outcomes {
			outcomes[i] = Outcome{JobID: id(i%tables, i*7%n), Version: uint32(i % versions), Verb: tocsin.Verb(i % 11 / 8)}
		}
		seen := make(map[int]bool)
		last := 0
		for _, group := range groupOutcomes(outcomes) {
			first := outcomes[group[0]]
			if first.JobID.Table() < last || len(group) > maxIDs || first.Verb != tocsin.Completed && len(group) > 1 {
				rt.Fatalf("group %v after table %d", group, last)
			}
			last = first.JobID.Table()
			for _, i := range group {
				if seen[i] || outcomes[i].Version != first.Version && len(group) > 1 || outcomes[i].JobID.Table() != last {
					rt.Fatalf("outcome %d in group %v", i, group)
				}
				seen[i] = true
			}
		}
		if len(seen) != n {
			rt.Fatalf("%d of %d outcomes", len(seen), n)
		}
	})
}
