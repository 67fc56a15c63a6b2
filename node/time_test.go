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
			db := openDB(t, p.cfg.Servers[0].DSN)
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

func TestAProcessInAZoneWithDaylightSavingDeliversNothingEarly(t *testing.T) {
	t.Parallel()
	p := newPlace(t, biztype.Policy{Name: "zone.task", Number: 1, Group: "zones"})
	lines := spawnIn(t, child{p.cfg, p.etcd.Endpoints, "zones", "zone.task"}, "TZ=Australia/Lord_Howe")
	want := map[string]bool{}
	for bizID := range uint64(20) {
		add(t, p, tocsin.Define[string]("zone.task").New(bizID+1, "", tocsin.At(time.Now().Add(time.Second+33333*time.Microsecond))))
		want[fmt.Sprint("zone.task ", bizID+1)] = true
	}
	expectLines(t, lines, want) // an early delivery prints another line
}

// newPlaceOn is newPlace on another server.
func newPlaceOn(t *testing.T, dsn string, policies ...biztype.Policy) place {
	t.Helper()
	p := newPlace(t, policies...)
	_ = p.client.Close()
	p.cfg.Servers[0].DSN = dsn
	return p.made(t, policies...)
}
