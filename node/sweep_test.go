package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

func TestTwoSweepsAtOnceDeliverEachOverdueTaskOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	const tasks = 2000
	later := add(t, p, orderClose.New(9999, order{}, tocsin.In(time.Hour)))
	addMany(t, p, tasks)
	c := &tallied{seen: map[tocsin.JobID]int{}}
	results := make(chan node.SweepResult, 2)
	for range 2 {
		s := newSweeper(t, p.sweepConfig(), c.handlers())
		go func() {
			result, err := s.Sweep(context.Background())
			if err != nil {
				t.Error(err)
			}
			results <- result
		}()
	}
	a, b := receive(t, results, "a sweep"), receive(t, results, "the other sweep")
	t.Logf("%s\n%s", a, b)
	if a.Delivered+b.Delivered != tasks || a.Tables != 8 || b.Tables != 8 {
		t.Errorf("the sweeps delivered %d + %d in %d and %d tables, want %d in all and 8 tables each", a.Delivered, b.Delivered, a.Tables, b.Tables, tasks)
	}
	c.eachOnce(t, tasks)
	if info, err := p.client.Get(t.Context(), later); err != nil || info.Status != tocsin.Pending {
		t.Errorf("the task that is not due: %+v, %v", info, err)
	}
}

// A task that its handler completes in its own transaction counts as delivered. Nothing is swept before the grace time is over.
func TestSweepWaitsForTheGraceTimeAndCountsWhatHandlersComplete(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	addMany(t, p, 20)
	db := openDB(t, p.cfg.Servers[0].DSN)
	h := closing(func(ctx context.Context, task *tocsin.Task[order]) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(tocsin.CompleteTx(ctx, tx, task.Info), tx.Commit())
	})
	cfg := p.sweepConfig()
	cfg.SweepGrace = 0 // the default, a minute
	if result, err := newSweeper(t, cfg, h).Sweep(t.Context()); err != nil || result.Overdue != 0 {
		t.Errorf("%s, %v", result, err)
	}
	if result, err := newSweeper(t, p.sweepConfig(), h).Sweep(t.Context()); err != nil || result.Delivered != 20 || result.Elsewhere != 0 {
		t.Errorf("%s, %v", result, err)
	}
}

// A policy that was edited by hand costs its biz type, and nothing else: neither the safety net nor the start of a node.
func TestAPolicyThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy(), biztype.Policy{Name: "refund.check", Number: 2, Group: "refunds"})
	db := openDB(t, p.cfg.Servers[0].DSN)
	for database := range p.cfg.Layout.Databases {
		execute(t, db, "UPDATE "+p.cfg.Layout.Database(database)+`.biz_type SET policy = '{"attempts": "8"}' WHERE name = 'refund.check'`)
	}
	add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
	result, err := newSweeper(t, p.sweepConfig(), closing(closes)).Sweep(t.Context())
	if result.Delivered != 1 || err == nil || !strings.Contains(err.Error(), "biz type refund.check: policy of revision ") {
		t.Errorf("%s, %v", result, err)
	}
	cfg := p.config("orders")
	cfg.Strict = true
	run(t, cfg, closing(closes))
	await(t, p, add(t, p, orderClose.New(2, order{2}, tocsin.In(0))), "its delivery", withStatus(tocsin.Done))
}

