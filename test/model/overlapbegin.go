package model

// courier is what a process does next.
func (w *overlapWorld) courier(s *overlaps, i int) {
	c := &s.couriers[i]
	run := runNames[c.run]
	switch c.stage {
	case atRestNow:
		for n := range w.runs {
			if r := &s.runs[n]; r.stage == runPending && r.due && !r.far && !s.inHand(i, n) {
				w.emit(s, i, "reads "+runNames[n], true, func(t *overlaps) string { w.reads(t, i, n); return "" })
			}
		}
	case looked:
		w.emit(s, i, "begins "+run, true, func(t *overlaps) string { return w.begins(t, i) })
	case admitted:
		if !c.excused || w.off[ClaimHolds] {
			w.emit(s, i, "calls the handler of "+run, true, func(t *overlaps) string { return w.calls(t, i) })
		}
		w.emit(s, i, "can't call the handler of "+run+" in time", c.excused, func(t *overlaps) string {
			c := &t.couriers[i]
			c.stage, c.outcome = settling, notCalled
			if w.off[CallCounts] {
				c.outcome = failedOnce
			}
			return ""
		})
	case handling:
		w.emit(s, i, run+" succeeds", true, func(t *overlaps) string { t.couriers[i].stage, t.couriers[i].outcome = settling, succeeded; return "" })
		if s.left.fails > 0 {
			w.emit(s, i, run+" fails", false, func(t *overlaps) string {
				t.left.fails--
				t.couriers[i].stage, t.couriers[i].outcome = settling, failedOnce
				return ""
			})
		}
		if s.left.overtimes > 0 {
			w.emit(s, i, run+" is over its time-out", false, func(t *overlaps) string {
				t.left.overtimes--
				c := &t.couriers[i]
				if c.stage = overtime; w.off[StaysOpen] {
					c.stage, c.outcome, c.goesOn = settling, failedOnce, true
				}
				return ""
			})
		}
	case overtime:
		w.emit(s, i, run+" returns late", true, func(t *overlaps) string { t.couriers[i].stage, t.couriers[i].outcome = settling, failedOnce; return "" })
	case settling:
		w.emit(s, i, "settles "+run, true, func(t *overlaps) string { return w.settles(t, i) })
	}
	if c.goesOn && c.stage == atRestNow {
		w.emit(s, i, "the handler of "+run+" returns", true, func(t *overlaps) string { t.couriers[i].goesOn = false; return "" })
	}
}

// inHand reports whether a process has a run in hand already: its queue knows.
func (s *overlaps) inHand(i, n int) bool { return s.couriers[i].goesOn && int(s.couriers[i].run) == n }

// reads reads a row, without a lock.
func (w *overlapWorld) reads(s *overlaps, i, n int) {
	c := &s.couriers[i]
	r := &s.runs[n]
	goesOn := c.goesOn
	*c = courier{stage: looked, run: uint8(n), same: true, begun: r.begun, late: w.off[MissedThen] && r.late, goesOn: goesOn, free: w.off[AtOnce] && !w.meets(s, n, nil)}
}

// meets reports whether a run has to stand back for others, which it calls each with.
func (w *overlapWorld) meets(s *overlaps, n int, each func(int)) (some bool) {
	for i := range w.runs {
		r := &s.runs[i]
		missed := r.stage == runPending && r.late && !r.begun && !w.off[MissedAside]
		open := r.due && r.stage == runPending && !missed || r.stage == runClaimed
		if i == n || !open || i > n && (r.stage != runClaimed || w.off[AnyClaim]) {
			continue
		}
		some = true
		if each != nil && i < n {
			each(i)
		}
	}
	return some
}

