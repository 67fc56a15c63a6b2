package dispatcher

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
)

// class is a priority as a number.
type class int

const (
	high class = iota
	normal
	low
)

func classOf(p tocsin.Priority) class {
	switch p {
	case tocsin.High:
		return high
	case tocsin.Low:
		return low
	}
	return normal
}

// yields make biz types give way to those of a higher priority in this process. All share the servers' statements, the
// loaders and the processor, so a backlog that is loaded at full speed makes other rows late. While rows of a class begin, the
// classes below it may load no more rows a second than leaves those rows on time: less after a while in which one was late,
// more after one in which none was, as TCP finds its rate (AIMD). Every class goes on with yieldLeast rows a second. Safe
// for concurrent use.
type yields struct {
	mixed atomic.Bool // there are biz types of several priorities; else nothing is noted

	mu    sync.Mutex
	below [low]yield // by the class that others give way to
}

// yield is what the classes below one may load. The zero value lets them load anything.
type yield struct {
	seen   time.Time // when a row of the class last began
	rate   float64   // rows a second
	tokens float64   // rows that may be loaded now, as of filled
	filled time.Time
	window time.Time // begin of the while that is judged
	late   bool      // a row of the class began late in it
	wanted bool      // a lower class could have loaded more in it
}

// began notes that a row of the class began, and how late it was.
func (y *yields) began(c class, late time.Duration, now time.Time) {
	if c == low || !y.mixed.Load() {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	b := &y.below[c]
	if b.rate == 0 {
		b.rate = yieldFirst
	}
	if now.Sub(b.seen) > yieldAfter { // what was loaded while nobody gave way is no debt
		b.tokens, b.filled, b.window, b.late, b.wanted = 0, now, now, false, false
	}
	b.seen = now
	b.late = b.late || late > yieldLate
	if now.Sub(b.window) < yieldWindow {
		return
	}
	switch {
	case b.late:
		b.rate = max(b.rate*yieldLess, yieldLeast)
	case b.wanted:
		b.rate = min(b.rate*yieldMore, yieldMost)
	}
	b.window, b.late, b.wanted = now, false, false
}

// most returns how many of the wanted rows the class may load.
func (y *yields) most(c class, wanted int, now time.Time) int {
	if wanted == 0 || c == high || !y.mixed.Load() {
		return wanted
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	for i := range c {
		b := &y.below[i]
		if now.Sub(b.seen) > yieldAfter {
			continue
		}
		b.tokens = min(b.tokens+b.rate*now.Sub(b.filled).Seconds(), max(b.rate*yieldWindow.Seconds()/4, 1))
		b.filled = now
		if n := int(b.tokens); n < wanted {
			wanted, b.wanted = n, true
		}
	}
	return wanted
}

// load notes that the class loads rows.
func (y *yields) load(c class, rows int) {
	if rows == 0 || c == high || !y.mixed.Load() {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	for i := range c {
		y.below[i].tokens -= float64(rows)
	}
}

// gives reports whether the class gives way to another now.
func (y *yields) gives(c class, now time.Time) bool {
	if !y.mixed.Load() {
		return false
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	for i := range c {
		if now.Sub(y.below[i].seen) <= yieldAfter {
			return true
		}
	}
	return false
}

// to returns how many rows a second those who give way to the class may load; 0: nobody gives way to it.
func (y *yields) to(c class, now time.Time) float64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	if now.Sub(y.below[c].seen) > yieldAfter {
		return 0
	}
	return y.below[c].rate
}

// inTurn returns the lanes in the order in which they are looked at: by priority, and those of one in turn. Every eighth time
// the order is the other way round, so that a class with more than a load can take holds up none for ever. Called under s.mu.
func (s *server) inTurn() []*lane {
	var by [low + 1][]*lane
	for i := range s.order {
		l := s.order[(s.next+i)%len(s.order)]
		c := l.kind.rule.Load().class
		by[c] = append(by[c], l)
	}
	s.next++
	if s.next%8 == 0 {
		by[high], by[low] = by[low], by[high]
	}
	return append(append(by[high], by[normal]...), by[low]...)
}
