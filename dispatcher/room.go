package dispatcher

import "github.com/tocsinhq/tocsin/internal/duequeue"

// fetchAhead is how many ids of a backlog a lane has queued: enough for the claims under way and the next ones.
const fetchAhead = 4 * chunk

// Room returns how many ids of a backlog a lane takes now, at most most. If it is 0, Config.Woken is called when there is some. Each room needs one
// Fetched, whatever was read.
func (d *Dispatcher) Room(server int, bizType uint64, most int) int {
	s := d.servers[server]
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[bizType]
	if l == nil {
		return 0
	}
	l.asked = true
	room := min(fetchAhead-l.backlog(), most)
	if l.rests() || s.settler.full() || d.phase.Load() != running || room < min(most, fetchAhead/2) {
		return 0
	}
	l.asked = false
	l.fetching += room
	return room
}

// Fetched queues ids for which Room made room, and returns the refused ones as Offer does.
func (d *Dispatcher) Fetched(server int, bizType uint64, room int, entries []duequeue.Entry) (refused []duequeue.Entry) {
	s := d.servers[server]
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[bizType]
	before := l.queue.Len()
	refused = s.offer(entries, now)
	l.fetching -= room
	l.fetched += max(l.queue.Len()-before, 0)
	return refused
}

// backlog is how many ids of a backlog are being read, or queued. Called under server.mu.
func (l *lane) backlog() int {
	l.fetched = min(l.fetched, l.queue.Len()) // some may have left the queue with their tables
	return l.fetching + l.fetched
}

// takesMore reports whether a lane that had no room has some. Called under server.mu.
func (l *lane) takesMore() bool {
	if l.kind.d.claims() {
		return l.backlog() <= fetchAhead/2
	}
	return l.budget() > 0
}