// begins is the transaction by which a run is claimed, or not.
func (w *overlapWorld) begins(s *overlaps, i int) string {
	c := &s.couriers[i]
	n := int(c.run)
	r := &s.runs[n]
	if !c.same || r.stage != runPending || r.far {
		*c = courier{goesOn: c.goesOn, run: c.run}
		return ""
	}
	seen := *c
	*c = courier{goesOn: c.goesOn, run: c.run}
	s.changed(n)
	late, first := r.late, !r.begun
	if w.off[MissedThen] {
		late = seen.late
	}
	if w.off[JudgedAgain] && r.putOff {
		late = false
	}
	hand := w.byHand.has(n)
	switch met := w.looks(s, &seen, n, r); {
	case s.edited && !hand && !first:
		r.stage = runReplaced
	case late && first && !hand:
		r.stage = runMissed
	case met && w.policy == Replaces && !hand && first && !w.later(s, n):
		w.meets(s, n, func(i int) {
			if r := &s.runs[i]; !w.byHand.has(i) || r.stage != runPending || r.begun { // one by hand that has not begun waits on
				s.cancels(i)
			}
		})
		return w.claims(s, i)
	case met && w.policy == Skips && !hand && (first || w.off[RetryWaits]) && !w.later(s, n):
		r.stage = runSkipped
		if !w.beside(s, n) {
			return "SKIPPED beside no open run"
		}
		if !first {
			return "SKIPPED after it had begun"
		}
	case met:
		r.far = true
	default:
		return w.claims(s, i)
	}
	return ""
}

// looks is meets as the process sees it.
func (w *overlapWorld) looks(s *overlaps, c *courier, n int, r *openRun) bool {
	switch {
	case w.off[EveryAttempt] && r.begun:
		return false
	case w.off[AtOnce]:
		return !c.free
	}
	return w.meets(s, n, nil)
}

// later reports whether a later run is in delivery: that one is neither replaced nor a reason to skip.
func (w *overlapWorld) later(s *overlaps, n int) bool {
	for i := n + 1; i < w.runs && !w.off[AnyClaim]; i++ {
		if s.runs[i].stage == runClaimed {
			return true
		}
	}
	return false
}

// beside reports whether an earlier run is open.
func (w *overlapWorld) beside(s *overlaps, n int) (some bool) {
	for i := range n {
		r := &s.runs[i]
		some = some || r.stage == runClaimed || r.stage == runPending && (!r.late || r.begun)
	}
	return some
}

// cancels ends a run that a later one replaces, in delivery or not.
func (s *overlaps) cancels(n int) {
	if c := s.holder(n); c != nil {
		c.mine, c.excused = false, true
	}
	s.runs[n].stage = runReplaced
	s.changed(n)
}

func (w *overlapWorld) claims(s *overlaps, i int) string {
	c := &s.couriers[i]
	r := &s.runs[c.run]
	if r.late && !r.begun {
		return "LATE: a missed run begins"
	}
	r.stage, r.putOff = runClaimed, false
	c.stage, c.mine = admitted, true
	return ""
}

// calls calls the handler.
func (w *overlapWorld) calls(s *overlaps, i int) string {
	c := &s.couriers[i]
	if c.excused && s.runs[c.run].stage != runReplaced {
		return "BEHIND a claim that ran out a handler begins"
	}
	c.stage, c.ran = handling, true
	for other := range s.couriers {
		if o := &s.couriers[other]; (other != i || o.goesOn) && o.hasHandler() && !o.excused {
			return "TWO runs are in delivery at once"
		}
	}
	return ""
}

// settles stores an outcome, if the row is as it was claimed. Whoever closes a run has the one that waits look again.
func (w *overlapWorld) settles(s *overlaps, i int) string {
	c := &s.couriers[i]
	r := &s.runs[c.run]
	ran, goesOn := c.ran, c.goesOn
	if c.mine || w.off[OwnClaim] && r.stage == runClaimed {
		if o := s.holder(int(c.run)); o != nil {
			o.mine = false
		}
		s.changed(int(c.run))
		switch c.outcome {
		case succeeded:
			r.stage = runDone
		case notCalled:
			r.stage, r.putOff = runPending, true
		case failedOnce:
			r.attempts++
			if r.stage, r.begun = runPending, true; r.attempts > 1 {
				r.stage = runDead
			}
		}
		if r.final() {
			w.forward(s)
		}
	}
	failed := c.outcome == failedOnce
	*c = courier{run: c.run, goesOn: goesOn, excused: c.excused && goesOn}
	if !goesOn {
		c.run = 0
	}
	if failed && !ran {
		return "COUNTED: an attempt without a handler"
	}
	return ""
}

// forward has the first run that waits look at once.
func (w *overlapWorld) forward(s *overlaps) {
	for i := range w.runs {
		if r := &s.runs[i]; r.stage == runPending && r.due && r.far {
			r.far = false
			return
		}
	}
}
