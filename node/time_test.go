package node_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// clockOf asks a server for its time, to the microsecond.
func clockOf(t *testing.T, db *sql.DB) time.Time {
	var text string
	if err := db.QueryRow("SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)").Scan(&text); err != nil {
		t.Error(err)
		return time.Time{}
	}
	at, err := time.Parse("2006-01-02 15:04:05.000000", text)
	if err != nil {
		t.Error(err)
	}
	return at
}

func TestNothingIsEarlyByTheClockOfAServerThatIsTwoMinutesOff(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": 2 * time.Minute, "behind": -2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlaceOn(t, devtest.WrongClock(t, off).DSN(), closePolicy())
			db, err := sql.Open("mysql", p.cfg.Servers[0].DSN)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			if ahead := time.Until(clockOf(t, db)); (ahead - off).Abs() > 10*time.Second {
				t.Fatalf("the server's clock is %s ahead, want %s", ahead, off)
			}
			late := make(chan time.Duration, 100)
			var h node.Handlers
			node.Handle(&h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error {
				late <- clockOf(t, db).Sub(task.ActionTime)
				return nil
			})
			n, _ := run(t, p.config("orders"), &h)
			awaitOwned(t, n, 8)
			for i := range uint64(20) {
				add(t, p, orderClose.New(i+1, order{i}, tocsin.In(time.Duration(i)*50*time.Millisecond)))
				add(t, p, orderClose.New(i+1, order{i}, tocsin.At(clockOf(t, db).Add(time.Duration(i)*77777*time.Microsecond))))
			}
			for range 40 {
				if l := receive(t, late, "a delivery"); l < 0 || l > time.Minute {
					t.Errorf("delivered %s after its time by the server's clock", l)
				}
			}
		})
	}
}

func TestGetReturnsTheInstantThatWasAskedRoundedUpToTheMillisecond(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	zone := func(name string) *time.Location {
		l, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	year := time.Now().Year() + 1
	for name, at := range map[string]time.Time{
		"a tenth of a millisecond":             time.Date(year, 5, 1, 12, 0, 0, 100_000, time.UTC),
		"a nanosecond before a second":         time.Date(year, 5, 1, 12, 0, 0, 999_999_999, time.UTC),
		"a whole millisecond":                  time.Date(year, 5, 1, 12, 0, 0, 7_000_000, time.UTC),
		"in the hour that New York skips":      time.Date(year, 3, 14, 2, 30, 0, 1, zone("America/New_York")),
		"in the hour that Berlin has twice":    time.Date(year, 10, 31, 2, 30, 0, 1, zone("Europe/Berlin")),
		"in a zone of half an hour with DST":   time.Date(year, 4, 4, 1, 59, 59, 999_500_000, zone("Australia/Lord_Howe")),
		"a nanosecond before the year ends":    time.Date(year, 12, 31, 23, 59, 59, 999_999_999, zone("Asia/Shanghai")),
		"in the shortest February, of a night": time.Date(year, 2, 28, 23, 59, 59, 999_000_001, zone("America/St_Johns")),
	} {
		t.Run(name, func(t *testing.T) {
			info, err := p.client.Get(t.Context(), add(t, p, orderClose.New(1, order{}, tocsin.At(at))))
			want := at.Add(time.Millisecond - 1).Truncate(time.Millisecond).UTC()
			if err != nil || !info.DueTime.Equal(want) || !info.ActionTime.Equal(want) {
				t.Errorf("asked %s, got due %s and action %s (%v), want %s", at, info.DueTime, info.ActionTime, err, want)
			}
		})
	}
}

func TestProcessesInZonesWithDaylightSavingDeliverNothingEarly(t *testing.T) {
	t.Parallel()
	for i, zone := range []string{"America/St_Johns", "Australia/Lord_Howe"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("zone.%d", i)
			p := newPlace(t, biztype.Policy{Name: name, Number: 1, Group: "zones"})
			lines := spawnIn(t, child{p.cfg, p.etcd.Endpoints, "zones", name}, "TZ="+zone)
			want := map[string]bool{}
			for bizID := range uint64(20) {
				add(t, p, tocsin.Define[string](name).New(bizID+1, "", tocsin.At(time.Now().Add(time.Second+33333*time.Microsecond))))
				want[fmt.Sprint(name, " ", bizID+1)] = true
			}
			expectLines(t, lines, want) // an early delivery prints another line
		})
	}
}

// newPlaceOn is newPlace on another server.
func newPlaceOn(t *testing.T, dsn string, policies ...biztype.Policy) place {
	t.Helper()
	p := newPlace(t, policies...)
	_ = p.client.Close()
	p.cfg.Servers[0].DSN = dsn
	return p.made(t, policies...)
}
