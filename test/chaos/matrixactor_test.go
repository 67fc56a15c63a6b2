package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
)

// bait inserts a task that a sweep must deliver and one that a purge must remove into every table, and returns the former, which
// are of a group without nodes. It bypasses the client, which adds no task that is already overdue.
func (m *matrix) bait() (overdue []tocsin.JobID) {
	m.t.Helper()
	nth := uint64(1_000_000 + 2*len(m.rows))
	for table := range m.opts.Layout.Total() {
		id, err := m.insert(table, nth, 5, tocsin.Pending, time.Now().Add(-2*time.Minute))
		m.orFail(err)
		overdue = append(overdue, id)
		_, err = m.insert(table, nth+1, 3, tocsin.Done, time.Now().Add(-40*24*time.Hour))
		m.orFail(err)
	}
	return overdue
}

// epoch is the time from which job_ids count.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// insert adds a row as root: the nth of its table, with the time of its status.
func (m *matrix) insert(table int, nth, bizType uint64, status tocsin.Status, at time.Time) (tocsin.JobID, error) {
	bizID := nth * 1000
	for m.opts.Layout.TableOf(bizID) != table {
		bizID++
	}
	id := uint64(time.Since(epoch).Milliseconds())<<22 | uint64(table)<<9 | nth%512
	when := at.UTC().Format("'2006-01-02 15:04:05.000'")
	return tocsin.JobID(id), m.databaseOf(table).exec(m.t.Context(), fmt.Sprintf(`INSERT INTO %s
(job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
VALUES (%d, %[3]s, %[3]s, %[4]d, %[5]d, %[6]d, %[3]s, %[3]s, '{}')`, m.opts.Layout.Table(table), id, when, bizID, bizType, status))
}

// cellOf compares a command's result with the demands of the fault: its exit code, and one line that names what is
// wrong and why.
func (f fault) cellOf(actor string, got ended) *cell {
	c := &cell{does: fmt.Sprintf("exit %d after %.1f s", got.code, got.took.Seconds())}
	says := strings.TrimSpace(got.stderr)
	if actor == doctor {
		says = strings.Join(regexp.MustCompile(`(?m)^fail.*$`).FindAllString(got.stdout, -1), "\n")
	}
	c.says = cmp.Or(says, strings.TrimSpace(got.stdout))
	switch {
	case got.code < 0:
		c.failf("did not end within %s", commandWithin)
	case f.free[actor]:
	case f.no[actor] && got.code != 0:
		c.failf("exit %d: the fault does not concern it", got.code)
	case !f.no[actor] && got.code != 1:
		c.failf("exit %d, want 1", got.code)
	case !f.no[actor] && !f.named(says):
		c.failf("no line names %s and %s", f.where, f.why)
	}
	return c
}

// named reports whether a line says which database or server is wrong, and why.
func (f fault) named(lines string) bool {
	where, why := regexp.MustCompile(f.where), regexp.MustCompile(f.why)
	return slices.ContainsFunc(strings.Split(lines, "\n"), func(line string) bool {
		return where.MatchString(line) && why.MatchString(line)
	})
}

// sweepOnce must deliver the overdue tasks in healthy tables.
func (m *matrix) sweepOnce(f fault, overdue []tocsin.JobID) *cell {
	c := f.cellOf(sweep, m.command("sweep", "--once"))
	by := m.byTask()
	left := map[int]bool{}
	for table, id := range overdue {
		left[table] = len(by[id]) == 0
	}
	c.leftOf(m.well(f), left, "overdue tasks were not delivered")
	return c
}

// purgeOnce must remove the old tasks in healthy tables.
func (m *matrix) purgeOnce(f fault, _ []tocsin.JobID) *cell {
	c := f.cellOf(purge, m.command("purge", "--once"))
	left := map[int]bool{}
	for _, table := range m.well(f) {
		var n int
		query := fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE gmt_modified < UTC_TIMESTAMP() - INTERVAL 39 DAY", m.opts.Layout.Table(table))
		if err := m.databaseOf(table).direct.QueryRow(query).Scan(&n); err != nil {
			c.failf("%v", err)
		}
		left[table] = n > 0
	}
	c.leftOf(m.well(f), left, "old tasks were not removed")
	return c
}

