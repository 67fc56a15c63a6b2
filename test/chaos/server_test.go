package chaos

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// busy is a load of tasks of all kinds. Some are changed, some fail.
func busy(rate int) Load { return Load{Rate: rate, Changes: 0.12, Fails: true, Work: 100} }

// TestServerDiesAndComesBack: kill -9 of MariaDB while deliveries are in hand.
func TestServerDiesAndComesBack(t *testing.T) {
	s := begin(t, Options{Servers: 2, Nodes: 2, Sweeper: true, Timing: pick(calmTimes, quickTimes)})
	load := busy(pick(100, 500))
	load.Far = 3 * time.Second
	kills := slices.Repeat([]Step{{Fault: KillServer, Server: 1, Length: 2 * time.Second}}, pick(1, 5))
	s.playUnder(load, time.Second, pick(2*time.Second, 10*time.Second), kills...)
	s.onceMoreAtMost()
}

// onceMoreAtMost checks, and that no delivery was repeated more than once.
func (s *scenario) onceMoreAtMost() {
	s.t.Helper()
	if r := s.verdict(); r.MostAgain > 1 {
		s.t.Errorf("one task was delivered %d times more", r.MostAgain)
	}
}

// TestServerIsAway: cut off for longer than claims and read time-outs last; or it refuses writes, and its replica takes over under
// the same address.
func TestServerIsAway(t *testing.T) {
	onlyLong(t)
	for name, step := range map[string]Step{
		"cut off":              {Fault: CutServer, Server: 0, Length: 30 * time.Second},
		"demoted and replaced": {Fault: MoveServer, Server: 0, Length: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, Options{Servers: 2, Nodes: 3, Sweeper: true})
			s.playUnder(busy(400), 3*time.Second, 15*time.Second, step)
			s.onceMoreAtMost()
		})
	}
}

// The outages of etcd: deliveries must go on, on time and once.
func TestEtcdIsAway(t *testing.T) {
	onlyLong(t)
	for name, step := range map[string]Step{
		"etcd is stopped":               {Fault: StopEtcd, Length: time.Minute},
		"one of three nodes is cut off": {Fault: CutEtcd, Node: 1, Length: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, Options{Servers: 2, Nodes: 3})
			s.playUnder(Load{Rate: 300}, 3*time.Second, 15*time.Second, step)
			s.balance(3)
			r := s.verdict()
			if r.Seconds() > 0 {
				t.Errorf("%d second deliveries", r.Seconds())
			}
			if p99 := r.Times[timeTroubled].Quantile(0.99); p99 > 2*time.Second {
				t.Errorf("lateness p99 %s", p99)
			}
		})
	}
}

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
