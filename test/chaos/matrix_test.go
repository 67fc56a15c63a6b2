package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
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
	noticeWithin = 15 * time.Second // a line of the running node about the fault
	startWithin  = 20 * time.Second // a delivery by the node that starts
	usedWithin   = 30 * time.Second // an add and a delivery after the fault was mended
	restWithin   = 3 * time.Minute  // the end of every task after the last fault
	lookAgain    = 90 * time.Second // after the end of a full disk, for which a commit may still wait
)

// leastLength is how long a fault lasts in the long form, so that there is lateness to measure.
const leastLength = 6 * time.Second

// mostLate bounds the p99 of the lateness of tasks of healthy tables. It has room for a node that joins and leaves while
// six commands run on two cores.
const mostLate = time.Second

// matrix is a cluster with one server that gets sick.
type matrix struct {
	installed
	tls   tlsFiles
	other *database // a server that does not belong to the cluster; nil until it is needed
	hogs  []*sql.Conn
	rows  []*matrixRow
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
		m.sit(m.seats[0])
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
	m := &matrix{installed: installed{program: build(t)}, tls: newTLSFiles(t)}
	m.env = []string{"SSL_CERT_FILE=" + m.tls.authority} // of the sick server
	m.mountDisk(t)
	t.Cleanup(func() {
		if m.other != nil {
			_ = m.other.stop()
		}
	})
	m.scenario = begin(t, Options{
		Servers: 2, Nodes: 2, Idle: 2, serve: m.serve,
		servers: []serverOptions{{args: m.tls.args(), disk: m.disk, params: "tls=" + tlsOfHarness}, {args: []string{durable}}},
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

// play breaks something, lets every actor act, mends it, and waits until it is used again.
func (m *matrix) play(f fault) {
	r := &matrixRow{fault: f, cells: map[string]*cell{}}
	m.rows = append(m.rows, r)
	if f.slow && m.disk == nil {
		r.remark = m.noDisk
		return
	}
	m.renew()
	overdue := m.bait()
	seen := m.seats[0].logged()
	done := m.log.begin(Step{Fault: SickServer, Server: sickServer})
	atOnce := m.closeAtOnce(f)
	r.span.from = time.Now()
	mend := sync.OnceFunc(f.end)
	defer mend() // also if the test ends here
	f.begin()
	r.cells[runningNode] = m.notice(f, seen)
	later := m.closeLater(f)
	m.act(r, overdue)
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
	m.sit(m.seats[0])
	m.balance(1)
}

// act lets all actors except the running node act at once.
func (m *matrix) act(r *matrixRow, overdue []tocsin.JobID) {
	acts := map[string]func(fault, []tocsin.JobID) *cell{
		startingNode: m.start, adder: m.useClient, sweep: m.sweepOnce, purge: m.purgeOnce, audit: m.auditOnce,
		doctor: func(f fault, _ []tocsin.JobID) *cell { return f.cellOf(doctor, m.command("doctor")) },
	}
	found := make([]*cell, len(actors))
	var g errgroup.Group
	for i, name := range actors {
		if act := acts[name]; act != nil {
			g.Go(func() error { found[i] = act(r.fault, overdue); return nil })
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

// print writes the matrix as Markdown tables: which promises held, then what each actor did and printed in each fault.
func (m *matrix) print(t *testing.T) {
	t.Helper()
	var b strings.Builder
	m.summary(&b)
	for _, r := range m.rows {
		fmt.Fprintf(&b, "\n### %s\n\n", r.fault.name)
		if len(r.cells) == 0 {
			fmt.Fprintf(&b, "%s\n", r.remark)
			continue
		}
		lines := [][]string{{"who", "does", "says"}}
		for _, actor := range actors {
			c := r.cells[actor]
			lines = append(lines, []string{actor, c.does, inCell(c.says)})
			for _, wrong := range c.wrong {
				lines = append(lines, []string{"", "**" + inCell(wrong) + "**", ""})
			}
		}
		writeTable(&b, lines)
	}
	t.Logf("\n%s", b.String())
	if path := os.Getenv("TOCSIN_MATRIX"); path != "" {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// summary is one line per fault: which cells held, and how late the tasks of healthy tables were.
func (m *matrix) summary(b *strings.Builder) {
	lines := [][]string{append(append([]string{"fault"}, actors...), "others' lateness p99", "max")}
	for _, r := range m.rows {
		line := []string{r.fault.name}
		for _, actor := range actors {
			line = append(line, r.cells[actor].held())
		}
		late := m.others(r)
		ms := func(q float64) string { return late.Quantile(q).Round(time.Millisecond).String() }
		lines = append(lines, append(line, fmt.Sprintf("%s of %d", ms(0.99), len(late)), ms(1)))
	}
	writeTable(b, lines)
}

// others returns the lateness of tasks of healthy tables that were due during the fault, except those that wait for a
// sweep.
func (m *matrix) others(r *matrixRow) Lateness {
	return m.lateness(r.span, func(d delivery) bool { return seatOf(d.Node) != m.sweeper.name && !r.fault.takes(d.JobID.Table()) })
}

// held is the short form of a cell.
func (c *cell) held() string {
	switch {
	case c == nil:
		return "not played"
	case len(c.wrong) > 0:
		return "**NO**"
	}
	return "ok"
}

// mostInCell bounds the text shown in one cell.
const mostInCell = 700

// inCell makes text fit into one cell of a table.
func inCell(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(text), "\n", "<br>"), "|", `\|`)
	if len(text) > mostInCell {
		text = text[:mostInCell] + "..."
	}
	return text
}

func writeTable(b *strings.Builder, lines [][]string) {
	for i, line := range lines {
		fmt.Fprintf(b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(line)))
		}
	}
}
