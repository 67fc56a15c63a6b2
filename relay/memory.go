package relay

// Bounds of the rows in memory.
const (
	laneRows  = 3000     // of a lane; more are parked
	laneBytes = 4 << 20  // of a lane; a page more at most
	allBytes  = 64 << 20 // of all lanes of a Relay; beyond it a lane has probeRows at most
)

// full reports whether a lane has as many rows in memory as it may have.
func (t *turn) full(l *lane) bool {
	rows := len(l.queue) + len(l.flight)
	return len(l.queue) >= laneRows || l.bytes >= laneBytes || rows >= probeRows && t.short()
}

// short reports whether all lanes together have as much in memory as they may have.
func (t *turn) short() bool { return t.memory.Load() >= allBytes }

// weigh counts the bytes of a lane's rows in memory, after some have left.
func (l *lane) weigh() {
	l.bytes = 0
	for i := range l.queue {
		l.bytes += l.queue[i].Size()
	}
	for i := range l.flight {
		l.bytes += l.flight[i].Size()
	}
}

// weigh adds up the bytes of all lanes.
func (t *turn) weigh() {
	held := 0
	for _, l := range t.lanes {
		held += l.bytes
	}
	t.memory.Add(int64(held - t.held))
	t.held = held
}

// release gives up what the turn holds.
func (t *turn) release() {
	t.memory.Add(int64(-t.held))
	t.held = 0
}
