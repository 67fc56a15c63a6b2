package dispatcher

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// A pull type has no target that is called: workers ask for its tasks. Its lanes have demand only for what those who wait
// have asked for (Target.Demand). Each row is claimed for the time of a lease, and a delivery hands the tasks to workers. After that the
// dispatcher knows the row no more: the worker tells any node how the task ended, and that node settles it.

// ErrLeased is a Sink's error for a task that a worker has. The claim stands until the worker settles it, or it runs out.
var ErrLeased = errors.New("a worker has the task")

// ErrUntaken is a Sink's error for a task that no worker took. No attempt is counted.
var ErrUntaken = errors.New("no worker took the task")

// handOver is how much of its lease may pass until a worker has the task.
const handOver = 2 * time.Second

// claimer is who claims rows now.
func (s *server) claimer(r *rule) string {
	if r.pulled() {
		return store.NewLease(s.estimate())
	}
	return s.d.cfg.Node
}

// wanted is how many rows a lane may hold for workers that wait, of those that its kind does not have in hand already. Called under k.mu.
func (k *kind) wanted(r *rule, l *lane) int {
	return max(r.demand()-k.inDelivery-(k.waiting-l.ready.len()), 0)
}

// handOver lets go of the tasks of an attempt that workers have, returns those that none took to where they came from, and keeps the others.
func (k *kind) handOver(a attempt, replies []reply) (attempt, []reply) {
	if !a.rule.pulled() {
		return a, replies
	}
	var leased, untaken, kept []*task
	var theirs []reply
	for i, t := range a.tasks {
		switch {
		case replies[i].leased:
			leased = append(leased, t)
		case replies[i].untaken:
			untaken = append(untaken, t)
		default:
			kept, theirs = append(kept, t), append(theirs, replies[i])
		}
	}
	a.server().leased(leased)
	if len(untaken) > 0 {
		k.notStarted(len(untaken))
		a.server().notBegun(untaken, 0)
	}
	a.tasks = kept
	return a, theirs
}

// leased forgets tasks that workers have, and says when their claims run out.
func (s *server) leased(tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	now, first, tables := s.estimate(), tasks[0].row.Action, make([]int, len(tasks))
	s.mu.Lock()
	for i, t := range tasks {
		tables[i], first = t.table(), min(first, t.row.Action)
		s.open.remove(t)
		t.acquit()
		t.lane.queue.Done(t.row.JobID)
	}
	woken := s.roomAgain()
	s.tellWaiters()
	s.mu.Unlock()
	if woken {
		s.d.cfg.Woken(s.index)
	}
	s.d.cfg.Leased(s.index, tables, time.Now().Add(time.Duration(first-now)*time.Millisecond+store.RecoverAfter))
}

// Ask has the lanes of a biz type look at their demand, since a worker waits now.
func (d *Dispatcher) Ask(bizType uint64) {
	d.mu.Lock()
	k := d.kinds[bizType]
	d.mu.Unlock()
	if k != nil {
		k.wakeServers()
	}
}

// EndingOf is what an answer, which is nil or an error as a handler returns it, means for a row that is in delivery at now: the verb, and
// for those that have one the next action time and the reason.
func EndingOf(p biztype.Policy, row *store.Row, answer error, now int64) store.Outcome {
	end := endingOf(p, row, replyOf(answer), now, rand.Float64)
	return store.Outcome{
		JobID: row.JobID, Verb: end.verb, Version: row.Version, Attempts: row.Attempts, Claimed: true, By: row.ClaimedBy,
		Action: row.Action, Prolonged: true, Next: end.next, Reason: end.reason,
	}
}
