package duequeue

import (
	"maps"
	"slices"

	"github.com/tocsinhq/tocsin"
)

// model is the queue as one would first think of it: two maps, searched whole.
type model struct {
	capacity       int
	queued, flying map[tocsin.JobID]Entry
	open           []*reading
}

// reading is a read under way, with what has ended since it began.
type reading struct {
	Reading
	ended map[tocsin.JobID]bool
}

func newModel(capacity int) *model {
	return &model{capacity: capacity, queued: map[tocsin.JobID]Entry{}, flying: map[tocsin.JobID]Entry{}}
}

func compare(a, b Entry) int {
	if a.Due != b.Due {
		return int(a.Due - b.Due)
	}
	return int(a.JobID) - int(b.JobID)
}

func inOrder(m map[tocsin.JobID]Entry) []Entry { return slices.SortedFunc(maps.Values(m), compare) }

func (m *model) offer(e Entry) (refused Entry, some bool) {
	if _, ok := m.flying[e.JobID]; ok {
		return Entry{}, false
	}
	if _, ok := m.queued[e.JobID]; ok {
		m.requeue(e)
		return Entry{}, false
	}
	if len(m.queued)+len(m.flying) < m.capacity {
		m.queued[e.JobID] = e
		return Entry{}, false
	}
	all := inOrder(m.queued)
	if len(all) == 0 || all[len(all)-1].Due <= e.Due {
		return e, true
	}
	latest := all[len(all)-1]
	delete(m.queued, latest.JobID)
	m.queued[e.JobID] = e
	return latest, true
}

func (m *model) pop(now int64, limit int) []Entry {
	var due []Entry
	for _, e := range inOrder(m.queued) {
		if e.Due > now || len(due) == limit {
			break
		}
		due = append(due, e)
		delete(m.queued, e.JobID)
		m.flying[e.JobID] = e
	}
	return due
}

func (m *model) done(id tocsin.JobID) {
	if _, flies := m.flying[id]; !flies {
		return
	}
	delete(m.flying, id)
	for _, r := range m.open {
		r.ended[id] = true
	}
}

func (m *model) mayTake(e Entry) bool {
	_, flies := m.flying[e.JobID]
	old, waits := m.queued[e.JobID]
	ended := slices.ContainsFunc(m.open, func(r *reading) bool { return r.ended[e.JobID] })
	return !flies && !ended && (!waits || old.Due <= e.Due)
}

func (m *model) mustTake(e Entry) bool { return m.mayTake(e) && len(m.open) == 0 }

func (m *model) requeue(e Entry) {
	old, ok := m.queued[e.JobID]
	if ok && old.Due <= e.Due {
		return
	}
	delete(m.flying, e.JobID)
	m.queued[e.JobID] = e
}

func (m *model) drop(gone func(int) bool) {
	maps.DeleteFunc(m.queued, func(id tocsin.JobID, _ Entry) bool { return gone(id.Table()) })
}

func first(all []Entry) (int64, bool) {
	if len(all) == 0 {
		return 0, false
	}
	return all[0].Due, true
}