// Nothing can be claimed on a full disk, and a server that does not answer any more is cut off with the sweep, so its time runs
// out.
func TestASweepNamesTheServerThatHangsAndTheOneWhoseDiskIsFull(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	add(t, p, orderClose.New(p.bizIDIn(1, 0), order{1}, tocsin.In(0)))
	proxy, hanging := devtest.NewProxy(t, p.cfg.Servers[0].DSN)
	p.cfg.Servers = []tocsin.Server{{Name: "hangs", DSN: hanging, Databases: []int{0}}, {Name: "full", DSN: devtest.DSN(t), Databases: []int{1}}}
	_, release := proxy.HoldAt("/* tocsin peek */")
	defer release()
	db := openDB(t, devtest.DSN(t))
	for table := range p.cfg.Layout.Tables {
		p.do(t, db, []string{fmt.Sprintf(`CREATE TRIGGER {db}.full_%d BEFORE UPDATE ON {db}.task_%04d FOR EACH ROW
			SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1030, MESSAGE_TEXT = 'Got error 28 "No space left on device" from storage engine InnoDB'`,
			table, table)})
	}
	cfg := p.sweepConfig()
	cfg.SweepTimeout = 8 * time.Second // both are seen after three
	result, err := newSweeper(t, cfg, closing(func(context.Context, *tocsin.Task[order]) error {
		t.Error("a task was delivered that could not be claimed")
		return nil
	})).Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "sweep server hangs: no answer for ") || !strings.Contains(err.Error(), "sweep server full") || !strings.Contains(err.Error(), "No space left on device") {
		t.Errorf("%s, %v", result, err)
	}
	if slices.Sort(result.Failed); !slices.Equal(result.Failed, []string{"full", "hangs"}) || result.Left["order.close (no time left)"] != 1 {
		t.Errorf("failed %v, left %v", result.Failed, result.Left)
	}
}

// A type has four slots, and its deliveries hang. Later sweeps deliver another type, and cut off none of the four. When the sweeper
// ends, no attempt of the type that hangs is counted, and what was not begun keeps its time.
func TestAResidentSweeperSweepsOthersWhileATypeHangs(t *testing.T) {
	t.Parallel()
	slow, quick := closePolicy(), tocsin.Define[order]("refund.check")
	slow.Concurrency, slow.Timeout = 4, biztype.Duration(9*time.Minute)
	p := newPlace(t, slow, biztype.Policy{Name: quick.Name(), Number: 2, Group: "orders"})
	var begun atomic.Int32
	others := &tallied{seen: map[tocsin.JobID]int{}}
	h := closing(func(ctx context.Context, _ *tocsin.Task[order]) error {
		begun.Add(1)
		<-ctx.Done()
		return ctx.Err()
	})
	node.Handle(h, quick, others.handle)
	hanging, cfg, log := addMany(t, p, 40), p.sweepConfig(), new(devtest.Log)
	cfg.Logger = log.Logger()
	s := newSweeper(t, cfg, h)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, "@every 1s") }()
	until(t, "a sweep says what it left and what goes on", func() bool { // a sweep without the time to read all tables counts fewer
		return slices.ContainsFunc(log.Lines("swept; overdue tasks are left"), func(line devtest.Line) bool {
			return line["error"] == "overdue tasks are left: order.close (no time left): 36" && strings.Contains(fmt.Sprint(line["result"]), "; its time was over; 4 in delivery;")
		})
	})
	for range 2 { // sweeps
		var ids []tocsin.JobID
		for id := range uint64(10) {
			ids = append(ids, add(t, p, quick.New(id+1, order{id + 1}, tocsin.In(0))))
		}
		for _, id := range ids {
			await(t, p, id, "a delivery of the other type", withStatus(tocsin.Done))
		}
	}
	others.eachOnce(t, 20)
	if n := begun.Load(); n != 4 {
		t.Errorf("%d deliveries of the type that hangs have begun, want 4: the end of a sweep has cut some off", n)
	}
	stop()
	if err := receive(t, ended, "the end of the sweeper"); err != nil {
		t.Error(err)
	}
	untouched := 0
	for _, one := range hanging {
		info := await(t, p, one.JobID, "its return", withStatus(tocsin.Pending))
		if info.Attempts+info.Crashes != 0 {
			t.Errorf("%+v", info)
		}
		if info.ActionTime.Equal(info.DueTime) {
			untouched++
		}
	}
	if untouched != 36 {
		t.Errorf("%d tasks kept their time, want the 36 that were not begun", untouched)
	}
}

