package session

import (
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/store"
)

// Bounds of a judgement.
const (
	StandFor    = 5 * time.Second         // a beat that stood still for so long may be that of a dead process
	SilentAfter = 1500 * time.Millisecond // a process without a beat for so long is passed over

	standReads = 6                       // reads that have to show that a beat stood still
	readGap    = 1500 * time.Millisecond // between two reads of one judgement, at most
	beatGap    = time.Second             // between two beats of the process that judges, at most
)

// watch is what this process has seen of the sessions of one database. It only computes; times have monotonic readings. The zero watch has
// seen nothing.
type watch struct {
	seen   map[string]*sighting
	readAt time.Time // when the last successful read began; zero: none
	beatAt time.Time // when this process's last successful beat began; zero: none
}

// sighting is one session.
type sighting struct {
	store.Session
	changed time.Time // after the read that first showed its beat
	since   time.Time // after the first read of the current judgement that showed its beat
	reads   int       // of the current judgement that showed this beat, without a change between them
	silent  bool
}

// restart begins every judgement anew. Who is silent stays silent until it is heard.
func (w *watch) restart() {
	for _, s := range w.seen {
		s.reads = 0
	}
}

// beaten notes a successful beat of this process. A gap restarts every judgement: the others' beats may have failed for the same reason.
func (w *watch) beaten(began, ended time.Time) {
	if w.beatAt.IsZero() || ended.Sub(w.beatAt) > beatGap {
		w.restart()
	}
	w.beatAt = began
}

// beating reports whether this process has beaten lately.
func (w *watch) beating(now time.Time) bool {
	return !w.beatAt.IsZero() && now.Sub(w.beatAt) <= beatGap
}

// read notes a successful read, which began and ended at the given times, and returns which sessions have gone since the one before, and whether
// members came, went, changed, fell silent or were heard again. own is this process's session.
func (w *watch) read(began, ended time.Time, rows []store.Session, own string) (gone []string, changed bool) {
	if w.readAt.IsZero() || ended.Sub(w.readAt) > readGap {
		w.restart()
	}
	w.readAt = began
	now := make(map[string]*sighting, len(rows))
	for _, row := range rows {
		s, known := w.seen[row.ID]
		if !known {
			s = &sighting{Session: row, changed: ended}
		}
		if !known || s.Draining != row.Draining || s.Unable != row.Unable || s.About != row.About || s.AboutNo != row.AboutNo {
			changed = true
		}
		changed = s.look(ended, row) || changed
		if row.ID != own && began.Sub(s.since) >= SilentAfter && w.beating(ended) && !s.silent {
			s.silent, changed = true, true
		}
		now[row.ID] = s
	}
	for id := range w.seen {
		if now[id] == nil {
			gone = append(gone, id)
		}
	}
	w.seen = now
	slices.Sort(gone)
	return gone, changed || len(gone) > 0
}

// look takes in a row of a read, and reports whether a silent session was heard.
func (s *sighting) look(ended time.Time, row store.Session) (heard bool) {
	moved := s.Beat != row.Beat
	s.Session = row
	switch {
	case moved:
		heard, s.silent = s.silent, false
		s.changed, s.since, s.reads = ended, ended, 1
	case s.reads == 0:
		s.since, s.reads = ended, 1
	default:
		s.reads++
	}
	return heard
}

// ends returns the sessions that this process may end at the given time, by id.
func (w *watch) ends(now time.Time, own string) (may []store.Session) {
	if !w.beating(now) || now.Sub(w.readAt) > readGap {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(w.seen)) {
		s := w.seen[id]
		if id != own && s.reads >= standReads && w.readAt.Sub(s.since) >= StandFor {
			may = append(may, s.Session)
		}
	}
	return may
}
