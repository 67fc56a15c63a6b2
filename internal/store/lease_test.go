package store

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func TestALeaseTellsWhenItBegan(t *testing.T) {
	t.Parallel()
	for _, began := range []int64{0, 1, 1 << 16, 1_700_000_000_000, 1<<48 - 1} {
		by := NewLease(began)
		text, got, ok := LeaseBegan(by)
		if !ok || got != began || LeaseOf(text) != by || len(text) != LeaseSize || len(by) > 64 {
			t.Errorf("%d: %s began at %d, %t", began, by, got, ok)
		}
	}
	for _, by := range []string{"", "lease:", "lease", "node-1", "lease:" + strings.Repeat("\n", LeaseSize), "lease:" + strings.Repeat("\r\n", 13), "Lease:" + strings.Repeat("0", LeaseSize), strings.Repeat("0", 6+LeaseSize)} {
		if text, _, ok := LeaseBegan(by); ok {
			t.Errorf("%q is the lease %q", by, text)
		}
	}
}

// A lease that ran out never counts a crash, and the claim of a node never an attempt, whatever it is called.
func TestALeaseThatRanOutIsAnAttemptAndNoCrash(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	gone := now - 6000
	b.add(
		task{id: id(0, 1), status: tocsin.Claimed, action: gone, crashes: 4, attempts: 2, version: 1, by: NewLease(gone)}, // 4 crashes before
		task{id: id(0, 2), status: tocsin.Claimed, action: gone, crashes: 1, attempts: 2, by: "lease-1-abcdefgh"},
		task{id: id(1, 3), status: tocsin.Claimed, action: gone, crashes: 4, attempts: 2, by: "LEASE:1"},
		task{id: id(1, 4), status: tocsin.Claimed, action: now - 1000, by: NewLease(gone)}, // its worker may still settle
		task{id: id(1, 5), status: tocsin.Claimed, action: now + 60_000, by: NewLease(gone)},
		task{id: id(1, 6), status: tocsin.Done, action: gone, by: NewLease(gone)},
	)
	got, err := b.Recover(t.Context(), 0, []int{0, 1, 2, 3}, 100, nil)
	if err != nil || got != (Recovered{Leases: 1, Back: 1, Buried: 1}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if r := b.row(id(0, 1)); r.Status != tocsin.Pending || r.Attempts != 3 || r.Crashes != 4 || r.ClaimedBy != "" || r.Version != 1 || r.Action < now || !strings.HasPrefix(r.LastError, "the lease ran out") {
		t.Errorf("a lease: %+v", r)
	}
	if r := b.row(id(0, 2)); r.Status != tocsin.Pending || r.Attempts != 2 || r.Crashes != 2 {
		t.Errorf("a claim: %+v", r)
	}
	if r := b.row(id(1, 3)); r.Status != tocsin.Dead || r.Attempts != 2 || r.Crashes != 5 {
		t.Errorf("a fifth crash: %+v", r)
	}
	for _, still := range []tocsin.JobID{id(1, 4), id(1, 5)} {
		if r := b.row(still); r.Status != tocsin.Claimed || r.Attempts != 0 {
			t.Errorf("touched %+v", r)
		}
	}
}

func TestRecoverCountsLeasesInItsLimit(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	gone := b.clock() - 6000
	for i := range 7 {
		by := "node-a"
		if i%2 == 0 {
			by = NewLease(gone)
		}
		b.add(task{id: id(i%4, i), status: tocsin.Claimed, action: gone, by: by})
	}
	for _, want := range []int{3, 3, 1, 0} {
		got, err := b.Recover(t.Context(), 0, []int{0, 1, 2, 3}, 3, nil)
		if err != nil || got.All() != want {
			t.Errorf("%+v, %v, want %d", got, err, want)
		}
	}
}

func TestRingWakesForWhatIsPendingAndDueSoon(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	b.add(task{id: id(0, 1), action: now}, task{id: id(0, 2), action: now + 3_600_000}, task{id: id(1, 3), status: tocsin.Claimed, action: now}, task{id: id(1, 4), status: tocsin.Done, action: now})
	if err := b.Ring(t.Context(), 0, []tocsin.JobID{id(0, 1), id(0, 2), id(1, 3), id(1, 4), id(2, 9)}); err != nil {
		t.Fatal(err)
	}
	rung, err := b.Bells(t.Context(), 0, nil, 10)
	if err != nil || len(rung[0])+len(rung[1]) != 1 || len(rung[0]) != 1 || rung[0][0].Entry != b.entry(id(0, 1)) {
		t.Errorf("bells %v, %v", rung, err)
	}
}
