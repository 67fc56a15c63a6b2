package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
)

// The columns of the matrix.
const (
	runningNode  = "running node"
	startingNode = "starting node"
	adder        = "client"
	sweep        = "sweep"
	purge        = "purge"
	audit        = "audit"
	doctor       = "doctor"
)

var actors = []string{runningNode, startingNode, adder, sweep, purge, audit, doctor}

// The matrix breaks sickServer, or sickDatabase on it. Both are the first, which every actor asks first.
const (
	sickServer   = 0
	sickDatabase = 0
)

// How long the matrix waits for an event before it reports that there was none.
const (
	noticeWithin  = 15 * time.Second // a line of the running node about the fault
	startWithin   = 20 * time.Second // a delivery by the node that starts
	commandWithin = 5 * time.Minute  // the end of a command
	usedWithin    = 30 * time.Second // an add and a delivery after the fault was mended
	restWithin    = 3 * time.Minute  // the end of every task after the last fault
)

// leastLength is how long a fault lasts in the long form, so that there is lateness to measure.
const leastLength = 6 * time.Second

// mostLate bounds the p99 of the lateness of tasks of healthy tables. It has room for a node that joins and leaves while
// six commands run on two cores.
const mostLate = time.Second

// matrix is a cluster whose nodes and commands run the real program.
type matrix struct {
	*scenario
	program string // the command's file
	tls     tlsFiles
	disk    *devserver.SmallDisk // for the sick server's binary log; nil: there is none
	noDisk  string               // why there is none
	other   *database            // a server that does not belong to the cluster; nil until it is needed
	hogs    []*sql.Conn
	rows    []*matrixRow
}

// matrixRow is the result of one fault.
type matrixRow struct {
	fault  fault
	span   span // from the fault to its end
	cells  map[string]*cell
	remark string // why it was not played
}

// cell is what one actor did and printed during one fault.
type cell struct {
	does  string
	says  string
	wrong []string // promises that did not hold
}

// failf records a promise that did not hold.
func (c *cell) failf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// TestMatrix breaks one database or one server at a time. Nodes, a client, sweep, purge, audit and doctor must go on
// with all others, name in one line what is wrong and why, write nothing to a foreign database, and use the broken one
// again after it is mended, without a restart. The test prints what each did and printed.
func TestMatrix(t *testing.T) {
	m := newMatrix(t)
	defer m.print(t)
	m.under(Load{Rate: 80, Types: []string{"hook"}, Far: 2 * time.Second}, func(ctx context.Context) error {
		m.config(m.sweeper, "off")
		m.serve(m.seats[0])
		m.balance(1)
		m.pause(3 * time.Second) // their lateness is that without a fault
		for _, f := range m.faults() {
			t.Run(f.name, func(t *testing.T) { m.on(t).play(f) })
		}
		return nil
	})
	m.sweepRest()
	m.verdict()
}

// newMatrix starts two servers and an etcd, but no node.
func newMatrix(t *testing.T) *matrix {
	t.Helper()
	m := &matrix{tls: newTLSFiles(t), program: build(t)}
	m.disk, m.noDisk = smallDisk(t)
	t.Cleanup(func() {
		if m.other != nil {
			_ = m.other.stop()
		}
	})
	m.scenario = begin(t, Options{
		Servers: 2, Nodes: 2, Idle: 2,
		servers: []serverOptions{{args: append(append(m.tls.args(), m.disk.Args()...), durable), params: "tls=" + tlsOfHarness}, {args: []string{durable}}},
	})
	for _, d := range m.databases { // a root connection that closes would leave its place to a connection that is not a hog
		d.direct.SetMaxOpenConns(2)
		d.direct.SetMaxIdleConns(2)
	}
	return m
}

// on makes another test fail in place of t until that test ends.
func (m *matrix) on(t *testing.T) *matrix {
	outer := m.t
	m.t = t
	t.Cleanup(func() { m.t = outer })
	return m
}

