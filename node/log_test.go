package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// budget is how many lines a node may write in a minute about one fault.
const budget = 10

// logged is a node's log and metrics.
type logged struct {
	*devtest.Log
	metrics *prometheus.Registry
	node    *node.Node
}

// runLogged starts a node of p with a log.
func runLogged(t *testing.T, p place, name string, h *node.Handlers) logged {
	t.Helper()
	l := logged{Log: new(devtest.Log), metrics: prometheus.NewRegistry()}
	cfg := p.config("orders")
	cfg.Name, cfg.Logger, cfg.Registerer = name, l.Logger(), l.metrics
	l.node, _ = run(t, cfg, h)
	return l
}

// count returns a metric's value, summed over its labels.
func (l logged) count(t *testing.T, metric string) (sum float64) {
	t.Helper()
	families, err := l.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == metric {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// ordinary are the lines of a node that starts without trouble.
var ordinary = []string{"node runs", "registered", "biz types read", "tables have moved"}

// awaitOf waits for a line about a server.
func (l logged) awaitOf(t *testing.T, server, message string) {
	t.Helper()
	until(t, "it is logged of "+server+": "+message, func() bool {
		return slices.ContainsFunc(l.Lines(message), func(line devtest.Line) bool { return line["server"] == server })
	})
}

// withinBudget fails the test if the node wrote too many lines after the first ones, which it had written at a time.
func (l logged) withinBudget(t *testing.T, first int, at time.Time) {
	t.Helper()
	var told []string
	for _, line := range l.Lines()[first:] {
		if message, _ := line["message"].(string); !slices.Contains(ordinary, message) {
			told = append(told, fmt.Sprint(line))
		}
	}
	if most := budget * (1 + int(time.Since(at)/time.Minute)); len(told) > most {
		t.Errorf("%d lines, more than %d:\n%s", len(told), most, strings.Join(told, "\n"))
	}
}

func TestNodesThatStartWhileAServerIsDownSaySoInAFewLines(t *testing.T) {
	t.Parallel()
	p, way := newPlaceOf(t, 32, closePolicy()).throughRelay(t)
	way.Cut()
	began := time.Now()
	var nodes []logged
	for i := range 3 {
		nodes = append(nodes, runLogged(t, p, fmt.Sprint("node", i), closing(closes)))
	}
	for _, l := range nodes {
		line := l.Await(t, "databases can't be used: their tables wait, or go to nodes that can use them")
		if !strings.Contains(fmt.Sprint(line["why"]), "db2") {
			t.Errorf("it is not said which server is down: %v", line)
		}
	}
	ownersAre(t, p, "all tables have an owner, those of the server that is down too", func(owners []string) bool { return !slices.Contains(owners, "") })
	way.Mend(t)
	for _, task := range addMany(t, p, 40) {
		await(t, p, task.JobID, "a task on either server", withStatus(tocsin.Done))
	}
	for _, l := range nodes {
		l.withinBudget(t, 0, began)
	}
}

func TestAServerThatHangsIsToldAtOnce(t *testing.T) {
	t.Parallel()
	other := startServer(t)
	policy := closePolicy()
	policy.Timeout = biztype.Duration(time.Minute)                                 // the first delivery waits for the last
	p := newPlace(t, policy).split(other.DSN()+"?readTimeout=10m").made(t, policy) // no statement may time out by itself
	send := func(signal syscall.Signal) {
		if err := syscall.Kill(other.Pid(), signal); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { send(syscall.SIGCONT) }) // a stopped server can't be shut down
	begun, over := make(chan int, 100), make(chan struct{})
	h := closing(func(_ context.Context, task *tocsin.Task[order]) error {
		begun <- task.JobID.Table()
		<-over
		return nil
	})
	l := runLogged(t, p, "a", h)
	ownersAre(t, p, "it has all tables", func(owners []string) bool { return all(owners, "a") })
	for n := uint64(1); n <= 30; n++ {
		add(t, p, orderClose.New(n, order{n}, tocsin.In(0)))
	}
	for range 30 {
		receive(t, begun, "a delivery")
	}
	first, froze := len(l.Lines()), time.Now()
	send(syscall.SIGSTOP)
	close(over) // 30 outcomes; half of them can't be stored
	l.awaitOf(t, "db2", "server hangs: a statement has no answer")
	until(t, "the metric says so", func() bool { return l.count(t, "tocsin_node_server_waiting_seconds") > 3 })
	until(t, "the status page says that it hangs, and no other", func() bool {
		report, _ := l.node.Report()
		return len(report.Hangs) == 1 && strings.HasPrefix(report.Hangs["db2"], "no answer for ")
	})
	l.withinBudget(t, first, froze)
	send(syscall.SIGCONT)
	l.awaitOf(t, "db2", "server hangs no more")
	until(t, "the outcomes are stored", func() bool { return l.count(t, "tocsin_dispatcher_open") == 0 })
	l.withinBudget(t, first, froze)
}
