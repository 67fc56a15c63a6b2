package chaos

import (
	"context"
	"slices"

	"github.com/tocsinhq/tocsin"
)

// cancelRun cancels one run as a user would.
func (s *Site) cancelRun(ctx context.Context, by *timerOp) {
	change, err := s.client.Cancel(ctx, tocsin.ByID(by.Job))
	by.answered(err, 0)
	by.Changed = change.Changed == 1
}

// want is what the schedule should be after its changes so far.
func (t *timer) want() timing {
	if len(t.changes) == 0 {
		return timing{}
	}
	return t.changes[len(t.changes)-1].now()
}

// wantBefore is what the schedule should be without the last change.
func (t *timer) wantBefore(by *timerOp) timing {
	i := slices.Index(t.changes, by)
	if i == 0 {
		return timing{}
	}
	return t.changes[i-1].now()
}

// now is what the schedule is after the change, as far as the harness knows.
func (c *timerOp) now() timing {
	if c.after != nil {
		return *c.after
	}
	return c.Want
}

// jobs reads job_ids.
func (d *database) jobs(ctx context.Context, query string, args ...any) (all []tocsin.JobID, err error) {
	found, err := d.direct.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		var id tocsin.JobID
		if err := found.Scan(&id); err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	return all, found.Err()
}
