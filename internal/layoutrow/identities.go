package layoutrow

import (
	"maps"
	"slices"
	"sync"
)

// Identities is what the databases of one config say of their identity. No
// config names it, so the databases decide: the identity of most of them is
// that of the cluster, and a database with another one belongs elsewhere. The zero
// value knows none. It is safe for concurrent use.
type Identities struct {
	mu sync.Mutex
	by map[int]string // by database number; none is ""
}

// Note keeps what databases said of themselves just now. One that w refuses
// has no say.
func (i *Identities) Note(w Want, rows ...Row) {
	w.Identity = ""
	for _, r := range rows {
		if w.Refuse(r, "") != "" {
			r.Identity = ""
		}
		i.Put(r.Asked, r.Identity)
	}
}

// Put keeps the identity of one database; "" forgets it.
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

// Agreed returns the identity that most databases have, of equals that of the
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
