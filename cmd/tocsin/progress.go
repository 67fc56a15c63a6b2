package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// plainEvery is how often progress is a line where no bar can be drawn.
const plainEvery = 3 * time.Second

// progress shows on standard error how far long work has come: a bar on a
// terminal, now and then a line elsewhere, nothing with --json. Its methods are
// for one goroutine at a time.
type progress struct {
	to   io.Writer
	verb string
	unit string
	bar  *progressbar.ProgressBar // nil: lines
	line time.Time                // when the last line was due; zero with --json
}

// progress begins the progress of, for instance, "create" "tables".
func (a *app) progress(verb, unit string) *progress {
	p := &progress{to: a.err, verb: verb, unit: unit}
	switch {
	case a.interactive():
		p.bar = progressbar.NewOptions(1,
			progressbar.OptionSetWriter(a.err.file),
			progressbar.OptionSetDescription(verb+" "+unit),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(50*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	case !a.json:
		p.line = time.Now()
	}
	return p
}

// report says that done of total are done.
func (p *progress) report(done, total int) {
	switch {
	case p.bar != nil:
		p.bar.ChangeMax(max(total, 1))
		_ = p.bar.Set(done) // fails where done is over total: then there is no more to show
	case !p.line.IsZero() && time.Since(p.line) >= plainEvery:
		p.line = time.Now()
		fmt.Fprintf(p.to, "%s %s: %d of %d\n", p.verb, p.unit, done, total)
	}
}

// end clears the bar, so that what follows begins a line.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}

// tableProgress adds up tables of several servers. Safe for concurrent use.
type tableProgress struct {
	total int

	mu   sync.Mutex
	done int
	show *progress
}

func (a *app) tableProgress(verb string, total int) *tableProgress {
	return &tableProgress{total: total, show: a.progress(verb, "tables")}
}

// add counts tables. It may be called concurrently.
func (t *tableProgress) add(tables int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += tables
	t.show.report(t.done, t.total)
}

func (t *tableProgress) end() { t.show.end() }
