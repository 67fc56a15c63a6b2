package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// request is what a worker asked of a node, and its answer.
type request struct {
	Worker  string // the process
	ID      string // of the request, in its process
	Path    string // reserve, settle or extend
	Node    int
	Asks    bool      // for tasks
	Sent    time.Time // written before it is sent
	Back    time.Time // zero: there was no answer, and no end of the waiting for it
	Err     string    // why there is no answer
	Ends    []ending
	Leases  []string // to be extended
	Results []became
	Tasks   int // that came
}

// ending is how a worker ends a lease.
type ending struct {
	Lease   string `json:"lease"`
	Do      string `json:"do"`
	Error   string `json:"error,omitempty"`
	DelayMS int    `json:"delay_ms,omitempty"`
}

// The endings, and what may become of them.
const (
	endComplete = "complete"
	endRetry    = "retry"
	endSnooze   = "snooze"
	endRelease  = "release"
	endBury     = "bury"

	isDone    = "done"
	isAlready = "already"
)

// became is what an answer says of one lease.
type became struct {
	Lease   string          `json:"lease"`
	Result  string          `json:"result,omitempty"`
	Problem json.RawMessage `json:"problem,omitempty"`
}

// left are the ends of which nothing is known.
func (r *request) left() (ends []ending) {
	known := map[string]bool{}
	for _, b := range r.Results {
		known[b.Lease] = b.Problem == nil
	}
	for _, e := range r.Ends {
		if !known[e.Lease] {
			ends = append(ends, e)
		}
	}
	return ends
}

// broke reports whether the request brought no answer.
func (r request) broke() bool { return r.Back.IsZero() || r.Err != "" }

// end is when the request was over at the latest, whatever became of its worker.
func (r request) end() time.Time {
	if r.Back.IsZero() {
		return r.Sent.Add(pollFor + answerIn)
	}
	return r.Back
}

// during reports whether the request was under way at some time of a span.
func (r request) during(from, to time.Time) bool {
	return !r.Sent.After(to) && !r.end().Before(from)
}

// requestsSuffix ends the names of the files in which workers note requests, as JSON, a line before and a line after each.
const requestsSuffix = ".requests"

// readRequests reads all requests below a folder, each as it was noted last. A last line without an end was never finished.
func readRequests(dir string) (all []request, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+requestsSuffix))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		at := map[string]int{}
		for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
			var r request
			if err := json.Unmarshal(line, &r); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if i, seen := at[r.ID]; seen {
				all[i] = r
				continue
			}
			at[r.ID] = len(all)
			all = append(all, r)
		}
	}
	return all, nil
}

// aim is the file that names the one node that all workers are to ask.
func (s *Site) aim() string { return filepath.Join(s.opts.Dir, "workers.aim") }

// moveWorkers has all workers ask one node.
func (s *Site) moveWorkers(node int) (undo, error) {
	return func(context.Context) error { return os.Remove(s.aim()) }, os.WriteFile(s.aim(), []byte(strconv.Itoa(node)), 0o600)
}
