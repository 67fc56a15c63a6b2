package operator

import (
	"context"
	"errors"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/store"
)

// Redrive makes a dead task pending and due at once, and returns it. Its attempts begin anew, and so does its idempotency
// key. It returns ErrStatus, and the task as it is, if the task is not dead, and tocsin.ErrNotFound if there is none.
func (o *Operator) Redrive(ctx context.Context, id tocsin.JobID) (tocsin.Info, error) {
	return o.rewrite(ctx, id, func() (bool, error) { return o.tables.Redrive(ctx, id) }, "only a dead task can be redriven")
}

// Bury makes a task dead that is not final, with the reason as its last error, cut at tocsin.MaxError characters, and returns
// it. A delivery that is under way goes on, and its success still completes the task; of a strict biz type nothing is changed
// then, and the error is tocsin.ErrInDelivery. It returns ErrStatus, and the task as it is, if the task is final, and
// tocsin.ErrNotFound if there is none.
func (o *Operator) Bury(ctx context.Context, id tocsin.JobID, reason string) (tocsin.Info, error) {
	info, err := o.rewrite(ctx, id, func() (bool, error) { return o.tables.Bury(ctx, id, reason) }, "only a task that is not final can be buried")
	if errors.Is(err, ErrStatus) && info.Status == tocsin.Claimed {
		err = refuse(tocsin.ErrInDelivery, "task %s is in delivery, and biz type %s is strict: nothing is changed, try again later", id, info.BizType)
	}
	return info, err
}

// rewrite changes one task and reads it again.
func (o *Operator) rewrite(ctx context.Context, id tocsin.JobID, write func() (bool, error), unfit string) (tocsin.Info, error) {
	if o.tables.ServerOf(id.Table()) < 0 || id == 0 {
		return tocsin.Info{}, refuse(tocsin.ErrNotFound, "no task %s", id)
	}
	written, err := write()
	if err != nil {
		return tocsin.Info{}, err
	}
	info, err := o.get(ctx, id)
	if err == nil && !written {
		err = refuse(ErrStatus, "task %s is %s: %s", id, info.Status, unfit)
	}
	return info, err
}

// get reads one task.
func (o *Operator) get(ctx context.Context, id tocsin.JobID) (tocsin.Info, error) {
	server := o.tables.ServerOf(id.Table())
	rows, err := o.tables.Look(ctx, server, []tocsin.JobID{id})
	if err != nil {
		return tocsin.Info{}, err
	}
	if len(rows) == 0 {
		return tocsin.Info{}, refuse(tocsin.ErrNotFound, "no task %s in %s on %s", id,
			o.tables.Layout().Table(id.Table()), o.tables.Servers()[server])
	}
	policies, err := biztype.Load(ctx, o.cfg)
	return o.info(policies, rows[0]), err
}

// RedriveAll makes all dead tasks of a biz type pending and due at once, or all dead tasks for "", and returns their
// number. Tasks that die while it runs stay dead. It goes through all servers at once, 500 tasks to a transaction.
// progress, unless nil, is called with the number of tables done since its last call, concurrently. If it could not do
// everything, it returns the number beside a Partial, which names what failed; a further call does the rest.
func (o *Operator) RedriveAll(ctx context.Context, bizType string, progress func(tables int)) (int, error) {
	return o.RedriveSeen(ctx, bizType, nil, progress)
}

// RedriveSeen is RedriveAll for the biz types whose names sees allows; nil: all.
func (o *Operator) RedriveSeen(ctx context.Context, bizType string, sees func(string) bool, progress func(tables int)) (int, error) {
	only, err := o.numbers(ctx, bizType, sees)
	if err != nil {
		return 0, err
	}
	counts := make([]int, len(o.tables.Servers()))
	errs := make([]error, len(counts))
	tablewalk.Servers(len(counts), func(server int) {
		counts[server], errs[server] = o.redriveServer(ctx, server, only, progress)
	})
	total := 0
	for _, n := range counts {
		total += n
	}
	return total, store.Lacking(o.tables.Servers(), errs)
}

// numbers reads the policies if they matter.
func (o *Operator) numbers(ctx context.Context, bizType string, sees func(string) bool) ([]uint64, error) {
	if bizType == "" && sees == nil {
		return nil, nil
	}
	policies, err := biztype.Load(ctx, o.cfg)
	if err != nil {
		return nil, err
	}
	return numbers(policies, bizType, sees)
}

// redriveLimit is the number of tasks in one transaction.
const redriveLimit = 500

func (o *Operator) redriveServer(ctx context.Context, server int, types []uint64, progress func(int)) (total int, err error) {
	way := tablewalk.Walk{Server: server, Tables: o.tables.TablesOf(server), Measure: o.tables.MeasureSoon}
	if progress != nil {
		way.Progress = func(_, tables int) { progress(tables) }
	}
	began := sync.OnceValue(func() int64 { return o.tables.Now(server) })
	var errs []error
	err = way.Run(ctx, func(chunk []int) error {
		q := store.DeadQuery{Server: server, Tables: chunk, Types: types, Until: began(), Limit: redriveLimit}
		var failed error // of the last batch: it names all that failed in the others
		for n := 1; n > 0; total += n {
			n, failed = o.tables.RedriveDead(ctx, q)
		}
		errs = append(errs, failed)
		return nil
	})
	return total, tablewalk.Join(append(errs, err)...)
}
