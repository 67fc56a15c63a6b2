package dispatcher

import (
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// sift puts back the entries of locked tables. One that was locked is tried again
// by a probe, one entry in a batch of its own, so that no other row waits for the
// lock with it. Called under s.mu.
func (s *server) sift(entries []duequeue.Entry, now int64) (kept []duequeue.Entry, probe bool) {
	kept = entries[:0]
	local := time.Now()
	for i, e := range entries {
		t := s.known(e.JobID.Table())
		switch {
		case t.avoidUntil.IsZero():
			kept = append(kept, e)
		case s.probes < maxProbes && !local.Before(t.avoidUntil):
			s.probes++
			t.avoidUntil, t.probed = local.Add(avoidFor), true
			s.notLoaded(kept)
			s.notLoaded(entries[i+1:])
			return append(kept[:0], e), true
		default:
			e.Due = now + max(ceilMilli(t.avoided(local)), 1) + s.d.within().Milliseconds() // so that it is not loaded ahead of its time again
			s.notLoaded([]duequeue.Entry{e})
		}
	}
	return kept, false
}

// avoided returns for how long a row of a locked table waits before it looks again. A
// probe may find at any time that the lock is gone.
func (t *table) avoided(local time.Time) time.Duration {
	if t.probed {
		return probeLook
	}
	return t.avoidUntil.Sub(local)
}

// notLoaded lets go of popped entries before they are loaded. Called under s.mu.
func (s *server) notLoaded(entries []duequeue.Entry) {
	s.leaveRoom(entries)
	s.putBack(entries)
}

// putBack lets go of popped entries. Called under s.mu.
func (s *server) putBack(entries []duequeue.Entry) {
	for _, e := range entries {
		l := s.lanes[e.Type]
		l.held--
		l.queue.Requeue(e)
	}
	if len(entries) > 0 {
		signal(s.wake) // their lanes hold fewer
	}
}

// endProbe gives a table free whose probe could be loaded.
func (s *server) endProbe(table int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes--
	t := s.known(table)
	if t.probed = false; ok {
		t.avoidUntil = time.Time{}
	}
}
