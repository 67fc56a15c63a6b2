package model

import (
	"fmt"
	"slices"
	"strings"
)

// Finding is a broken promise with the shortest history that leads to it.
type Finding struct {
	Promise string
	Trace   []string // a line per step
}

// String gives the trace, a line per step, and the promise.
func (f *Finding) String() string { return strings.Join(f.Trace, "\n") + "\n=> " + f.Promise }

// Result is what a search found.
type Result struct {
	States, Steps int
	Finding       *Finding // nil: every promise holds
}

// world is the searched system; its states are S.
type world[S comparable] interface {
	start() S
	moves(*S) []step[S]   // every step from a state; the slice may be reused by the next call
	sort(*S)              // puts actors that may change places in one order: states that differ in it alone are one
	settled(*S) bool      // whether this is a state that progress must be able to reach from everywhere
	stuck(*S) string      // the promise that is broken if progress can't reach a settled state
	line(*step[S]) string // text of a step in a trace
	first(*S) string      // text of its start
	String() string       // name
}

// search is a breadth-first walk over all states of a world.
type search[S comparable] struct {
	world  world[S]
	index  map[S]int32
	states []S
	parent []int32
	into   []edge // steps of progress
	steps  int
}

type edge struct{ from, to int32 }

// walk walks all states of a world, at most bound of them, and stops at the first step that breaks a promise. If there
// is none, it checks that progress alone leads from every state to a settled one: without the user, without further
// faults, and with every frozen process frozen for good.
func walk[S comparable](w world[S], bound int) (Result, error) {
	s := &search[S]{world: w, index: make(map[S]int32)}
	first := w.start()
	s.add(&first, -1)
	for at := int32(0); int(at) < len(s.states); at++ {
		if len(s.states) > bound {
			return s.result(nil), fmt.Errorf("%s: more than %d states", w, bound)
		}
		if f := s.expand(at); f != nil {
			return s.result(f), nil
		}
	}
	return s.result(s.dead()), nil
}

func (s *search[S]) result(f *Finding) Result {
	return Result{States: len(s.states), Steps: s.steps, Finding: f}
}

// add sorts a state and gives its number, a new one if it was not seen.
func (s *search[S]) add(st *S, parent int32) int32 {
	s.world.sort(st)
	if at, seen := s.index[*st]; seen {
		return at
	}
	at := int32(len(s.states))
	s.index[*st] = at
	s.states = append(s.states, *st)
	s.parent = append(s.parent, parent)
	return at
}

// expand adds what follows a state.
func (s *search[S]) expand(at int32) *Finding {
	from := s.states[at]
	moves := s.world.moves(&from)
	for i := range moves {
		s.steps++
		mv := &moves[i]
		if mv.bad != "" {
			return s.broken(at)
		}
		to := s.add(&mv.to, at)
		if mv.progress && to != at {
			s.into = append(s.into, edge{at, to})
		}
	}
	return nil
}

// broken shows the first step from a state that breaks a promise.
func (s *search[S]) broken(at int32) *Finding {
	trace, last := s.trace(at)
	moves := s.world.moves(&last)
	bad := &moves[slices.IndexFunc(moves, func(mv step[S]) bool { return mv.bad != "" })]
	return &Finding{Promise: bad.bad, Trace: append(trace, s.world.line(bad))}
}

// dead finds the first state from which progress leads to no settled one.
func (s *search[S]) dead() *Finding {
	alive := s.alive()
	for at := range s.states {
		if !alive[at] {
			trace, last := s.trace(int32(at))
			return &Finding{Promise: s.world.stuck(&last), Trace: append(trace, "and then no step leads out")}
		}
	}
	return nil
}

// alive marks the states from which a settled one is reached, walking backwards.
func (s *search[S]) alive() []bool {
	first, from := s.backwards()
	alive := make([]bool, len(s.states))
	var todo []int32
	for at := range s.states {
		if s.world.settled(&s.states[at]) {
			alive[at] = true
			todo = append(todo, int32(at))
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, f := range from[first[at]:first[at+1]] {
			if !alive[f] {
				alive[f] = true
				todo = append(todo, f)
			}
		}
	}
	return alive
}

// backwards sorts the steps of progress by where they lead: those into state n are from[first[n]:first[n+1]].
func (s *search[S]) backwards() (first, from []int32) {
	first = make([]int32, len(s.states)+2)
	for _, e := range s.into {
		first[e.to+2]++
	}
	for i := 1; i < len(first); i++ {
		first[i] += first[i-1]
	}
	from = make([]int32, len(s.into))
	for _, e := range s.into {
		from[first[e.to+1]] = e.from
		first[e.to+1]++
	}
	return first[:len(s.states)+1], from
}

// trace is how the search came to a state, and the state, with every actor in its own place.
func (s *search[S]) trace(at int32) (lines []string, last S) {
	if s.parent[at] < 0 {
		last = s.world.start()
		return []string{s.world.first(&last)}, last
	}
	lines, last = s.trace(s.parent[at])
	for _, mv := range s.world.moves(&last) {
		sorted := mv.to
		s.world.sort(&sorted)
		if sorted == s.states[at] {
			return append(lines, s.world.line(&mv)), mv.to
		}
	}
	return append(lines, "?"), s.states[at]
}

// settled reports whether the row is final.
func (m *machine) settled(s *state) bool { return s.row.status.final() }

func (m *machine) stuck(s *state) string {
	return fmt.Sprintf("LOST: the row stays %s for ever", s.row.status)
}

func (m *machine) first(s *state) string { return "the task: " + s.row.String() }

func (m *machine) line(mv *move) string {
	return fmt.Sprintf("%-60s %s", m.cast.name(mv.who)+mv.what, mv.to.row.String())
}

// String names the cast.
func (m *machine) String() string { return m.cast.Name }
