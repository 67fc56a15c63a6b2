package judge

import (
	"context"
	"errors"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/verdict"
)

// delivery is one call of a target, with the runs in it that later ones may replace. Its context ends when all of its tasks
// are replaced. All fields but ctx are guarded by judge.mu.
type delivery struct {
	judge  *Judge
	parent context.Context
	ctx    context.Context // nil: no run in it can be replaced
	cancel context.CancelCauseFunc
	why    map[tocsin.JobID]string // of each replaceable run: "", or why it was replaced
	mixed  bool                    // other tasks are in it, which must not end
}

var errReplaced = errors.New("a later run of the schedule replaces this one")

func (j *Judge) begin(ctx context.Context) *delivery { return &delivery{judge: j, parent: ctx} }

// may notes that a later run may replace this one, unless one has done so already.
func (d *delivery) may(id tocsin.JobID) {
	j := d.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	if d.why == nil {
		d.why = map[tocsin.JobID]string{}
		d.ctx, d.cancel = context.WithCancelCause(d.parent)
	}
	d.why[id] = j.struckBefore(id)
	j.running[id] = d
}

// struckBefore returns why a run was replaced between its load and now. Called under j.mu.
func (j *Judge) struckBefore(id tocsin.JobID) string {
	if s, found := j.struck[id]; found {
		return s.why
	}
	return ""
}

// struck is a run that was replaced.
type struck struct {
	why string
	at  time.Time
}

// strike ends the deliveries of runs that were replaced, and keeps those that are loaded already from beginning.
func (j *Judge) strike(ids []tocsin.JobID, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	for id, s := range j.struck {
		if now.Sub(s.at) > keepStruck {
			delete(j.struck, id)
		}
	}
	for _, id := range ids {
		j.metrics.count(replaced)
		j.struck[id] = struck{why, now}
		if d := j.running[id]; d != nil {
			d.why[id] = why
			d.endIfEmpty()
		}
	}
}

// endIfEmpty is called under judge.mu.
func (d *delivery) endIfEmpty() {
	if d.mixed {
		return
	}
	for _, why := range d.why {
		if why == "" {
			return
		}
	}
	d.cancel(errReplaced)
}

// replaced returns the error that ends a run that was replaced; nil for other runs.
func (d *delivery) replaced(id tocsin.JobID) error {
	d.judge.mu.Lock()
	defer d.judge.mu.Unlock()
	if why := d.why[id]; why != "" {
		return verdict.Skip{Reason: why}
	}
	return nil
}

// context returns the context that the target gets for this number of tasks.
func (d *delivery) context(tasks int) context.Context {
	if d.ctx == nil {
		return d.parent
	}
	d.judge.mu.Lock()
	defer d.judge.mu.Unlock()
	d.mixed = false
	for _, why := range d.why {
		if why == "" {
			tasks--
		}
	}
	if d.mixed = tasks > 0; !d.mixed {
		d.endIfEmpty()
	}
	return d.ctx
}

func (d *delivery) end() {
	if d.cancel == nil {
		return
	}
	d.judge.mu.Lock()
	for id := range d.why {
		if d.judge.running[id] == d {
			delete(d.judge.running, id)
		}
	}
	d.judge.mu.Unlock()
	d.cancel(nil)
}