// leftOf records in how many of the tables work was left undone.
func (c *cell) leftOf(tables []int, left map[int]bool, what string) {
	n := 0
	for _, table := range tables {
		if left[table] {
			n++
		}
	}
	if n > 0 {
		c.failf("%d of %d healthy tables: %s", n, len(tables), what)
	}
}

// auditOnce must read all healthy tables.
func (m *matrix) auditOnce(f fault, _ []tocsin.JobID) *cell {
	got := m.command("audit", "--grace", "10m", "--json")
	c := f.cellOf(audit, got)
	var report struct {
		Tables int
		Faults map[string]int
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || report.Tables < len(m.well(f)) {
		c.failf("it read %d tables, %d are well", report.Tables, len(m.well(f)))
	}
	if len(report.Faults) > 0 {
		c.failf("it found %v", report.Faults)
	}
	c.does += fmt.Sprintf(", %d tables", report.Tables)
	return c
}

// useClient adds a task to each table, with the running client and with one that is opened now.
func (m *matrix) useClient(f fault, _ []tocsin.JobID) *cell {
	c := &cell{}
	begin := time.Now()
	opened, err := tocsin.Open(m.t.Context(), m.tables(m.harness))
	c.does = fmt.Sprintf("opened after %.1f s", time.Since(begin).Seconds())
	if err != nil {
		c.failf("Open: %v", err)
	} else {
		defer opened.Close()
	}
	m.addWell(c, "running", m.client, m.tasksIn(m.well(f)))
	if opened != nil {
		m.addWell(c, "opened", opened, m.tasksIn(m.well(f)))
	}
	begin = time.Now()
	said := m.addEach(m.client, m.tasksIn(m.sick(f)))
	c.says = strings.Join(said, "\n")
	if len(said) > 1 {
		defer func() { c.says = fmt.Sprintf("%s\n(and %d like it)", said[0], len(said)-1) }()
	}
	if len(said) > 0 {
		c.does += fmt.Sprintf(", refused after %.1f s", time.Since(begin).Seconds())
	}
	switch {
	case f.no[adder] && len(said) > 0:
		c.failf("an add failed: the fault does not concern it")
	case !f.no[adder] && !f.named(c.says):
		c.failf("no error names %s and %s", f.where, f.why)
	}
	return c
}

// addWell expects every add to succeed.
func (m *matrix) addWell(c *cell, which string, by *tocsin.Client, drafts []draft) {
	if said := m.addEach(by, drafts); len(said) > 0 {
		c.failf("%s client, healthy tables: %s", which, strings.Join(said, "; "))
	}
}

// addEach adds tasks concurrently, each by its own call, and returns the different errors.
func (m *matrix) addEach(by *tocsin.Client, drafts []draft) (said []string) {
	var mu sync.Mutex
	var adders sync.WaitGroup
	for _, d := range drafts {
		adders.Go(func() {
			e := d.entry
			e.Sent = time.Now()
			added, err := by.Add(m.t.Context(), d.task)
			e.Back, e.JobID, e.Word = time.Now(), added.JobID, wordOf(err)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !slices.Contains(said, err.Error()) {
				said = append(said, err.Error())
			}
		})
	}
	adders.Wait()
	return said
}

// read gets the status page of the node in the seat.
func (at *seat) read() ([]byte, error) {
	resp, err := http.Get("http://" + at.page + "/status")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// owned returns how many tables the node owns according to its status page.
func (at *seat) owned() (int, error) {
	text, err := at.read()
	if err != nil {
		return 0, err
	}
	var page struct {
		Owned int `json:"tables_owned"`
	}
	return page.Owned, json.Unmarshal(text, &page)
}
