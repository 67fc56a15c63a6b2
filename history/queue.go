package history

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/store"
)

// perRun is how many bytes a run counts besides its output.
const perRun = 160

func cost(r *store.Run) int { return perRun + len(r.Output) }

// queue holds the runs of one server that wait to be written.
type queue struct {
	limit int           // bytes
	more  chan struct{} // 1 slot: there are more runs than before

	mu    sync.Mutex
	runs  []*store.Run
	bytes int // of runs
}

func newQueue(limit int) *queue { return &queue{limit: limit, more: make(chan struct{}, 1)} }

// put queues runs while there is room, and returns the number that did not fit.
func (q *queue) put(runs []*store.Run) (refused int) {
	q.mu.Lock()
	for i := range runs {
		if q.bytes+cost(runs[i]) > q.limit {
			refused = len(runs) - i
			break
		}
		q.bytes += cost(runs[i])
		q.runs = append(q.runs, runs[i])
	}
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
	return refused
}

func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// plenty reports whether a whole batch waits.
func (q *queue) plenty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.runs) >= batchRuns || q.bytes >= batchBytes
}

// next waits for the first run, then for a short time for a whole batch. Once ctx has ended it returns what is left
// without waiting; an empty result means that nothing is left.
func (q *queue) next(ctx context.Context) []*store.Run {
	for q.size() == 0 {
		select {
		case <-ctx.Done():
			return q.take()
		case <-q.more:
		}
	}
	enough := time.NewTimer(linger)
	defer enough.Stop()
	for !q.plenty() {
		select {
		case <-ctx.Done():
			return q.take()
		case <-enough.C:
			return q.take()
		case <-q.more:
		}
	}
	return q.take()
}

// take removes the runs of one batch.
func (q *queue) take() []*store.Run {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, bytes := 0, 0
	for n < len(q.runs) && n < batchRuns && (n == 0 || bytes+cost(q.runs[n]) <= batchBytes) {
		bytes += cost(q.runs[n])
		n++
	}
	batch := slices.Clone(q.runs[:n])
	rest := copy(q.runs, q.runs[n:])
	clear(q.runs[rest:])
	q.runs, q.bytes = q.runs[:rest], q.bytes-bytes
	return batch
}
