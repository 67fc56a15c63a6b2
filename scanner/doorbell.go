package scanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

const (
	bellLimit    = 1_000                 // of one database in one page
	bellPages    = 8                     // read on in one poll; the next poll goes on
	bellSpacing  = 10 * time.Millisecond // between polls of one server by all nodes together
	hurryFor     = time.Second           // how long polls come every bellSpacing after a ring for a task that is due at once
	quietAfter   = 10 * time.Second      // without a ring the polls become half as many, and ask for the highest ids only
	checkEvery   = time.Second           // how often the highest ids are asked for
	partlyPause  = 50 * time.Millisecond
	longestPause = 2 * time.Second // between polls of a server that fails
)

// doorbell polls the bells of one server's databases. It belongs to the
// goroutine that listens.
type doorbell struct {
	sv       *server
	windows  map[int]*window // by database; nil: to be started
	rang     time.Time       // when a new bell was last seen
	urgent   time.Time       // last ring for a task that was due before the next poll
	checked  time.Time
	partly   bool // at the last check some database answered
	news     bool // at the last check there was something to read
	patience *patience
}

// listen polls until ctx ends. While nothing is owned it asks the server
// nothing: what rings then is found by the first peek of the tables.
func (sv *server) listen(ctx context.Context) {
	d := doorbell{sv: sv, patience: newPatience(longestPause)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(d.once(ctx))
	}
}

// once polls and returns how long to wait: until the next multiple of what lies
// between polls.
func (d *doorbell) once(ctx context.Context) time.Duration {
	cfg := d.sv.cfg
	if !d.sv.ownsAny() {
		d.windows = nil
		d.sv.heard.Store(nil)
		return cfg.BellInterval
	}
	if d.sv.heard.Load() == nil {
		d.sv.heardAt(time.Now())
	}
	if err := d.poll(ctx); err != nil {
		return d.failed(ctx, err)
	}
	d.sv.heardAt(time.Now())
	if d.patience.well() {
		d.sv.limit.Of(d.sv.log, "bells again").Info("doorbell can be polled again")
	}
	every := bellWait(cfg.BellInterval, cfg.Peers(), time.Since(d.rang), time.Since(d.urgent) < hurryFor)
	return every - time.Since(d.sv.base)%every
}

// bellWait spaces the polls of all nodes together by bellSpacing. A single node polls
// that often too, while tasks come that are due at once.
func bellWait(base time.Duration, peers int, silent time.Duration, hurry bool) time.Duration {
	if hurry {
		base = min(base, bellSpacing)
	}
	wait := max(base, time.Duration(peers)*bellSpacing)
	if silent > quietAfter {
		wait *= 2
	}
	return wait
}

// failed returns how long to wait after an error, not long where it is only one
// of several databases that failed.
func (d *doorbell) failed(ctx context.Context, err error) time.Duration {
	wait := d.patience.failed()
	if ctx.Err() != nil {
		return wait
	}
	d.sv.metrics.failures.WithLabelValues(d.sv.name, "bells").Inc()
	d.sv.limit.Of(d.sv.log, "bells").Error("doorbell can't be polled", "error", err)
	if d.partly {
		return min(wait, partlyPause)
	}
	return wait
}

// poll reads what has rung since the last poll and offers it. Bells that are
// silent are asked for their highest ids first, which costs a server less. A
// database that can't be read is in the error and holds up no other.
func (d *doorbell) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	now := time.Now()
	silent := now.Sub(d.rang) > quietAfter
	var errs []error
	if d.windows == nil || silent || now.Sub(d.checked) >= checkEvery {
		errs = append(errs, d.check(ctx, now))
	}
	if len(d.windows) == 0 || silent && !d.news {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, d.read(ctx, now))...)
}

// read reads page after page of what has rung.
func (d *doorbell) read(ctx context.Context, now time.Time) error {
	unheard := make(map[int]store.Unheard, len(d.windows))
	for database, w := range d.windows {
		unheard[database] = w.next(now)
	}
	for range bellPages {
		if more, err := d.page(ctx, unheard, now); !more || err != nil {
			return err
		}
	}
	return nil
}

// check compares the highest ids; the first time it starts at them. It notes
// whether some bell has something to read.
func (d *doorbell) check(ctx context.Context, now time.Time) error {
	last, err := d.sv.cfg.Store.LastBell(ctx, d.sv.index)
	if d.windows == nil {
		d.windows, d.rang = make(map[int]*window), now
	}
	d.news = false
	for database, id := range last {
		w, ok := d.windows[database]
		if !ok {
			w = newWindow(id, now)
			d.windows[database] = w
		}
		w.check(id, now)
		d.news = d.news || id > w.high || len(w.gaps) > 0 // without gaps a lower id can't commit any more
	}
	d.partly = len(last) > 0
	if err != nil {
		return fmt.Errorf("ask for the highest doorbell ids: %w", err)
	}
	d.checked = now
	return nil
}

// page reads one page of every database and offers the new bells. It reports whether
// some page was full, and leaves in unheard what to read then.
func (d *doorbell) page(ctx context.Context, unheard map[int]store.Unheard, now time.Time) (more bool, err error) {
	bells, err := d.sv.cfg.Store.Bells(ctx, d.sv.index, unheard, bellLimit)
	if err != nil {
		err = fmt.Errorf("read doorbells: %w", err)
	}
	var fresh []duequeue.Entry
	for database, w := range d.windows {
		found, rest := w.note(unheard[database], bells[database], bellLimit, now)
		fresh = append(fresh, found...)
		unheard[database] = store.Unheard{After: w.high}
		if rest != nil {
			unheard[database], more = *rest, true
		}
	}
	d.offer(fresh, now)
	return more, err
}

// offer passes on the bells within the look-ahead of the types that are heard; peeks find the rest.
func (d *doorbell) offer(fresh []duequeue.Entry, now time.Time) {
	if len(fresh) == 0 {
		return
	}
	d.rang = now
	d.sv.metrics.bells.WithLabelValues(d.sv.name).Add(float64(len(fresh)))
	heard := d.sv.cfg.Intake.Heard(d.sv.index)
	clock := d.sv.cfg.Store.Now(d.sv.index)
	until := clock + d.sv.cfg.LookAhead.Milliseconds()
	if slices.ContainsFunc(fresh, func(e duequeue.Entry) bool { return e.Due <= clock+d.sv.cfg.BellInterval.Milliseconds() }) {
		d.urgent = now
	}
	d.sv.offer(slices.DeleteFunc(fresh, func(e duequeue.Entry) bool {
		return e.Due > until || !slices.Contains(heard, e.Type)
	}))
}
