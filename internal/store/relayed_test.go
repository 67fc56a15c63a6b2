package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// TestTheLedgerIsReadInPages reads it with each size of a page: ids are given again, and outboxes have the same ids.
func TestTheLedgerIsReadInPages(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var want []RelayedKey
	var values []string
	for _, outbox := range []string{"", "a", "b"} {
		for id := uint64(1); id <= 3; id++ {
			for _, created := range []string{"2026-01-01 00:00:00.000001", "2026-01-01 00:00:00.000002"} {
				want = append(want, RelayedKey{outbox, id, created})
				values = append(values, fmt.Sprintf("('%s', %d, '%s', %d, UTC_TIMESTAMP(3) - INTERVAL 90 SECOND)", outbox, id, created, id))
			}
		}
	}
	values = append(values, "('a', 4, '2026-01-01', 0, UTC_TIMESTAMP(3))") // it added no task
	b.exec("INSERT INTO " + b.layout.Database(0) + ".relayed (outbox, id, created, job_id, gmt_create) VALUES " + strings.Join(values, ", "))
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []RelayedKey
		for after := (RelayedKey{}); ; {
			rows, err := b.Relayed(t.Context(), 0, after, limit)
			if err != nil || len(rows) > limit {
				t.Fatalf("%d rows, %v", len(rows), err)
			}
			for _, r := range rows {
				got = append(got, r.RelayedKey)
				if r.JobID != tocsin.JobID(r.ID) || r.Age < 90*time.Second || r.Age > time.Hour || r.Moved.IsZero() {
					t.Errorf("%+v", r)
				}
			}
			if len(rows) < limit {
				break
			}
			after = rows[len(rows)-1].RelayedKey
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d at once: %v", limit, got)
		}
	}
	other := RelayedKey{"a", 2, "2026-01-01 00:00:00.000003"}
	there, err := b.Noted(t.Context(), 0, []RelayedKey{want[8], other})
	if err != nil || !there[want[8]] || there[other] {
		t.Errorf("%v, %v", there, err)
	}
}

// What stands in a database that can't be read must not be taken for nothing.
func TestAnOutboxIsNotForgottenBesideADatabaseThatIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.Store.cluster = "test"
	for database := range 2 {
		b.exec("INSERT INTO " + b.layout.Database(database) + ".relayed (outbox, id, created, job_id, gmt_create) VALUES ('a', 1, UTC_TIMESTAMP(6), 1, UTC_TIMESTAMP(3))")
	}
	b.inSecond(makeForeign)
	if _, err := b.Survey(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), b.layout.Database(1)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := b.Ledgers(t.Context(), 0)
	refused("count", err)
	n, err := b.ForgetOutbox(t.Context(), 0, "a")
	if refused("forget", err); n != 0 {
		t.Errorf("%d rows are forgotten", n)
	}
}

func TestAbsentFindsJobIDsWithoutARow(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var ids, absent []tocsin.JobID
	for i := range 1200 {
		ids = append(ids, id(i%4, i))
		if i%3 > 0 {
			absent = append(absent, id(i%4, i))
		} else {
			b.add(task{id: id(i%4, i), status: tocsin.Status(i % 5)})
		}
	}
	absent = append(absent, id(8000, 1)) // there is no such table
	got, failed, err := b.Absent(t.Context(), 0, append(ids, id(8000, 1)))
	slices.Sort(got)
	slices.Sort(absent)
	if err != nil || len(failed) != 0 || !slices.Equal(got, absent) {
		t.Errorf("%d absent, want %d; %v, %v", len(got), len(absent), failed, err)
	}
}
