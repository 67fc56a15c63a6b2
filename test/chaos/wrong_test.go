package chaos

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// TestWrongDatabaseAndFrozenServer plays the faults that take a database or a server away without a word.
func TestWrongDatabaseAndFrozenServer(t *testing.T) {
	s := begin(t, Options{Servers: 2, Nodes: 2, Sweeper: true, Timing: pick(calmTimes, quickTimes)})
	s.playUnder(Load{Rate: pick(100, 400), Changes: 0.12, Fails: true, Far: 8 * time.Second}, time.Second, pick(time.Second, 10*time.Second),
		Step{Fault: WrongCluster, Database: 1, Server: 1, Length: closedAfter + 2*time.Second},
		Step{Fault: FreezeServer, Server: 0, Length: pick(2*time.Second, 10*time.Second)},
		Step{Fault: NoLayout, Database: 2, Server: 0, Length: closedAfter + 2*time.Second})
	if r := s.verdict(); r.Counts[lineClosed]["in all"] != 2 {
		t.Errorf("a database was wrong and watched: %s, want 2", r.Counts[lineClosed])
	}
}

// TestAWriteToAWrongDatabaseIsSeen checks the check itself.
func TestAWriteToAWrongDatabaseIsSeen(t *testing.T) {
	o := small
	o.Idle = o.Nodes
	s := begin(t, o)
	table := s.opts.Layout.Table(0)
	s.databases[0].mustExec(t, "INSERT INTO "+table+rowForged)
	step := Step{Fault: WrongCluster, Length: closedAfter + 2*time.Second}
	ctx, ended := context.WithCancel(t.Context())
	defer ended()
	var g errgroup.Group
	g.Go(func() error { defer ended(); return s.Do(t.Context(), step) })
	for loop.Wait(ctx, 100*time.Millisecond) == nil { // some of them between the check's two looks
		s.databases[0].mustExec(t, "UPDATE "+table+" SET version = version + 1")
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if all := s.log.intrusions; len(all) != 1 || !strings.Contains(all[0].intrusion(), "task_0000 changed") {
		t.Errorf("seen: %v", all)
	}
}

// rowForged is a finished task.
const rowForged = ` (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
VALUES (1, NOW(), NOW(), 1, 1, 2, NOW(), NOW(), '{}')`

func (d *database) mustExec(t *testing.T, statement string) {
	t.Helper()
	if err := d.exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
