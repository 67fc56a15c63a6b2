package scanner

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// rows is a store in memory for what is about timing and bookkeeping; what is
// about SQL runs against a server.
type rows struct {
	places int // tables, all on one server

	mu      sync.Mutex
	pending map[tocsin.JobID]row
	peeks   []store.PeekQuery
	calls   int
	broken  map[int]error
	takes   func(store.PeekQuery) time.Duration // how long a peek takes; nil: no time
	down    error                               // what the server says; nil: it answers
	back    time.Duration                       // by which its clock was set back
	inDue   func()                              // happens between the reading of whole rows and its answer; nil: nothing
	bells   []store.Bell                        // of database 0
	read    int                                 // how often they were
}

type row struct {
	duequeue.Entry
	commit int64
}

func (r *rows) Servers() []string { return []string{"db1"} }

func (r *rows) ServerOf(table int) int {
	if table < r.places {
		return 0
	}
	return -1
}

func (r *rows) Now(int) int64 { return time.Now().Add(-r.back).UnixMilli() }

func (r *rows) NextRunOut(context.Context, int, []int) (time.Duration, bool, error) {
	r.count()
	return 0, false, nil
}

func (r *rows) Recover(context.Context, int, []int, int, map[string]string) (store.Recovered, error) {
	r.count()
	return store.Recovered{}, nil
}

func (r *rows) Bells(_ context.Context, _ int, unheard map[int]store.Unheard, _ int) (map[int][]store.Bell, error) {
	r.count()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read++
	ask := unheard[0]
	var found []store.Bell
	for _, b := range r.bells {
		if b.ID > ask.After || slices.ContainsFunc(ask.Missing, func(s store.Span) bool { return s.Low <= b.ID && b.ID <= s.High }) {
			found = append(found, b)
		}
	}
	return map[int][]store.Bell{0: found}, nil
}

func (r *rows) LastBell(context.Context, int) (map[int]uint64, error) {
	r.count()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bells) == 0 {
		return map[int]uint64{0: 0}, nil
	}
	return map[int]uint64{0: r.bells[len(r.bells)-1].ID}, nil
}

// reads gives how often bells were read since the last call.
func (r *rows) reads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.read
	r.read = 0
	return n
}

// ring rings for a task of table 0 that is due now.
func (r *rows) ring(id uint64) tocsin.JobID {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := tocsin.JobID(id << 22)
	r.bells = append(r.bells, store.Bell{ID: id, Entry: duequeue.Entry{JobID: job, Type: 1, Due: r.Now(0)}})
	slices.SortFunc(r.bells, func(a, b store.Bell) int { return cmp.Compare(a.ID, b.ID) })
	return job
}

func (r *rows) count() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
}

func byKey(a, b duequeue.Entry) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Type, b.Type), cmp.Compare(a.JobID, b.JobID))
}

func (r *rows) Peek(ctx context.Context, q store.PeekQuery) (store.Page, error) {
	if err := loop.Wait(ctx, r.time(q)); err != nil {
		return store.Page{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.peeks = append(r.peeks, q)
	page := store.Page{Failed: make(map[int]error)}
	if r.down != nil {
		return page, r.down
	}
	for _, table := range q.Tables {
		if err := r.broken[table]; err != nil {
			page.Failed[table] = err
			continue
		}
		found := r.table(table, q)
		if len(found) >= q.Limit {
			found = found[:q.Limit]
			page.Full = append(page.Full, store.FullTable{Table: table, Last: found[q.Limit-1]})
		}
		page.Entries = append(page.Entries, found...)
	}
	return page, nil
}

func (r *rows) time(q store.PeekQuery) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.takes == nil {
		return 0
	}
	return r.takes(q)
}

func (r *rows) table(table int, q store.PeekQuery) []duequeue.Entry {
	var found []duequeue.Entry
	for id, row := range r.pending {
		due := row.Due >= q.From && row.Due <= q.Until
		behind := q.After.JobID == 0 || byKey(row.Entry, q.After) > 0
		if id.Table() == table && slices.Contains(q.Types, row.Type) && due && behind && row.commit <= r.Now(0) {
			found = append(found, row.Entry)
		}
	}
	slices.SortFunc(found, byKey)
	return found
}

// DueIDs is Due, without the rows.
func (r *rows) DueIDs(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	return idsOf(r.Due(ctx, q))
}

func idsOf(page store.DuePage, err error) (store.DuePage, error) {
	for _, row := range page.Rows {
		page.Entries = append(page.Entries, duequeue.Entry{JobID: row.JobID, Type: row.Type, Due: row.Action})
	}
	page.Rows = nil
	return page, err
}

func (r *rows) Due(_ context.Context, q store.DueQuery) (store.DuePage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	page := store.DuePage{Failed: make(map[int]error)}
	if r.down != nil {
		return page, r.down
	}
	if r.inDue != nil {
		defer r.inDue()
	}
	for _, from := range q.From {
		if err := r.broken[from.Table]; err != nil {
			page.Failed[from.Table] = err
			continue
		}
		after := duequeue.Entry{JobID: from.JobID, Type: q.Type, Due: from.Due}
		found := r.table(from.Table, store.PeekQuery{Types: []uint64{q.Type}, Until: min(q.Until, r.Now(0))})
		found = slices.DeleteFunc(found, func(e duequeue.Entry) bool { return byKey(e, after) <= 0 })
		if len(found) >= q.Limit {
			found = found[:q.Limit]
			last := found[q.Limit-1]
			page.More = append(page.More, store.Place{Table: from.Table, Due: last.Due, JobID: last.JobID})
		}
		for _, e := range found {
			page.Rows = append(page.Rows, store.Row{Info: tocsin.Info{JobID: e.JobID}, Type: e.Type, Action: e.Due})
		}
	}
	return page, nil
}
