package main

import "sync"

// stages shows the progress of work that has several, one after the other. Safe
// for concurrent use.
type stages struct {
	app   *app
	units map[string]string // by stage: what it counts

	mu    sync.Mutex
	stage string
	shown *progress // of the stage; nil between stages
}

func newStages(a *app, units map[string]string) *stages { return &stages{app: a, units: units} }

// progress shows how far a stage is; another stage ends the one before.
func (s *stages) progress(stage string, done, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown == nil || stage != s.stage {
		s.close()
		s.stage, s.shown = stage, s.app.progress(stage, s.units[stage])
	}
	s.shown.report(done, total)
}

// end ends the last stage, so that what follows begins a line.
func (s *stages) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
}

func (s *stages) close() {
	if s.shown != nil {
		s.shown.end()
		s.shown = nil
	}
}
