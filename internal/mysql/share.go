package mysql

import (
	"database/sql"
	"slices"
	"sync"
)

// Pools of one process that are opened for the same Share take one limit of
// connections together: it is divided among them evenly, whenever one comes or
// goes. Each keeps connections of its own, so that none waits for another's, as a
// node would for a service that adds many tasks at once.
//
// A pool whose part shrinks closes what it has too much of as soon as that is idle:
// for this moment the process may have more open.

// sharer is a pool that is open, and the connections that its owner has beside it.
type sharer struct {
	db     *sql.DB
	beside int
}

// share is what pools must have in common to share a limit.
type share struct {
	name, dsn string
	limit     int
}

// sharers are the pools of this process, by what they share.
var sharers = struct {
	sync.Mutex
	of map[share][]sharer
}{of: make(map[share][]sharer)}

// join gives a pool its part, and takes from those of the others. The pool must
// leave when it is closed.
func (s share) join(one sharer) (leave func()) {
	sharers.Lock()
	defer sharers.Unlock()
	sharers.of[s] = append(sharers.of[s], one)
	s.divide()
	return func() { s.leave(one) }
}

func (s share) leave(one sharer) {
	sharers.Lock()
	defer sharers.Unlock()
	left := slices.DeleteFunc(sharers.of[s], func(other sharer) bool { return other.db == one.db })
	if len(left) == 0 {
		delete(sharers.of, s)
		return
	}
	sharers.of[s] = left
	s.divide()
}

// divide gives each pool its part. Called under the lock.
func (s share) divide() {
	all := sharers.of[s]
	room := s.limit
	for _, one := range all {
		room -= one.beside
	}
	for i, part := range parts(room, len(all)) {
		all[i].db.SetMaxOpenConns(part)
		all[i].db.SetMaxIdleConns(part)
	}
}

// parts divides room evenly; each part is at least 1.
func parts(room, n int) []int {
	divided := make([]int, n)
	for i := range divided {
		divided[i] = max((room+n-1-i)/n, 1)
	}
	return divided
}
