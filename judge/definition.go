package judge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/schedule/firetimes"
	"github.com/tocsinhq/tocsin/store"
)

// definition is a schedule of one revision, as it was read.
type definition struct {
	store.Judged
	read  time.Time
	times func() (*firetimes.Times, error)
}

// Values of the columns missed and overlap.
const (
	missedOnce     = "once"
	missedAll      = "all"
	overlapAllow   = "allow"
	overlapQueue   = "queue"
	overlapReplace = "replace"
)

func newDefinition(id tocsin.JobID, row store.Judged) *definition {
	return &definition{Judged: row, read: time.Now(), times: sync.OnceValues(func() (*firetimes.Times, error) {
		return firetimes.Parse(firetimes.Spec{
			Cron: row.Cron, Zone: row.Zone, Start: row.Start, End: row.End, Anchor: row.Anchor, Jitter: row.Jitter, Seed: uint64(id),
		})
	})}
}

// definition returns the schedule of a run, nil if it was deleted. One that was read before counts if its revision is that of
// the run or a later one, and if that was less than a minute ago, for fresh a second.
func (j *Judge) definition(ctx context.Context, r run, fresh bool) (*definition, error) {
	age := knownFor
	if fresh {
		age = freshFor
	}
	j.mu.Lock()
	d, known := j.known.get(tocsin.JobID(r.Schedule))
	j.mu.Unlock()
	if known && (r.byHand() || d.Revision >= r.Revision) && time.Since(d.read) < age {
		return d, nil
	}
	row, found, err := j.cfg.Store.Judged(ctx, tocsin.JobID(r.Schedule))
	if err != nil || !found {
		return nil, err
	}
	d = newDefinition(tocsin.JobID(r.Schedule), row)
	j.mu.Lock()
	j.known.set(tocsin.JobID(r.Schedule), d)
	j.mu.Unlock()
	return d, nil
}

// missed returns why a run is not delivered at now although nothing else is in its way; "": it is. Times are Unix ms.
func (d *definition) missed(nominal, due, now int64) string {
	late := time.Duration(now-due) * time.Millisecond
	if now == 0 || late <= d.StartWithin {
		return ""
	}
	switch d.Missed {
	case missedOnce:
		if d.later(nominal, now, 0, 1) > 0 {
			return fmt.Sprintf("missed: %s late, and a later run is due", late)
		}
		return ""
	case missedAll:
		if d.later(nominal, now, d.StartWithin+time.Millisecond, d.MissedMost) < d.MissedMost {
			return ""
		}
		return fmt.Sprintf("missed: %s late, and the latest %d of the missed runs are made up for", late, d.MissedMost)
	}
	return fmt.Sprintf("missed: %s late", late)
}

// later counts the fire times after nominal that are due for at least overdue at now, up to most. It depends on no row: a
// run may be settled and purged by now.
func (d *definition) later(nominal, now int64, overdue time.Duration, most int) (n int) {
	times, err := d.times()
	if err != nil {
		return 0
	}
	until := time.UnixMilli(now).Add(-overdue - times.Offset())
	for t := times.Next(time.UnixMilli(nominal)); n < most && !t.IsZero() && !t.After(until); t = times.Next(t) {
		n++
	}
	return n
}