// build builds the command, from the packages that other tests and builds have compiled: -trimpath would compile all of them anew.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "tocsin")
	cmd := exec.Command("go", "build", "-o", program, "github.com/tocsinhq/tocsin/cmd/tocsin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// play breaks something, lets every actor act, mends it, and waits until it is used again.
func (m *matrix) play(f fault) {
	r := &matrixRow{fault: f, cells: map[string]*cell{}}
	m.rows = append(m.rows, r)
	if f.cannot != "" {
		r.remark = f.cannot
		return
	}
	m.renew()
	bait := m.bait()
	seen := m.seats[0].logged()
	done := m.log.begin(Step{Fault: SickServer, Server: sickServer})
	atOnce := m.closeAtOnce(f)
	r.span.from = time.Now()
	mended := false
	mend := func() {
		if !mended {
			mended = true
			f.end(m)
		}
	}
	defer mend() // also if the test ends here
	f.begin(m)
	r.cells[runningNode] = m.notice(f, seen)
	later := m.closeLater(f)
	m.act(r, bait)
	m.stayed(r, atOnce, later)
	if long() {
		m.pause(time.Until(r.span.from.Add(leastLength)))
	}
	m.runOn(r, seen)
	mend()
	r.span.to = time.Now()
	m.useAgain(r)
	done()
	m.judge(r)
}

// renew restarts the running node before a fault: a node logs a cause once a minute, and the previous fault had the
// same causes.
func (m *matrix) renew() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), leaveWithin)
	defer cancel()
	m.orFail(m.seats[0].leave(ctx))
	m.serve(m.seats[0])
	m.balance(1)
}

// act lets all actors except the running node act at once.
func (m *matrix) act(r *matrixRow, b bait) {
	acts := map[string]func(fault, bait) *cell{
		startingNode: m.start, adder: m.useClient, sweep: m.sweepOnce, purge: m.purgeOnce, audit: m.auditOnce, doctor: m.examine,
	}
	found := make([]*cell, len(actors))
	var g errgroup.Group
	for i, name := range actors {
		if act := acts[name]; act != nil {
			g.Go(func() error { found[i] = act(r.fault, b); return nil })
		}
	}
	_ = g.Wait()
	for i, c := range found {
		if c != nil {
			r.cells[actors[i]] = c
		}
	}
}

// judge fails the test for every cell in which something did not hold.
func (m *matrix) judge(r *matrixRow) {
	m.t.Helper()
	if late := m.others(r); long() && (len(late) < 100 || late.Quantile(0.99) > mostLate) {
		m.t.Errorf("%s: tasks of the healthy tables: %s late, want %s", r.fault.name, late, mostLate)
	}
	for _, name := range actors {
		for _, wrong := range r.cells[name].wrong {
			m.t.Errorf("%s: %s: %s", r.fault.name, name, wrong)
		}
	}
}

// tasksIn drafts one task for each of the tables, due at once.
func (m *matrix) tasksIn(tables []int) (all []draft) {
	wanted := slices.Clone(tables)
	for len(wanted) > 0 {
		d := m.log.newTask("hook", time.Now(), Work{})
		at := slices.Index(wanted, m.opts.Layout.TableOf(d.entry.BizID))
		if at < 0 {
			m.log.drop([]draft{d})
			continue
		}
		wanted = slices.Delete(wanted, at, at+1)
		all = append(all, d)
	}
	return all
}

// tablesWhere returns the tables for which is reports true.
func (m *matrix) tablesWhere(is func(table int) bool) (all []int) {
	for table := range m.opts.Layout.Total() {
		if is(table) {
			all = append(all, table)
		}
	}
	return all
}

// sick and well are the tables that a fault affects, and the others.
func (m *matrix) sick(f fault) []int { return m.tablesWhere(f.takes) }
func (m *matrix) well(f fault) []int {
	return m.tablesWhere(func(table int) bool { return !f.takes(table) })
}

// deliveredSince returns the deliveries that began after a time, by task.
func (m *matrix) deliveredSince(from time.Time) map[tocsin.JobID][]delivery {
	m.t.Helper()
	all := map[tocsin.JobID][]delivery{}
	for _, d := range m.all() {
		if d.At.After(from) {
			all[d.JobID] = append(all[d.JobID], d)
		}
	}
	return all
}

// until waits for an event, for at most within; four times as long beside other tests, whose machine is busy.
func (m *matrix) until(within time.Duration, happened func() bool) bool {
	for end := time.Now().Add(within * pick[time.Duration](4, 1)); time.Now().Before(end); m.pause(50 * time.Millisecond) {
		if happened() {
			return true
		}
	}
	return happened()
}

// sweepRest sweeps until every task has ended. Tasks that a sweep had claimed on a sick server first wait for their
// claims to run out, and only sweeps deliver them.
func (m *matrix) sweepRest() {
	m.t.Helper()
	var last ended
	if !m.until(restWithin, func() bool {
		last = m.command("sweep", "--once")
		left, err := m.Site.open(m.t.Context())
		return last.code == 0 && err == nil && left == 0
	}) {
		m.t.Errorf("not every task has ended; the last sweep: %+v", last)
	}
}
