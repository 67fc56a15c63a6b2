package store

import (
	"context"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// A server may have several addresses, of which one is used. The store moves to another one by
// itself. With asynchronous replication the server there may lack the last writes, owner rows
// among them: an owner must fence its tables again before it starts anything.

// Hold makes Now 0 for a server from each move to another address until Resume: nothing is due
// meanwhile. Moves of other pools of this process before Hold don't count. Call it once, before
// anything starts.
func (s *Store) Hold() {
	for _, sv := range s.servers {
		sv.resumed.Store(sv.Term()) // pools of one process share the term, and no Resume follows for a move before this pool was open
	}
	s.held.Store(true)
}

// Resume ends the wait after the move that began a term of a server.
func (s *Store) Resume(server int, term int64) { s.servers[server].resumed.Store(term) }

// Term counts a server's moves to other addresses. While it stays the same, all statements have
// gone to one server.
func (s *Store) Term(server int) int64 { return s.servers[server].Term() }

// Moved has a value when Term has grown; nil for a server with one address. One goroutine may
// receive from it.
func (s *Store) Moved(server int) <-chan struct{} { return s.servers[server].Moved() }

// Sightings returns what was last seen at each of a server's addresses; nil if it has only one.
// It waits until all were looked at once, or ctx ends.
func (s *Store) Sightings(ctx context.Context, server int) []mysql.Sighting {
	return s.servers[server].Sightings(ctx)
}
