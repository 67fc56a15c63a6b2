package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// Verdict is what Apply did with one schedule.
type Verdict string

// The verdicts.
const (
	Created   Verdict = "created"
	Changed   Verdict = "changed"
	Unchanged Verdict = "unchanged" // nothing was written
)

// Applied is what Apply did, or would do, with one schedule.
type Applied struct {
	Name     string       `json:"name"`
	Verdict  Verdict      `json:"verdict,omitempty"` // "": it failed
	Changes  []Change     `json:"changes,omitempty"` // of Changed
	ID       tocsin.JobID `json:"schedule_id"`       // 0: it is not created
	State    State        `json:"state,omitempty"`
	Stands   string       `json:"stands,omitempty"` // the state in words: see Schedule.Stands
	Revision uint32       `json:"revision"`
	Err      error        `json:"-"` // why it failed
}

// applyAtOnce is how many schedules Apply writes side by side. Each is a transaction.
const applyAtOnce = 8

// Apply brings the cluster's schedules of these names in line with the definitions: it creates missing ones as active,
// and changes those that differ, which keep their state. One that is missing and has no fire time left is refused, as by
// Create. Other schedules stay as they are. With dryRun it only returns
// what it would do. The results are in the order of the definitions. Nothing is written if a definition is not valid, or
// if Apply can't find out whether a name exists. A schedule that fails later does not stop the others; the error names
// it. Many processes may apply the same definitions at once: one creates or changes, and the others find nothing to do.
//
// A change raises the revision, cancels the pending runs of earlier ones, and makes the first runs anew. Runs that are
// claimed go on, and so do those that are due by a second after the change, as they may have started. A fire time that both revisions have
// is delivered once.
func (s *Schedules) Apply(ctx context.Context, definitions []Definition, dryRun bool) ([]Applied, error) {
	if dryRun {
		return s.apply(ctx, definitions, true)
	}
	var of Definition
	if len(definitions) == 1 {
		of = definitions[0]
	}
	return through(ctx, s, "apply", of.Name, of.BizType, func(ctx context.Context) ([]Applied, error) { return s.apply(ctx, definitions, false) })
}

func (s *Schedules) apply(ctx context.Context, definitions []Definition, dryRun bool) ([]Applied, error) {
	if err := ValidateAll(definitions); err != nil {
		return nil, err
	}
	types, err := s.types(ctx)
	if err != nil {
		return nil, err
	}
	names, numbers := make([]string, len(definitions)), make([]uint64, len(definitions))
	for i, d := range definitions {
		names[i] = d.Name
		if numbers[i], err = types.number(d.BizType); err != nil {
			return nil, invalid(d.Name, "%s", err)
		}
	}
	found, err := s.named(ctx, types, names...)
	if err != nil {
		return nil, err
	}
	all := make([]Applied, len(definitions))
	var g errgroup.Group
	g.SetLimit(applyAtOnce)
	for i, d := range definitions {
		g.Go(func() error {
			all[i] = s.bring(ctx, place{types: types}, d, found[d.Name], dryRun, func() (*row, error) {
				found, err := s.named(ctx, types, d.Name)
				return found[d.Name], err
			})
			return nil
		})
	}
	err = g.Wait()
	if !dryRun {
		s.alone(ctx, types, all)
	}
	for _, a := range all {
		err = errors.Join(err, a.Err)
	}
	return all, err
}

// How often, and how far apart, alone looks again while others that it comes before are there.
const (
	aloneTries = 40
	alonePause = 50 * time.Millisecond
)

// alone checks whether somebody else has meanwhile created schedules of the same names in other databases. What stays has looked
// and has seen no other, so one of two at most: the later one to look has seen the earlier one. One that sees a
// lower schedule_id deletes its own. The lowest looks again until the others have done so; one that stays had looked before it.
func (s *Schedules) alone(ctx context.Context, types bizTypes, all []Applied) {
	open := map[string]*Applied{}
	for i := range all {
		if all[i].Verdict == Created {
			open[all[i].Name] = &all[i]
		}
	}
	for try := 1; len(open) > 0; try++ {
		seen := map[string]tocsin.JobID{} // the lowest other one of each name
		for part := range slices.Chunk(slices.Collect(maps.Keys(open)), namesAtOnce) {
			rows, _ := s.withNames(ctx, types, part) // a server that is away was asked before
			for _, r := range rows {
				if other, ok := seen[r.Name]; r.ID != open[r.Name].ID && (!ok || r.ID < other) {
					seen[r.Name] = r.ID
				}
			}
		}
		ended := try == aloneTries
		if len(seen) > 0 && !ended {
			ended = loop.Wait(ctx, alonePause) != nil
		}
		for name, a := range open {
			switch other, ok := seen[name]; {
			case !ok:
				delete(open, name)
			case other < a.ID, ended:
				err := s.delete(context.WithoutCancel(ctx), place{id: a.ID, types: types}, 0)
				*a = Applied{Name: name, Err: errors.Join(exists(name), err)}
				delete(open, name)
			}
		}
	}
}

