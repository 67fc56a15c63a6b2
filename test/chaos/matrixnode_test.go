package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// logLine is the part of a node's log line that the matrix reads.
type logLine struct {
	Level, Message, Error string
	text                  string
}

// troubles returns the lines of level warn and above that the node in the seat has written, from a place in its log on.
func (at *seat) troubles(from int64) (all []logLine) {
	text, err := os.ReadFile(at.log)
	if err != nil || int64(len(text)) < from {
		return nil
	}
	for _, line := range strings.Split(string(text[from:]), "\n") {
		l := logLine{text: line}
		if json.Unmarshal([]byte(line), &l) != nil && line != "" {
			l.Level = "error" // the line that the command prints when it ends
		}
		if slices.Contains([]string{"warn", "error", "fatal", "panic"}, l.Level) {
			all = append(all, l)
		}
	}
	return all
}

// logged returns the length of the log.
func (at *seat) logged() int64 {
	info, err := os.Stat(at.log)
	if err != nil {
		return 0
	}
	return info.Size()
}

// about returns the first line that names what is wrong and why, or else the first of all.
func (f fault) about(lines []logLine) (text string, named bool) {
	for _, l := range lines {
		if f.named(l.text) {
			return l.text, true
		}
	}
	if len(lines) == 0 {
		return "", false
	}
	return lines[0].text, false
}

// readable returns a line of a log in readable form: its message and its fields.
func readable(text string) string {
	fields := map[string]any{}
	if json.Unmarshal([]byte(text), &fields) != nil {
		return text
	}
	b := fmt.Sprint(fields["message"])
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains([]string{"message", "level", "time", "node", "group"}, name) {
			b += fmt.Sprintf(", %s: %v", name, fields[name])
		}
	}
	return b
}

// notice waits until the running node names the fault.
func (m *matrix) notice(f fault, seen int64) *cell {
	c, at, begin := &cell{}, m.seats[0], time.Now()
	named := f.no[runningNode] || m.until(noticeWithin, func() bool {
		_, named := f.about(at.troubles(seen))
		return named || !at.present().Alive()
	})
	c.does = "goes on"
	if !f.no[runningNode] && named {
		c.does += fmt.Sprintf(", said so after %.1f s", time.Since(begin).Seconds())
	}
	return c
}

// runOn checks the running node just before the fault ends.
func (m *matrix) runOn(r *matrixRow, seen int64) {
	c, at := r.cells[runningNode], m.seats[0]
	m.saidOnce(r.fault, runningNode, at, seen, r.span.from, c)
	var page []byte
	var err error
	if !r.fault.quiet && !m.until(noticeWithin, func() bool {
		page, err = at.read()
		return err == nil && r.fault.named(string(page))
	}) {
		c.failf("its status page does not name %s and %s: %s %v", r.fault.where, r.fault.why, page, err)
	}
	if !at.present().Alive() {
		c.does, c.wrong = "ends", append(c.wrong, "it ended")
	}
}

// linesAMinute is how many lines a minute a node may write for one cause.
const linesAMinute = 10

// saidOnce expects one line that names the fault, and few others about its place or about any other cause.
func (m *matrix) saidOnce(f fault, actor string, at *seat, seen int64, since time.Time, c *cell) {
	lines := at.troubles(seen)
	text, named := f.about(lines)
	c.says = fmt.Sprintf("%s\n(%d lines)", readable(text), len(lines))
	if !named && !f.no[actor] && !f.free[actor] {
		c.failf("no line names %s and %s", f.where, f.why)
	}
	where, causes := regexp.MustCompile(f.where), map[string]int{}
	for _, l := range lines {
		cause := l.Message // of a line about something else
		if where.MatchString(l.text) {
			cause = "the fault"
		}
		causes[cause]++
	}
	most := linesAMinute * (1 + int(time.Since(since)/time.Minute))
	for cause, n := range causes {
		if n > most {
			c.failf("%d lines about %s, more than %d", n, cause, most)
		}
	}
}

// start starts a node. It must take healthy tables, and deliver their tasks.
func (m *matrix) start(f fault, _ []tocsin.JobID) *cell {
	c, at, begin := &cell{}, m.seats[1], time.Now()
	m.sit(at)
	delivered := m.until(startWithin, func() bool { return !at.present().Alive() || m.deliveredBy(at, begin, m.well(f)) })
	c.does = fmt.Sprintf("delivered after %.1f s", time.Since(begin).Seconds())
	if owned, err := at.owned(); err == nil {
		c.does += fmt.Sprintf(", owns %d", owned)
	}
	if !f.no[startingNode] && !f.free[startingNode] {
		m.until(noticeWithin, func() bool {
			_, named := f.about(at.troubles(0))
			return named || !at.present().Alive()
		})
	}
	m.saidOnce(f, startingNode, at, 0, begin, c)
	switch {
	case !at.present().Alive():
		c.does = "ends"
		c.failf("it ended")
	case !delivered:
		c.failf("it delivered nothing of the healthy tables within %s", startWithin)
	}
	return c
}

// deliveredBy reports whether the node in the seat delivered a task of one of the tables since.
func (m *matrix) deliveredBy(at *seat, since time.Time, tables []int) bool {
	return slices.ContainsFunc(m.all(), func(d delivery) bool {
		return seatOf(d.Node) == at.name && d.At.After(since) && slices.Contains(tables, d.JobID.Table())
	})
}

// useAgain expects the client and the nodes to use the mended tables again, and then the running node by itself.
func (m *matrix) useAgain(r *matrixRow) {
	begin := time.Now()
	m.addAgain(r, begin)
	r.cells[runningNode].does += fmt.Sprintf(", used again after %.1f s", time.Since(begin).Seconds())
	ctx, cancel := context.WithTimeout(m.t.Context(), leaveWithin)
	defer cancel()
	if err := m.seats[1].leave(ctx); err != nil && r.cells[startingNode].does != "ends" {
		r.cells[startingNode].failf("after SIGTERM: %v", err)
	}
	if !m.seats[0].present().Alive() {
		m.sit(m.seats[0])
	}
	m.balance(1)
	m.addAgain(r, begin)
}

// addAgain adds a task to each table that was sick and waits until a node has delivered them.
func (m *matrix) addAgain(r *matrixRow, begin time.Time) {
	var drafts []draft
	var said []string
	within := usedWithin
	if r.fault.slow {
		within += lookAgain
	}
	added := m.until(within, func() bool {
		drafts = m.tasksIn(m.sick(r.fault))
		said = m.addEach(m.client, drafts)
		return len(said) == 0
	})
	if !added {
		r.cells[adder].failf("%s after the end of the fault: %s", within, strings.Join(said, "; "))
		return
	}
	if !strings.Contains(r.cells[adder].does, "again") {
		r.cells[adder].does += fmt.Sprintf(", used again after %.1f s", time.Since(begin).Seconds())
	}
	if !m.until(within, func() bool { return m.haveAll(drafts) }) {
		r.cells[runningNode].failf("%s after the end of the fault it does not deliver", within)
	}
}

// haveAll reports whether all tasks were delivered.
func (m *matrix) haveAll(drafts []draft) bool {
	by := m.byTask()
	return !slices.ContainsFunc(drafts, func(d draft) bool { return len(by[d.entry.JobID]) == 0 })
}
