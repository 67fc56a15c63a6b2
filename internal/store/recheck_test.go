package store

import (
	"maps"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func TestRecheckNamesWhatWasCalledOff(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	seen := map[tocsin.JobID]Seen{}
	want := map[tocsin.JobID]Fate{}
	for status := tocsin.Pending; status <= tocsin.Dead; status++ {
		for version := range uint32(2) {
			id := id(int(status)%small.Total(), int(status)*10+int(version))
			b.add(task{id: id, status: status})
			seen[id] = Seen{Version: version}
			switch {
			case status == tocsin.Cancelled:
				want[id] = Cancelled
			case version == 1:
				want[id] = Rescheduled
			}
		}
	}
	seen[id(0, 99)] = Seen{} // purged
	fates, err := b.Recheck(t.Context(), 0, seen)
	if err != nil || !maps.Equal(fates, want) {
		t.Errorf("%v, %v, want %v", fates, err, want)
	}
	if n := b.roundTrips("fate"); n != 1 {
		t.Errorf("it took %d packets", n)
	}
}

// TestRecheckLeavesDeliveriesInHandOfAChangedSchedule: they end by themselves. Those of a run that another one replaced, or that a
// user cancelled after a failed attempt, are called off.
func TestRecheckLeavesDeliveriesInHandOfAChangedSchedule(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	byEdit, replaced, byUser := id(0, 1), id(0, 2), id(0, 3)
	for _, id := range []tocsin.JobID{byEdit, replaced, byUser} {
		b.add(task{id: id, status: tocsin.Cancelled})
	}
	b.exec("UPDATE " + b.layout.Table(0) + " SET last_error = 'no answer'")
	seen := map[tocsin.JobID]Seen{byEdit: {0, "HTTP 500"}, replaced: {1, "HTTP 500"}, byUser: {0, "no answer"}}
	fates, err := b.Recheck(t.Context(), 0, seen)
	if want := (map[tocsin.JobID]Fate{replaced: Cancelled, byUser: Cancelled}); err != nil || !maps.Equal(fates, want) {
		t.Errorf("%v, %v, want %v", fates, err, want)
	}
}

func TestBuryTakesWhatIsClaimedUnlessItsTypeIsStrict(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.exec("DELETE FROM " + b.layout.Database(0) + ".biz_type")
	b.exec("INSERT INTO " + b.layout.Database(0) + `.biz_type (number, name, group_name, policy, revision, gmt_modified)
		VALUES (1, 'a', 'g', '{"timeout":"10s"}', 1, UTC_TIMESTAMP(3)), (2, 'b', 'g', '{"strict":true}', 1, UTC_TIMESTAMP(3)), (3, 'c', 'g', '{"strict":false}', 1, UTC_TIMESTAMP(3))`)
	for kind, want := range map[uint64]bool{1: true, 2: false, 3: true, 4: true} {
		of := id(0, int(kind))
		b.add(task{id: of, kind: kind, status: tocsin.Claimed})
		if hit, err := b.Bury(t.Context(), of, "no order"); err != nil || hit != want || (b.row(of).Status == tocsin.Dead) != want {
			t.Errorf("type %d: %v, %v", kind, hit, err)
		}
	}
}
