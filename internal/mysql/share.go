package mysql

import (
	"database/sql"
	"slices"
	"sync"
)

// Pools of one process that are opened with the same Share divide one limit of
// connections evenly among them, whenever one comes or goes. Each has connections of
// its own, so that none waits for another's. Otherwise a node would wait for a
// service that adds many tasks at once.
//
// A pool whose part shrinks closes surplus connections as soon as they are idle, so
// for a moment the process may have more open.

// sharer is an open pool, and the connections that its owner has outside of it.
type sharer struct {
	db     *sql.DB
	beside int
}

// share is what pools must have in common to divide a limit.
type share struct {
	name, dsn string
	limit     int
}

// sharers are the pools of this process, by share.
var sharers = struct {
	sync.Mutex
	of map[share][]sharer
}{of: make(map[share][]sharer)}

// join gives a pool its part, which reduces those of the others. The pool must call
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
