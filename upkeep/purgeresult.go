package upkeep

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Removed counts tasks by the status in which they were removed.
type Removed struct {
	Done      int `json:"done"`
	Cancelled int `json:"cancelled"`
	Dead      int `json:"dead"`
}

func (r Removed) plus(o Removed) Removed {
	return Removed{r.Done + o.Done, r.Cancelled + o.Cancelled, r.Dead + o.Dead}
}

// removedIn counts n tasks of one status.
func removedIn(status tocsin.Status, n int) Removed {
	switch status {
	case tocsin.Done:
		return Removed{Done: n}
	case tocsin.Cancelled:
		return Removed{Cancelled: n}
	}
	return Removed{Dead: n}
}

// PurgeResult is the result of one purge; of a dry run: what a purge would remove.
type PurgeResult struct {
	DryRun   bool               `json:"dry_run"`
	Tables   int                `json:"tables"`   // looked through without an error
	Types    map[string]Removed `json:"types"`    // by biz type, those of which something was removed
	Bells    int                `json:"bells"`    // rings of the doorbell removed; not counted in a dry run
	Runs     int                `json:"runs"`     // of the history, removed
	Batches  int                `json:"batches"`  // transactions
	Timeouts int                `json:"timeouts"` // of those: held up by another's lock, and tried again with fewer rows
	Locked   int                `json:"locked"`   // rows left because they stayed locked
	Lacking  []int              `json:"lacking"`  // databases whose runs were left since the user has no right to them; no failure
	Failed   []string           `json:"failed"`   // servers that could not be purged in full
	Took     time.Duration      `json:"took_ns"`
}

// Total is the number of tasks removed, over all biz types.
func (r PurgeResult) Total() (total Removed) {
	for _, n := range r.Types {
		total = total.plus(n)
	}
	return total
}

// add adds what was done on one server.
func (r *PurgeResult) add(o PurgeResult) {
	r.Bells += o.Bells
	r.Runs += o.Runs
	r.Batches += o.Batches
	r.Timeouts += o.Timeouts
	r.Locked += o.Locked
	r.Lacking = append(r.Lacking, o.Lacking...)
	for name, n := range o.Types {
		r.Types[name] = r.Types[name].plus(n)
	}
}

// String is the summary line.
func (r PurgeResult) String() string {
	total := r.Total()
	var b strings.Builder
	fmt.Fprintf(&b, "%d tables, %d done, %d cancelled, %d dead, %d bells, %d batches, %d time-outs, %d left locked, took %s",
		r.Tables, total.Done, total.Cancelled, total.Dead, r.Bells, r.Batches, r.Timeouts, r.Locked, r.Took.Round(time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(r.Types)) {
		n := r.Types[name]
		fmt.Fprintf(&b, "; %s: %d", name, n.Done+n.Cancelled+n.Dead)
	}
	if r.Runs > 0 {
		fmt.Fprintf(&b, "; %d runs", r.Runs)
	}
	if len(r.Lacking) > 0 {
		fmt.Fprintf(&b, "; no right to the runs of %d databases", len(r.Lacking))
	}
	if len(r.Failed) > 0 {
		fmt.Fprintf(&b, "; not purged in full: %s", strings.Join(r.Failed, ", "))
	}
	return b.String()
}

// Ended returns the metrics of the purge. ok says that it did all its work.
func (r PurgeResult) Ended(ok bool) Ended {
	byStatus := func(set func(n int, labels ...string)) {
		total := r.Total()
		set(total.Done, "done")
		set(total.Cancelled, "cancelled")
		set(total.Dead, "dead")
	}
	return Ended{Subsystem: "purger", Took: r.Took, OK: ok, Figures: []Figure{
		{Name: "removed", Last: "Finished tasks that the last purge removed, by status.", Total: "Finished tasks removed, by status.", Labels: []string{"status"}, Values: byStatus},
		{Name: "bells", Last: "Rings of the doorbell that the last purge removed.", Total: "Rings of the doorbell removed.", Value: r.Bells},
		{Name: "runs", Last: "Runs of the history that the last purge removed.", Total: "Runs of the history removed.", Value: r.Runs},
		{Name: "timeouts", Total: "Batches that another's lock held up, and that were tried again with fewer rows.", Value: r.Timeouts},
		{Name: "locked", Last: "Finished tasks that the last purge left because their row stayed locked.", Total: "Finished tasks left because their row stayed locked.", Value: r.Locked},
		{Name: "lacking_databases", Last: "Databases whose runs the last purge left since its user has no right to them.", Value: len(r.Lacking)},
		{Name: "failed_servers", Last: "Servers that the last purge could not purge in full.", Value: len(r.Failed)},
	}}
}
