package tocsin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// A client remembers the marks that it has read, and reads them again within a second.
func TestAnOlderCopyTakesNoTaskAndCanBeRead(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	db := session(t, devtest.DSN(t), "")
	for database := range 2 {
		exec(t, db, "UPDATE "+cfg.Layout.Database(database)+".layout SET mark = ?", time.Now().Add(-time.Minute).UnixMilli())
	}
	c := open(t, cfg)
	stored := add(t, c, remind.New(bizOn(cfg.Layout, 1, 1), "x", tocsin.In(day)))
	for says, change := range map[string]string{
		"is an older copy: it ends at ": "mark = mark - 86400000",
		"is held, as it is":             "mark = mark + 86400000, state = 'held'",
	} {
		exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET "+change)
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			_, err := c.Add(t.Context(), remind.New(bizOn(cfg.Layout, 1, 1), "x", tocsin.In(day)))
			if errors.Is(err, tocsin.ErrLayout) && strings.Contains(err.Error(), says) && strings.Contains(err.Error(), "run `tocsin ddl restore-check`") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("got %v, want %q", err, says)
			}
		}
		add(t, c, remind.New(bizOn(cfg.Layout, 0, 1), "x", tocsin.In(day)))
		if got := get(t, c, stored.JobID); got.JobID != stored.JobID {
			t.Errorf("got %+v", got)
		}
		exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET state = 'active', mark = ?", time.Now().UnixMilli())
	}
	exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET state = 'held'")
	for name, do := range txCalls(t, c, bizOn(cfg.Layout, 1, 1), stored.JobID) {
		if err := rolledBack(t, db, do); !errors.Is(err, tocsin.ErrLayout) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
