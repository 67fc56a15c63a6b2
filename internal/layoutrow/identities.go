package layoutrow

import (
	"maps"
	"slices"
	"sync"
)

// Identities collects the identities of the databases of one config. The config does
// not name an identity, so the databases decide: the identity of most of them is the
// cluster's, and a database with another one belongs elsewhere. The zero value is
// empty. It is safe for concurrent use.
type Identities struct {
	mu sync.Mutex
	by map[int]string // database number -> identity; "" if it has none
}

// Note stores the identities in rows that were just read. A row that w refuses does
// not count, unless its database is held: it is of the cluster.
func (i *Identities) Note(w Want, rows ...Row) {
	w.Identity = ""
	for _, r := range rows {
		if r.State == Held {
			r.State = Active
		}
		if w.Refuse(r, "") != "" {
			r.Identity = ""
		}
		i.Put(r.Asked, r.Identity)
	}
}

// Put stores the identity of one database; "" forgets it.
func (i *Identities) Put(database int, identity string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.by == nil {
		i.by = make(map[int]string)
	}
	delete(i.by, database)
	if identity != "" {
		i.by[database] = identity
	}
}

// Disputed reports whether databases have different identities.
func (i *Identities) Disputed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	some := ""
	for _, id := range i.by {
		if some != "" && id != some {
			return true
		}
		some = id
	}
	return false
}

// Of returns the identity of one database as it was noted last; "" if that is none.
func (i *Identities) Of(database int) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.by[database]
}

// Agreed returns the identity that most databases have; among equals, that of the
// lowest number; "" if none has any.
func (i *Identities) Agreed() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	count, best := make(map[string]int), ""
	for _, id := range i.by {
		count[id]++
	}
	for _, db := range slices.Sorted(maps.Keys(i.by)) {
		if id := i.by[db]; count[id] > count[best] {
			best = id
		}
	}
	return best
}
