package model

import (
	"fmt"
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

// search is a breadth-first walk over all states of a cast.
type search struct {
	machine
	index  map[state]int32
	states []state
	parent []int32
	into   []edge // steps of progress
	steps  int
}

type edge struct{ from, to int32 }

// run walks all states, at most bound of them, and stops at the first step that breaks a promise. When there is none, it
// checks that from every state a final one can be reached by progress alone: without the user, without further faults,
// and with every frozen process frozen for good.
func run(cast *Cast, rs *rules, bound int) (Result, error) {
	s := &search{machine: machine{cast: cast, rules: rs}, index: make(map[state]int32, 1<<16)}
	s.add(cast.start(), -1)
	for at := int32(0); int(at) < len(s.states); at++ {
		if len(s.states) > bound {
			return s.result(nil), fmt.Errorf("cast %s: more than %d states", cast.Name, bound)
		}
		if f := s.expand(at); f != nil {
			return s.result(f), nil
		}
	}
	return s.result(s.stuck()), nil
}

func (s *search) result(f *Finding) Result {
	return Result{States: len(s.states), Steps: s.steps, Finding: f}
}

// add gives the number of a state, a new one if it was not seen.
func (s *search) add(st state, parent int32) int32 {
	if at, seen := s.index[st]; seen {
		return at
	}
	at := int32(len(s.states))
	s.index[st] = at
	s.states = append(s.states, st)
	s.parent = append(s.parent, parent)
	return at
}

// expand adds what follows a state.
func (s *search) expand(at int32) *Finding {
	from := s.states[at]
	for _, mv := range s.moves(&from) {
		s.steps++
		if mv.bad != "" {
			return &Finding{Promise: mv.bad, Trace: append(s.trace(at), s.line(&mv))}
		}
		to := s.add(mv.to, at)
		if mv.progress && to != at {
			s.into = append(s.into, edge{at, to})
		}
	}
	return nil
}

// stuck finds the first state from which progress leads to no final state.
func (s *search) stuck() *Finding {
	alive := s.alive()
	for at := range s.states {
		if !alive[at] {
			trace := append(s.trace(int32(at)), "and then no step leads to a final state")
			return &Finding{Promise: fmt.Sprintf("LOST: the row stays %s for ever", s.states[at].row.status), Trace: trace}
		}
	}
	return nil
}

// alive marks the states from which a final one is reached, walking backwards.
func (s *search) alive() []bool {
	first, from := s.backwards()
	alive := make([]bool, len(s.states))
	var todo []int32
	for at := range s.states {
		if s.states[at].row.status.final() {
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
func (s *search) backwards() (first, from []int32) {
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

// trace is how the search came to a state.
func (s *search) trace(at int32) []string {
	if s.parent[at] < 0 {
		return []string{"the task: " + s.states[at].row.String()}
	}
	before := s.states[s.parent[at]]
	lines := s.trace(s.parent[at])
	for _, mv := range s.moves(&before) {
		if mv.to == s.states[at] {
			return append(lines, s.line(&mv))
		}
	}
	return append(lines, "?")
}

func (s *search) line(mv *move) string {
	return fmt.Sprintf("%-60s %s", s.cast.name(mv.who)+mv.what, mv.to.row.String())
}
