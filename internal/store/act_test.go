package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// statuses are all there are.
var statuses = []tocsin.Status{tocsin.Pending, tocsin.Claimed, tocsin.Done, tocsin.Cancelled, tocsin.Dead}

// strict makes biz type 2 strict.
func (b *bench) strict() {
	for database := range b.layout.Databases {
		b.exec("INSERT INTO " + b.layout.Database(database) + `.biz_type (number, name, group_name, policy, revision, gmt_modified)
			VALUES (2, 'b', 'g', '{"strict":true}', 1, UTC_TIMESTAMP(3))`)
	}
}

// told is an Acted in a word.
func told(a Acted) string {
	switch {
	case a.Err != nil:
		return "error"
	case a.Done && a.InDelivery:
		return "did, in delivery"
	case a.Done:
		return "did"
	case a.InDelivery:
		return "in delivery"
	}
	return a.Status.String()
}

// Each deed changes the tasks that fit, and says of the others why not.
func TestAnActTellsOfEachTask(t *testing.T) {
	t.Parallel()
	tomorrow := time.Now().Add(24 * time.Hour).Truncate(time.Millisecond)
	for _, c := range []struct {
		act  Act
		want []string // by status; then pending and not due; claimed and pending of a strict biz type
	}{
		{Act{Deed: DeedRedrive}, []string{"pending", "claimed", "done", "cancelled", "did", "pending", "claimed", "pending"}},
		{Act{Deed: DeedBury, Reason: "void"}, []string{"did", "did", "done", "cancelled", "dead", "did", "in delivery", "did"}},
		{Act{Deed: DeedCancel}, []string{"did, in delivery", "did, in delivery", "done", "cancelled", "dead", "did", "in delivery", "did"}},
		{Act{Deed: DeedReschedule, When: client.At(tomorrow)}, []string{"did, in delivery", "did, in delivery", "done", "cancelled", "dead", "did", "in delivery", "did"}},
	} {
		t.Run(string(c.act.Deed), func(t *testing.T) {
			t.Parallel()
			b := open(t, small)
			b.strict()
			var tasks []task
			for i, status := range statuses {
				tasks = append(tasks, task{id: id(i%4, i), status: status, version: 7, attempts: 3, by: "n"})
			}
			tasks = append(tasks, task{id: id(1, 5), action: b.clock() + 3_600_000}, task{id: id(2, 6), kind: 2, status: tocsin.Claimed}, task{id: id(3, 7), kind: 2})
			b.add(tasks...)
			for _, one := range tasks {
				c.act.IDs = append(c.act.IDs, one.id)
			}
			before := make(map[tocsin.JobID]Row)
			for _, id := range c.act.IDs {
				before[id] = b.row(id)
			}
			acted := b.Act(t.Context(), Act{Deed: c.act.Deed, Reason: c.act.Reason, When: c.act.When, IDs: append(c.act.IDs, id(0, 99), id(9000, 1))})
			if len(acted) != len(tasks) {
				t.Errorf("%+v", acted)
			}
			for i, id := range c.act.IDs {
				is, was, now := acted[id], before[id], b.row(id)
				if told(is) != c.want[i] || is.Type != was.Type {
					t.Errorf("%s: %+v, want %s", was.Status, is, c.want[i])
				}
				if is.Status != was.Status || !is.Done && now != was {
					t.Errorf("%+v: was %+v, is %+v", is, was, now)
				}
				if is.Done && !changedBy(c.act, was, now, tomorrow) {
					t.Errorf("%s %s: is %+v", c.act.Deed, was.Status, now)
				}
			}
		})
	}
}

// changedBy reports whether a row is as the act leaves it.
func changedBy(a Act, was, now Row, due time.Time) bool {
	switch a.Deed {
	case DeedRedrive:
		return now.Status == tocsin.Pending && now.Version == was.Version+1 && now.Attempts == 0 && now.ClaimedBy == ""
	case DeedBury:
		return now.Status == tocsin.Dead && now.Version == was.Version && now.LastError == "void" && now.Action >= was.Action-3_600_000
	case DeedCancel:
		return now.Status == tocsin.Cancelled && now.Version == was.Version
	}
	return now.Status == tocsin.Pending && now.Version == was.Version+1 && now.Attempts == 0 && now.ClaimedBy == "" &&
		now.Action == due.UnixMilli() && now.DueTime.UnixMilli() == due.UnixMilli()
}

