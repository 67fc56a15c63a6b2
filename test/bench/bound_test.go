package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

func TestTheRawDrainSettlesWhatIsDueAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		layout  tocsin.Layout
		rows    int
		overdue time.Duration
	}{
		"several pages of one table":       {tocsin.Layout{Databases: 1, Tables: 1}, 1200, 0},
		"a page that is just full":         {tocsin.Layout{Databases: 1, Tables: 1}, packetRows, 0},
		"few rows in each of many tables":  {tocsin.Layout{Databases: 2, Tables: 20}, 100, 0},
		"many tables, some of them empty":  {tocsin.Layout{Databases: 2, Tables: 20}, 15, 0},
		"claimed first, one table":         {tocsin.Layout{Databases: 1, Tables: 1}, 700, time.Hour},
		"claimed first, many small tables": {tocsin.Layout{Databases: 2, Tables: 20}, 100, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := given(t, c.layout)
			o.Overdue = c.overdue
			s := open(t, o, true)
			fill(t, s, 50, time.Hour)
			fill(t, s, c.rows, -c.overdue)
			used, err := s.drainRaw(t.Context(), c.rows)
			must(t, err)
			done, err := s.done(t.Context())
			must(t, err)
			if done != c.rows {
				t.Errorf("%d rows are done, want %d", done, c.rows)
			}
			if used.Selects < 1 || used.Updates < 1 || used.Seconds <= 0 || used.BytesSent < float64(c.rows)*100 {
				t.Errorf("used %+v", used)
			}
		})
	}
}

func TestARawDrainThatMissesRowsIsAnError(t *testing.T) {
	t.Parallel()
	s := open(t, given(t, tocsin.Layout{Databases: 1, Tables: 2}), true)
	fill(t, s, 10, 0)
	if _, err := s.drainRaw(t.Context(), 11); err == nil {
		t.Error("no error")
	}
}

func TestUnionsHoldEveryTableOnceAndAboutAPageOfRows(t *testing.T) {
	t.Parallel()
	o := given(t, tocsin.Layout{Databases: 2, Tables: 50})
	s := open(t, o, true)
	for rows, most := range map[int]int{0: 64, 100: 64, 1000: 50, 5000: 10, 50_000: 1, 10_000_000: 1} {
		var all []int
		for _, tables := range s.unions(rows) {
			if len(tables) > most {
				t.Errorf("%d rows: %d tables in a statement, want at most %d", rows, len(tables), most)
			}
			all = append(all, tables...)
		}
		if slices.Sort(all); len(all) != 100 || len(slices.Compact(all)) != 100 {
			t.Errorf("%d rows: %d tables", rows, len(all))
		}
	}
}

func TestDatabasesOfARunGoWithIt(t *testing.T) {
	t.Parallel()
	s, err := openSite(t.Context(), given(t, tocsin.Layout{Databases: 2, Tables: 1}), true)
	must(t, err)
	name := s.config.Layout.Database(1)
	must(t, s.close())
	other := open(t, given(t, tocsin.Layout{Databases: 1, Tables: 1}), true)
	var left int
	must(t, other.pools[0].DB.Get(&left, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?", name))
	if left != 0 {
		t.Errorf("%s is left behind", name)
	}
}
