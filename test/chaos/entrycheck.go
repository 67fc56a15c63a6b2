package chaos

import "github.com/tocsinhq/tocsin"

// tasks checks the tasks that were added directly.
func (v verdict) tasks() {
	for bizID, rows := range v.rows {
		if v.orders[bizID] == nil {
			for _, r := range rows[1:] {
				v.report.breach(promiseOneRow, r.String())
			}
		}
	}
	for _, e := range v.entries {
		v.report.count(lineAdds, string(e.Word))
		if rows := v.rows[e.BizID]; len(rows) > 0 {
			v.entry(e, rows[0])
		} else if e.Word == acknowledged {
			v.report.breach(promiseStored, e.String()+"\n  no row")
		}
	}
}

// entry checks a task that has a row.
func (v verdict) entry(e *entry, r row) {
	t := task{about: e, typ: e.Type, attempts: attempts, asks: []*op{&e.op}, row: r, of: v.deliveries[r.JobID]}
	if e.Do == doGone {
		t.attempts = 0 // its receiver says at once that nobody will take it
	}
	o := e.Change
	if o != nil && o.Kind == opReschedule {
		t.asks = append(t.asks, o)
	}
	if before, seen := v.finals[r.JobID]; seen {
		t.seen = []row{before}
	}
	switch {
	case e.Word == refusedWord || e.Word == rolledBack:
		v.breach(t, promiseRefused)
	case e.JobID != 0 && e.JobID != r.JobID:
		v.breach(t, promiseSameID)
	}
	v.fate(t)
	if r.Status == tocsin.Done && r.Attempts < e.Fail {
		v.breach(t, promiseAttempts)
	}
	cancelling := o != nil && o.Kind == opCancel
	switch {
	case r.Status == tocsin.Cancelled && !(cancelling && o.maybe()):
		v.breach(t, promiseUser)
	case !o.done():
	case cancelling && r.Status != tocsin.Cancelled:
		v.breach(t, promiseCancelled)
	case cancelling:
		v.notBegun(t, o.Back)
	case r.Version == 0:
		v.breach(t, promiseVersion)
	}
	v.early(t)
	v.late(t)
}
