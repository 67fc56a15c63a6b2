package dispatcher

import "github.com/tocsinhq/tocsin"

// ready holds the loaded rows of a lane until a slot is free. Rows of a batch type
// that were delivered before stand apart. A batch that failed or panicked as a whole
// does not show which task was to blame, so none of its tasks joins a batch with
// others at once. The row's attempts and crashes show that it was delivered; they
// outlive the process. The zero value is empty.
type ready struct {
	fresh fifo
	again fifo
	turn  bool // the next rows come from again, if both have rows
}

func (q *ready) len() int { return q.fresh.len() + q.again.len() }

// push adds rows; with apart, those that were delivered before stand apart.
func (q *ready) push(tasks []*task, apart bool) {
	if !apart {
		q.fresh.push(tasks)
		return
	}
	for _, t := range tasks {
		if t.again() {
			q.again.push([]*task{t})
		} else {
			q.fresh.push([]*task{t})
		}
	}
}

// pop appends the rows of one delivery to into, at most most, and returns the delivery's capacity
// as slot. together is how many rows that stand apart may share one delivery.
func (q *ready) pop(r *rule, most, together int, into []*task) (popped []*task, slot int) {
	q.turn = !q.turn
	if q.again.len() == 0 || q.fresh.len() > 0 && !q.turn {
		return q.fresh.pop(most, into), r.batch
	}
	n := 1
	for !q.again.at(0).alone(r) && n < min(most, together, q.again.len()) && !q.again.at(n).alone(r) {
		n++
	}
	return q.again.pop(n, into), together
}

// remove appends the rows that match to taken and keeps the others in order.
func (q *ready) remove(match func(*task) bool, taken []*task) []*task {
	return q.again.remove(match, q.fresh.remove(match, taken))
}

// again reports whether the row was delivered before.
func (t *task) again() bool { return t.row.Attempts > 0 || t.row.Crashes > 0 }

// alone reports whether a row that was delivered before must be delivered by itself,
// however its like fare: it has crashed a process, or is in the second half of its
// attempts. So no task dies of its neighbours' failures.
func (t *task) alone(r *rule) bool {
	return t.row.Crashes > 0 || t.row.Attempts >= r.policy.Attempts/2
}

// together returns how many rows that were delivered before may share a delivery. It
// is one until as many retries as a batch holds have succeeded in a row, and then
// grows by one for each further success. After an outage of the target that soon
// returns to whole batches, while a task that makes its batches fail keeps the others
// apart. Called under k.mu.
func (k *kind) together(r *rule) int { return min(max(k.proven-r.batch, 1), r.batch) }

// deliveries returns how many slots the ready rows may need. Called under k.mu.
func (k *kind) deliveries(r *rule) int {
	again := 0
	for _, l := range k.lanes {
		again += l.ready.again.len()
	}
	return (k.waiting-again+r.batch-1)/r.batch + again
}

// learn notes how a delivery of rows that stood apart ended. It failed if each of its
// tasks has to be retried.
func (k *kind) learn(a attempt, replies []reply) {
	if a.rule.batch == 1 || !a.tasks[0].again() {
		return
	}
	failed := 0
	for _, reply := range replies {
		if reply.verb == tocsin.Retried {
			failed++
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if failed == len(replies) {
		k.proven = 0
	} else {
		k.proven = min(k.proven+len(replies)-failed, 2*a.rule.batch)
	}
}
