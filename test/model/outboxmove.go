package model

import "strings"

// The promises of the outbox, by the word that a finding begins with.
const (
	lost     = "LOST"
	twice    = "TWICE"
	ghost    = "GHOST"
	disorder = "ORDER"
	unwanted = "UNWANTED"
	stranded = "STUCK"
)

// breaks reports whether a finding is of a promise.
func breaks(bad, promise string) bool { return strings.HasPrefix(bad, promise) }

// life adds the steps of the task that an add has made.
func (w *outboxWorld) life(s *outboxes, h int) {
	to := func(stage taskStage, what string) {
		w.emit(s, nobody, what+" "+w.names[h], true, func(t *outboxes) string { t.rows[h].task = stage; return "" })
	}
	switch task := s.rows[h].task; {
	case w.calm:
	case task == waiting:
		w.emit(s, nobody, "a node delivers "+w.names[h], true, func(t *outboxes) string {
			t.rows[h].task = inDelivery
			return w.delivered(t, h)
		})
	case task == inDelivery:
		to(isDone, "the delivery ends well:")
		to(waiting, "the delivery fails, and is tried again:")
	case task == isDone:
		to(isPurged, "purge deletes the task of")
	}
}

// delivered checks the start of a delivery.
func (w *outboxWorld) delivered(s *outboxes, h int) string {
	for k := int(s.rows[h].last) + 1; k < len(w.wishes); k++ {
		if w.wishes[k].biz == w.wishes[h].biz && w.wishes[k].op == cancel && s.rows[k].moved {
			return unwanted + ": " + w.names[h] + " is delivered, though " + w.names[k] + " was moved before"
		}
	}
	return ""
}

// apply lets a row have its effect, in one transaction with the ledger's row. busy reports that a delivery is under way:
// then the ledger does not keep the row.
func (w *outboxWorld) apply(s *outboxes, h int) (busy bool, bad string) {
	row := &s.rows[h]
	if bad := w.order(s, h); bad != "" {
		return false, bad
	}
	if w.wishes[h].op == add {
		bad = w.store(s, h)
	} else {
		busy, bad = w.change(s, h)
	}
	if busy && !w.off[AfterDelivery] {
		return true, bad
	}
	row.moved = true
	if !w.off[Ledger] {
		row.ledger = stands
	}
	return false, bad
}

// order checks what may be moved now.
func (w *outboxWorld) order(s *outboxes, h int) string {
	switch s.rows[h].stage {
	case open, undone:
		return ghost + ": " + w.names[h] + " is moved, and its transaction has not committed"
	case dropped:
		return unwanted + ": " + w.names[h] + " is moved, though an operator dropped it"
	}
	for k := range h {
		earlier := &s.rows[k]
		adds := w.wishes[k].op == add && w.wishes[h].op == add
		if w.wishes[k].biz == w.wishes[h].biz && !adds && !earlier.moved && earlier.stage != undone && earlier.stage != dropped {
			return disorder + ": " + w.names[h] + " is moved before " + w.names[k]
		}
	}
	return ""
}

// store adds a task, unless there is one with the dedup_key.
func (w *outboxWorld) store(s *outboxes, h int) string {
	for k := range w.wishes {
		if task := s.rows[k].task; w.dedup && w.wishes[k].biz == w.wishes[h].biz && task >= waiting && task <= isDone {
			s.rows[k].last = max(s.rows[k].last, uint8(h))
			return ""
		}
	}
	row := &s.rows[h]
	before := row.task
	row.task, row.last = waiting, uint8(h)
	switch {
	case !row.moved:
		return ""
	case before == isPurged:
		return twice + ": " + w.names[h] + " was done and purged, and comes to life again"
	case before == isCancelled:
		return twice + ": " + w.names[h] + " was cancelled, and comes to life again"
	}
	return twice + ": " + w.names[h] + " is stored a second time"
}

// change cancels or reschedules what is pending. busy: a delivery is under way.
func (w *outboxWorld) change(s *outboxes, h int) (busy bool, bad string) {
	for k := range w.wishes {
		row := &s.rows[k]
		if w.wishes[k].biz != w.wishes[h].biz {
			continue
		}
		busy = busy || row.task == inDelivery
		if row.task != waiting {
			continue
		}
		if w.wishes[h].op == cancel {
			row.task = isCancelled
		}
		if int(row.last) > h {
			bad = lost + ": " + w.names[row.last] + " is undone by " + w.names[h] + ", which came before it"
		}
	}
	return busy, bad
}