// Update is Apply of one schedule that exists. If revision is not 0, the schedule must have it or say the same already, or the error is ErrRevision.
func (s *Schedules) Update(ctx context.Context, d Definition, revision uint32) (Applied, error) {
	return through(ctx, s, "update", d.Name, d.BizType, func(ctx context.Context) (Applied, error) {
		if err := d.Validate(); err != nil {
			return Applied{}, err
		}
		found, types, err := s.find(ctx, d.Name)
		if err != nil {
			return Applied{}, err
		}
		a := s.applyOne(ctx, place{types: types}, d, found, false, revision)
		return a, a.Err
	})
}

// Edit changes a schedule that was read before, unless somebody has changed it since to something else (ErrRevision) or it is
// gone (ErrNotFound). It returns the schedule as it is afterwards, and what was changed. With dryRun it only returns what it
// would change.
func (s *Schedules) Edit(ctx context.Context, read Schedule, d Definition, dryRun bool) (Schedule, []Change, error) {
	if err := d.Validate(); err != nil {
		return Schedule{}, nil, err
	}
	if d.Name != read.Name {
		return Schedule{}, nil, invalid(read.Name, "the name never changes: delete the schedule, and make another")
	}
	types, err := s.types(ctx)
	if err != nil {
		return Schedule{}, nil, err
	}
	if _, err = types.number(d.BizType); err != nil {
		return Schedule{}, nil, err
	}
	if changes, err := edits(&row{Schedule: read}, d); err != nil || dryRun {
		return read, changes, err
	}
	var changes []Change
	after, err := through(ctx, s, "edit", d.Name, d.BizType, func(ctx context.Context) (Schedule, error) {
		r, made, err := s.edit(ctx, place{id: read.ID, types: types}, d, read.Revision)
		if err != nil {
			return Schedule{}, err
		}
		changes = made
		return r.Schedule, nil
	})
	return after, changes, err
}

// bring is applyOne of any revision. If somebody else creates the schedule since it was looked for, it is looked for again.
func (s *Schedules) bring(ctx context.Context, p place, d Definition, found *row, dryRun bool, again func() (*row, error)) Applied {
	a := s.applyOne(ctx, p, d, found, dryRun, 0)
	for try := 1; found == nil && errors.Is(a.Err, ErrExists) && try < insertTries; try++ {
		var err error
		if found, err = again(); err != nil {
			return Applied{Name: d.Name, Err: err}
		}
		a = s.applyOne(ctx, p, d, found, dryRun, 0)
	}
	return a
}

// applyOne creates or changes one schedule, at a place whose id is that of found. revision is the one that it must have, 0 for any.
func (s *Schedules) applyOne(ctx context.Context, p place, d Definition, found *row, dryRun bool, revision uint32) Applied {
	a, r := Applied{Name: d.Name, Verdict: Created}, found
	switch {
	case found == nil && dryRun:
		if err := (&row{Schedule: Schedule{Definition: d}}).goesOn(time.Now()); err != nil {
			a.Err = fmt.Errorf("create schedule %s: %w", d.Name, err)
		}
	case found == nil:
		r, a.Err = s.create(ctx, p, d)
	default:
		a.ID, a.Verdict, p.id = found.ID, Unchanged, found.ID
		if a.Changes, a.Err = edits(found, d); a.Err == nil && !dryRun && (len(a.Changes) > 0 || revision != 0) {
			r, a.Changes, a.Err = s.edit(ctx, p, d, revision)
		}
		if len(a.Changes) > 0 {
			a.Verdict = Changed
		}
	}
	if a.Err != nil {
		return Applied{Name: a.Name, ID: a.ID, Err: a.Err}
	}
	if r != nil { // nil: it would be created
		a.ID, a.State, a.Stands, a.Revision = r.ID, r.State, r.Stands(), r.Revision
	}
	return a
}

// edits lists what a definition changes of a schedule, and refuses what never changes.
func edits(r *row, d Definition) ([]Change, error) {
	changes := differences(r.Definition, d)
	for _, c := range changes {
		if c.Field == "biz_id" || c.Field == "key" {
			return nil, invalid(d.Name, "%s never changes, and is %q, not %q: delete the schedule, and make another", c.Field, c.Old, c.New)
		}
	}
	return changes, nil
}

