package dispatcher

import "sync/atomic"

// largestPayload is the largest payload of a row, MaxAttribute characters of four
// bytes. It is the expected size until a row of the biz type has been read.
const largestPayload = 4 * 8192

// payloads bounds the bytes of payloads in memory, from the load of a row until its
// target has returned. Each biz type may use as much as it leaves free for the
// others: one type alone gets half of the limit, two get a third each. So a type with
// large payloads stops only itself, and one more type finds room at once. Safe for
// concurrent use.
type payloads struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Bool // a lane loads less than it could since used last fell
}

// share is one biz type's part of the payloads.
type share struct {
	all  *payloads
	used atomic.Int64
	size atomic.Int64 // expected for one row; 0: no row was read
}

// add adds bytes to those in use, or releases them if n is negative.
func (h *share) add(n int64) {
	if n != 0 {
		h.used.Add(n)
		h.all.used.Add(n)
	}
}

// expected is the expected size of a row that has not been read, at least 1.
func (h *share) expected() int64 {
	if n := h.size.Load(); n > 0 {
		return n
	}
	return largestPayload
}

// learn updates the expected size with that of a row that was read. A larger size
// counts at once, smaller ones gradually.
func (h *share) learn(size int64) {
	size = max(size, 1)
	if old := h.size.Load(); old > size {
		size = old - (old-size+15)/16
	}
	if size != h.size.Load() {
		h.size.Store(size)
	}
}

// rows returns how many of the wanted rows may be loaded. A biz type with none in
// memory may always load one. rows returns 0 until a quarter of the type's share is
// free, so that loads are not of one row each.
func (h *share) rows(wanted int) int {
	if wanted <= 0 {
		return 0
	}
	own := h.used.Load()
	free := (h.all.limit - h.all.used.Load() - own) / 2
	n := int(max(free, 0) / h.expected())
	if n >= wanted {
		return wanted
	}
	h.all.refused.Store(true)
	switch {
	case own == 0:
		return min(max(n, 1), wanted)
	case 3*free < own:
		return 0
	}
	return n
}

// claimRoom reserves the expected payloads of rows that are about to be read. Called
// under server.mu.
func (l *lane) claimRoom(rows int) {
	n := int64(rows) * l.kind.payload.expected()
	l.loading += rows
	l.booked += n
	l.kind.payload.add(n)
}

// leaveRoom releases the room that claimRoom reserved, once the rows were read or
// will not be. Called under server.mu.
func (l *lane) leaveRoom(rows int) {
	if rows == 0 {
		return
	}
	n := l.booked / int64(l.loading) * int64(rows)
	if rows == l.loading {
		n = l.booked
	}
	l.loading -= rows
	l.booked -= n
	l.kind.payload.add(-n)
}

// take counts the payload of a row that was read.
func (t *task) take() {
	t.size = int64(len(t.row.Payload) + len(t.row.Headers))
	t.lane.kind.payload.learn(t.size)
	t.lane.kind.payload.add(t.size)
}

// dropPayloads releases the payloads of tasks that have been delivered, or will not
// be. It wakes the loaders if there was no room for more.
func (d *Dispatcher) dropPayloads(tasks ...*task) {
	var bytes int64
	for _, t := range tasks {
		bytes, t.size = bytes+t.size, 0
	}
	if bytes > 0 {
		tasks[0].lane.kind.payload.add(-bytes) // all are of one biz type
	}
	if d.payloads.refused.Load() && d.payloads.refused.Swap(false) {
		for _, s := range d.servers {
			signal(s.wake)
		}
	}
}