func TestAnActRingsForWhatIsDueSoon(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	for i := range 6 {
		b.add(task{id: id(i%2, i), status: tocsin.Dead, version: 1})
	}
	ids := []tocsin.JobID{id(0, 0), id(1, 1), id(0, 2), id(1, 3), id(0, 4), id(1, 5)}
	bells := func() int {
		rung, err := b.Bells(t.Context(), 0, nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		return len(rung[0])
	}
	if n := len(b.Act(t.Context(), Act{Deed: DeedRedrive, IDs: ids, Same: true})); n != 6 || bells() != 6 || b.row(ids[0]).Version != 1 {
		t.Errorf("%d tasks, %d bells, %+v", n, bells(), b.row(ids[0]))
	}
	for in, want := range map[time.Duration]int{b.Horizon() + time.Minute: 0, 48 * time.Hour: 0, b.Horizon() / 2: 6, 0: 6} {
		before := bells()
		if b.Act(t.Context(), Act{Deed: DeedReschedule, IDs: ids, When: client.In(in)}); bells()-before != want {
			t.Errorf("in %s: %d bells, want %d", in, bells()-before, want)
		}
	}
}

// Tasks of other biz types are as if they were not there, also while others hold their rows.
func TestAnActLeavesOtherTypesAlone(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(0, 1), kind: 3}, task{id: id(0, 2), kind: 4})
	defer b.locked(id(0, 2))()
	acted := b.Act(t.Context(), Act{Deed: DeedCancel, IDs: []tocsin.JobID{id(0, 1), id(0, 2)}, Types: []uint64{3}})
	if len(acted) != 1 || !acted[id(0, 1)].Done || b.row(id(0, 2)).Status != tocsin.Pending {
		t.Errorf("%+v", acted)
	}
	if acted := b.Act(t.Context(), Act{Deed: DeedCancel, IDs: []tocsin.JobID{id(0, 2)}, Types: []uint64{}}); len(acted) != 0 {
		t.Errorf("of no type: %+v", acted)
	}
}

// Rows that others hold, and tables that are gone, have an error. The others are changed.
func TestAnActChangesWhatItCan(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var ids []tocsin.JobID
	for i := range 8 {
		ids = append(ids, id(i%4, i))
		b.add(task{id: ids[i]})
	}
	defer b.locked(ids[0])()
	b.exec("DROP TABLE " + b.layout.Table(1))
	acted := b.Act(t.Context(), Act{Deed: DeedBury, IDs: ids})
	for i, id := range ids {
		is := acted[id]
		switch {
		case i == 0:
			if mysql.ClassOf(is.Err) != mysql.Contended || is.Status != tocsin.Pending {
				t.Errorf("locked: %+v", is)
			}
		case i%4 == 1:
			if is.Err == nil || !strings.Contains(is.Err.Error(), "bury tasks of "+b.layout.Table(1)+" on db1") {
				t.Errorf("its table is gone: %+v", is)
			}
		case !is.Done || b.row(id).Status != tocsin.Dead:
			t.Errorf("%+v", is)
		}
	}
}

// However many tasks and tables there are, an act is two reads, an update and a ring, beside the transaction.
func TestAnActIsFewRoundTrips(t *testing.T) {
	t.Parallel()
	b := open(t, tocsin.Layout{Databases: 2, Tables: 32})
	var tasks []task
	var ids []tocsin.JobID
	for i := range maxIDs {
		ids = append(ids, id(i%64, i))
		tasks = append(tasks, task{id: ids[i], status: tocsin.Dead})
	}
	b.add(tasks...)
	for _, deed := range []Deed{DeedRedrive, DeedReschedule, DeedBury, DeedRedrive, DeedCancel} {
		begin := time.Now()
		acted := b.Act(t.Context(), Act{Deed: deed, IDs: ids, When: client.In(0)})
		t.Logf("%s of %d tasks in 64 tables: %s", deed, len(acted), time.Since(begin))
		if done := slices.DeleteFunc(slices.Collect(maps.Values(acted)), func(a Acted) bool { return !a.Done }); len(done) != maxIDs {
			t.Fatalf("%s: %d are done", deed, len(done))
		}
	}
	for statement, want := range map[string]int{"fate": 5, "acting": 5, "redrive": 2, "reschedule": 1, "bury_by_hand": 1, "cancel": 1, "ring": 3} {
		if n := b.roundTrips(statement); n != want {
			t.Errorf("%s: %d round trips, want %d", statement, n, want)
		}
	}
}

// If the answer to the commit is lost, nobody knows what became of the tasks. If it breaks before, nothing has.
func TestAnActWhoseCommitGetsNoAnswerSaysSo(t *testing.T) {
	t.Parallel()
	for text, doubt := range map[string]bool{devtest.AtCommit: true, "tocsin acting": false} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			t.Parallel()
			proxy, dsn := devtest.NewProxy(t, devtest.DSN(t))
			b := open(t, small, func(c *tocsin.Config) { c.Servers[0].DSN = dsn })
			b.add(task{id: id(0, 1)}, task{id: id(1, 2), status: tocsin.Done})
			proxy.BreakAt(text, false, 1)
			acted := b.Act(t.Context(), Act{Deed: DeedCancel, IDs: []tocsin.JobID{id(0, 1), id(1, 2), id(0, 3)}})
			if is := acted[id(0, 1)]; errors.Is(is.Err, client.ErrUnknownOutcome) != doubt || is.Err == nil || proxy.Breaks() != 1 {
				t.Errorf("%+v", is)
			}
			if is := acted[id(1, 2)]; len(acted) != 2 || is.Err != nil || is.Status != tocsin.Done {
				t.Errorf("%+v", acted)
			}
			if got := b.row(id(0, 1)).Status; (got == tocsin.Cancelled) != doubt {
				t.Errorf("it is %s", got)
			}
		})
	}
}