// A sweeper that is told to end between two sweeps gives deliveries in hand a second.
func TestAResidentSweeperGivesDeliveriesASecondAtItsEnd(t *testing.T) {
	t.Parallel()
	slow := closePolicy()
	slow.Timeout = biztype.Duration(time.Minute)
	p, log, cut := newPlace(t, slow), new(devtest.Log), make(chan time.Time, 9)
	add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
	cfg := p.sweepConfig()
	cfg.Logger, cfg.SweepTimeout = log.Logger(), 300*time.Millisecond
	s := newSweeper(t, cfg, closing(func(ctx context.Context, _ *tocsin.Task[order]) error {
		<-ctx.Done()
		cut <- time.Now()
		return ctx.Err()
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, "@every 3s") }()
	until(t, "a sweep has ended, and the delivery goes on", func() bool {
		return slices.ContainsFunc(log.Lines(), func(line devtest.Line) bool { return strings.Contains(fmt.Sprint(line["result"]), "; 1 in delivery") })
	})
	stopped := time.Now()
	stop()
	if took := receive(t, cut, "the end of the delivery").Sub(stopped); took < time.Second {
		t.Errorf("the delivery was cut off after %s", took)
	}
	if err := receive(t, ended, "the end of the sweeper"); err != nil {
		t.Error(err)
	}
}

// newBarredPlace has a server of its own, whose user can't write while the server is read-only. exec runs statements as root.
func newBarredPlace(t *testing.T, policies ...biztype.Policy) (p place, exec func(statement string)) {
	t.Helper()
	server := startServer(t)
	root := openDB(t, server.DSN())
	exec = func(statement string) { t.Helper(); execute(t, root, statement) }
	p = unmade(t, 4)
	exec("CREATE USER tocsin@'%'")
	exec("GRANT ALL ON `" + p.cfg.Layout.Prefix + "\\_%`.* TO tocsin@'%'")
	p.cfg.Servers[0].DSN = strings.Replace(server.DSN(), "root@", "tocsin@", 1)
	p.etcd = node.EtcdConfig{Endpoints: []string{devtest.Etcd(t)}}
	return p.made(t, policies...), exec
}

// While a server is read-only, nodes deliver what is due there, and their outcomes wait. When it takes writes again, a
// sweep under way must not claim these tasks before the nodes have settled them: it would deliver them a second time.
func TestASweepAfterAReadOnlySpellWaitsForTheNodes(t *testing.T) {
	t.Parallel()
	p, exec := newBarredPlace(t, closePolicy(), biztype.Policy{Name: "refund.check", Number: 2, Group: "refunds"})
	delivered := &tallied{seen: map[tocsin.JobID]int{}}
	refund := tocsin.Define[order]("refund.check")
	swept := delivered.handlers()
	node.Handle(swept, refund, delivered.handle)
	l := runLogged(t, p, "one", delivered.handlers())
	for id := range uint64(20) { // until the node owns every table
		await(t, p, add(t, p, orderClose.New(id+1, order{id + 1}, tocsin.In(0))), "its delivery", withStatus(tocsin.Done))
	}
	ids := []tocsin.JobID{add(t, p, refund.New(1, order{1}, tocsin.In(0)))} // has no node
	for id := range uint64(200) {
		ids = append(ids, add(t, p, orderClose.New(id+1, order{id + 1}, tocsin.In(2*time.Second))))
	}
	exec("SET GLOBAL read_only = 1")
	until(t, "the node delivers", func() bool { n, _ := delivered.of(ids); return n == len(ids)-1 })
	failed := l.count(t, "tocsin_dispatcher_errors_total")

	const sweeps = 8 // one after the other, so that one of them tries to claim soon after writes come back
	ended := make(chan error, sweeps)
	for range sweeps {
		var log devtest.Log
		cfg := p.sweepConfig()
		cfg.Logger, cfg.SweepTimeout = log.Logger(), node.NoTimeout
		s := newSweeper(t, cfg, swept)
		go func() { _, err := s.Sweep(t.Context()); ended <- err }()
		log.Await(t, "rows could not be loaded; trying again in a second")
		time.Sleep(100 * time.Millisecond)
	}
	const waitsLong = 40 // failures, after which the pauses of the node's settlers are at their longest
	until(t, "the node waits long", func() bool { return l.count(t, "tocsin_dispatcher_errors_total") > failed+waitsLong })
	exec("SET GLOBAL read_only = 0")
	for _, id := range ids {
		await(t, p, id, "its settlement", withStatus(tocsin.Done))
	}
	for range sweeps {
		if err := receive(t, ended, "a sweep"); err != nil {
			t.Error(err)
		}
	}
	if n, twice := delivered.of(ids); n != len(ids) || twice > 0 {
		t.Errorf("%d deliveries of %d tasks, %d of them twice", n, len(ids), twice)
	}
}