// edit changes one schedule. The result is its row then, and what was changed.
func (s *Schedules) edit(ctx context.Context, p place, d Definition, revision uint32) (*row, []Change, error) {
	var changes []Change
	r, changed, err := s.change(ctx, p, "the schedule was changed", func(next *row, now time.Time) (_ bool, err error) {
		if changes, err = edits(next, d); err == nil && len(changes) == 0 {
			return false, nil // also of another revision: somebody has made the same change
		}
		if stale := next.has(revision); stale != nil || err != nil {
			return false, cmp.Or(stale, err)
		}
		return true, next.take(p.types, d, now)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("change schedule %s: %w", d.Name, err)
	}
	if !changed {
		changes = nil
	}
	return r, changes, nil
}

// has refuses a revision that is not the row's; 0 is any.
func (r *row) has(revision uint32) error {
	if revision != 0 && r.Revision != revision {
		return client.Refuse(ErrRevision, "schedule %s has revision %d, not %d: somebody has changed it", r.Name, r.Revision, revision)
	}
	return nil
}

// take changes a row to match a definition. A schedule that has ended may become active again.
func (r *row) take(types bizTypes, d Definition, now time.Time) (err error) {
	d = d.WithDefaults()
	if r.number, err = types.number(d.BizType); err != nil {
		return err
	}
	r.define(d, now)
	r.headers, err = client.StoredHeaders(d.Headers, d.PayloadVersion)
	return err
}

// define gives a row a definition with its defaults. @every counts on as it did, unless its period is changed.
func (r *row) define(d Definition, now time.Time) {
	ahead := r.Start.After(now)
	switch was, is := strings.TrimSpace(r.Cron), d.Cron; { // an earlier program may have stored white space
	case !d.Start.IsZero(), ahead, was != is && !samePeriod(was, is):
		r.Anchor = d.anchorAt(now)
	}
	if r.State == Ended {
		r.State, r.Reason = Active, ""
	}
	r.Definition = d
}

// samePeriod reports whether two expressions are the same period in other words.
func samePeriod(a, b string) bool {
	x, failed := firetimes.ValuesOf(a)
	y, err := firetimes.ValuesOf(b)
	return failed == nil && err == nil && x.Every > 0 && x.Every == y.Every
}

// create stores a new schedule. The place has no id yet.
func (s *Schedules) create(ctx context.Context, p place, d Definition) (*row, error) {
	wanted := &row{}
	if err := wanted.take(p.types, d, time.Time{}); err != nil {
		return nil, err
	}
	table := s.tables.Layout().TableOf(wanted.subject())
	for range insertTries {
		p.id, p.fresh = tocsin.JobID(s.maker.ids.Next(time.Now(), table)), true
		var stored *row
		err := s.within(ctx, p, func(h *here) (err error) {
			stored, err = h.create(ctx, wanted, p.id)
			return err
		})
		if !errors.Is(err, errTaken) {
			if err != nil {
				return nil, fmt.Errorf("create schedule %s: %w", d.Name, err)
			}
			return stored, nil
		}
	}
	return nil, fmt.Errorf("create schedule %s: %d ids in a row are taken", d.Name, insertTries)
}

// errTaken says that another schedule has the id.
var errTaken = errors.New("schedule_id is taken")

// create inserts a new row and makes the first window.
func (h *here) create(ctx context.Context, wanted *row, id tocsin.JobID) (*row, error) {
	if h.row != nil {
		if h.row.Name == wanted.Name && h.row.alike(wanted.asCreated(h.row.Anchor, id, h.table)) {
			return h.row, nil // the answer to the commit was lost
		}
		return nil, errTaken
	}
	r := wanted.asCreated(h.now, id, h.table)
	if err := r.goesOn(h.now); err != nil {
		return nil, err
	}
	if _, err := h.window(ctx, r, nil); err != nil {
		return nil, err
	}
	_, err := h.exec(ctx, insertRow, slices.Concat([]any{uint64(r.ID), r.Name, r.Table, r.subject(), []byte(r.Key)}, r.stored(), []any{at(r.Created), at(r.Modified)})...)
	if mysql.ClassOf(err) == mysql.Duplicate {
		return nil, exists(r.Name)
	}
	return r, err
}

// asCreated is a new row that was activated at a time.
func (r *row) asCreated(now time.Time, id tocsin.JobID, table int) *row {
	next := r.clone()
	next.ID, next.Table, next.State, next.Revision = id, table, Active, 1
	next.Anchor = next.anchorAt(now)
	next.MadeUntil, next.Created, next.Modified, next.ReadAt = now, now, now, now
	return next
}
