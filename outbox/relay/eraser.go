package relay

import (
	"context"
	"time"

	"github.com/tocsinhq/tocsin/outbox"
)

// eraser deletes rows that were moved, over a session of its own while the turn reads. One delete is under way at a time.
// Its goroutine owns the session; the turn owns the other fields.
type eraser struct {
	session *outbox.Session // nil: none is open
	used    time.Time       // when it was used last
	busy    bool
	ended   chan erased
}

// erased is a delete that has ended.
type erased struct {
	keys []outbox.Key
	err  error
}

// idleFor is how long a session may be unused: before the server ends it, another is opened.
const idleFor = outbox.WaitTimeout / 2

// clear begins to delete what was moved, unless a delete is under way.
func (t *turn) clear(ctx context.Context) {
	if t.eraser.busy || len(t.done) == 0 {
		return
	}
	keys := t.done[:min(len(t.done), pageRows)]
	t.done = t.done[len(keys):]
	t.eraser.busy = true
	go func() { t.eraser.ended <- erased{keys, t.erase(ctx, keys)} }()
}

// cleared notes a delete that has ended.
func (t *turn) cleared(got erased) error {
	t.eraser.busy = false
	if got.err != nil {
		return got.err
	}
	for _, key := range got.keys {
		delete(t.hand, key.ID)
		t.gone.add(key.ID)
	}
	return nil
}

// erase deletes rows.
func (t *turn) erase(ctx context.Context, keys []outbox.Key) (err error) {
	e := &t.eraser
	if e.session != nil && time.Since(e.used) > idleFor {
		e.session.Close()
		e.session = nil
	}
	if e.session == nil {
		if e.session, err = t.outbox.Session(ctx); err != nil {
			return err
		}
		if err := t.same(e.session.Identity); err != nil {
			return err
		}
	}
	e.used = time.Now()
	return e.session.Delete(ctx, keys)
}

// end waits for a delete under way, and closes the session.
func (e *eraser) end() {
	if e.busy {
		<-e.ended
	}
	if e.session != nil {
		e.session.Close()
	}
}
