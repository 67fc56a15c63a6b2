package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// TestABacklogThatChangesWhileItIsRead: tasks wait while their types are paused. When
// these go on, whole rows are read page by page, and cancels, reschedules, another
// owner and a node's death meet those that were read and have not started yet.
func TestABacklogThatChangesWhileItIsRead(t *testing.T) {
	o := small
	o.Nodes, o.Idle, o.Sweeper = 3, 1, true
	s := begin(t, o)
	s.logPeeks()
	var drafts []draft
	s.under(Load{Rate: 50, Changes: 0.5, Fails: true}, func(ctx context.Context) error {
		s.pauseTypes(ctx, true)
		s.pause(2 * time.Second) // until the nodes have heard of it
		drafts = s.fill(pick(5000, 40_000), time.Now(), 0, func(i int) Work { return Work{Fail: i % 10 / 9} })
		var g errgroup.Group
		g.Go(func() error { s.pauseTypes(ctx, false); return nil }) // beside the changes: on a busy machine the first types are delivered before the last goes on
		g.Go(func() error {
			half := len(drafts) / 2
			s.changeAny(ctx, drafts[:half])
			for s.ended(drafts[half:]) < 30 && ctx.Err() == nil { // then some changes come too late
				_ = loop.Wait(ctx, 20*time.Millisecond)
			}
			s.changeAny(ctx, drafts[half:])
			return nil
		})
		g.Go(func() error {
			_ = loop.Wait(ctx, time.Second)
			s.join(2)
			return s.Do(ctx, Step{Fault: KillNode, Node: 0, Length: time.Second})
		})
		return g.Wait()
	})
	s.verdict()
	s.changedInTime(drafts)
	if n := s.streamed(); n == 0 {
		t.Error("no backlog was streamed: nothing is shown")
	}
}

// pauseTypes pauses all biz types, or lets them go on.
func (s *scenario) pauseTypes(ctx context.Context, paused bool) {
	s.t.Helper()
	for _, p := range policies("http://127.0.0.1/") {
		if _, err := biztype.SetPaused(ctx, s.tables(s.harness), p.Name, paused); err != nil {
			s.t.Fatal(err)
		}
	}
}

// ended counts the tasks that have been delivered successfully.
func (s *scenario) ended(drafts []draft) int {
	s.t.Helper()
	by, n := s.byTask(), 0
	for _, d := range drafts {
		if slices.ContainsFunc(by[d.entry.JobID], func(is delivery) bool { return is.OK }) {
			n++
		}
	}
	return n
}

// changeAny cancels or puts off one task in three, in any order.
func (s *scenario) changeAny(ctx context.Context, drafts []draft) {
	var g errgroup.Group
	g.SetLimit(8)
	for _, i := range rand.Perm(len(drafts))[:len(drafts)/3] {
		e := drafts[i].entry
		g.Go(func() error {
			kind := []string{opCancel, opReschedule}[i%2]
			s.ask(ctx, e, op{Kind: kind, Due: time.Now().Add(2 * time.Second).Truncate(time.Millisecond)})
			return nil
		})
	}
	_ = g.Wait()
}

// changedInTime fails unless some changes came in time and some too late: else none
// met the reading.
func (s *scenario) changedInTime(drafts []draft) {
	s.t.Helper()
	took, late := 0, 0
	for _, d := range drafts {
		switch o := d.entry.Change; {
		case o == nil:
		case o.done():
			took++
		default:
			late++
		}
	}
	s.t.Logf("%d changes took hold, %d came too late", took, late)
	if took == 0 || late == 0 {
		s.t.Error("no change met the reading of the backlog")
	}
}

// streamed counts the reads of whole rows that the servers have noted.
func (s *scenario) streamed() (n int) {
	s.t.Helper()
	for _, d := range s.databases {
		var one int
		if err := d.direct.QueryRowContext(s.t.Context(), streamsSQL).Scan(&one); err != nil {
			s.t.Fatal(err)
		}
		n += one
	}
	return n
}

// streamsSQL counts the reads of whole due rows that were noted.
const streamsSQL = `SELECT /* tocsin chaos */
    COUNT(*)
FROM mysql.general_log
WHERE argument LIKE '(SELECT /* tocsin due */%'`
