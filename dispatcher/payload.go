package dispatcher

import "sync/atomic"

// largestPayload is that of a row, MaxAttribute characters of four bytes: what one
// is taken to have until a row of its biz type was read.
const largestPayload = 4 * 8192

// payloads bounds the bytes of the payloads in memory, from the load of a row until
// its target has returned. Each biz type may have as much as is left over for the
// others: alone half of the limit, two a third each. So one with large payloads
// stops only itself, and a further one finds room at once. Safe for concurrent use.
type payloads struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Bool // a lane loads less than it could since used last fell
}

// share is one biz type's part of the payloads.
type share struct {
	all  *payloads
	used atomic.Int64
	size atomic.Int64 // expected of one row; 0: none was read
}

// add books bytes, or gives them back if n is negative.
func (h *share) add(n int64) {
	if n != 0 {
		h.used.Add(n)
		h.all.used.Add(n)
	}
}

// expected is the size of a row that is not read yet, at least 1.
func (h *share) expected() int64 {
	if n := h.size.Load(); n > 0 {
		return n
	}
	return largestPayload
}

// learn takes in the size of a row that was read. A larger one than expected counts
// at once, smaller ones by and by.
func (h *share) learn(size int64) {
	size = max(size, 1)
	if old := h.size.Load(); old > size {
		size = old - (old-size+15)/16
	}
	if size != h.size.Load() {
		h.size.Store(size)
	}
}

// rows is how many of the wanted rows may be loaded. One always may if the biz type
// has none in memory. It waits until a quarter of what the type may have is free, so
// that loads are not of a row each.
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

// claimRoom books the expected payloads of rows that are about to be read. Called
// under server.mu.
func (l *lane) claimRoom(rows int) {
	n := int64(rows) * l.kind.payload.expected()
	l.loading += rows
	l.booked += n
	l.kind.payload.add(n)
}

// leaveRoom gives back what claimRoom booked for rows that were read, or will not
// be. Called under server.mu.
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

// take books the payload of a row that was read.
func (t *task) take() {
	t.size = int64(len(t.row.Attribute))
	t.lane.kind.payload.learn(t.size)
	t.lane.kind.payload.add(t.size)
}

// dropPayloads gives the payloads of tasks back that have been delivered, or will not be,
// and has the loaders look again if there was no room for more.
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
			s.wakeAll()
		}
	}
}
