package chaos

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

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
func (m *matrix) others(r *matrixRow) (late Lateness) {
	seen := map[tocsin.JobID]bool{}
	for _, d := range m.all() {
		due := d.Due.After(r.span.from) && d.Due.Before(r.span.to)
		if !seen[d.JobID] && due && seatOf(d.Node) != m.sweeper.name && !r.fault.takes(d.JobID.Table()) {
			late = append(late, d.At.Sub(d.Due))
		}
		seen[d.JobID] = true
	}
	slices.Sort(late)
	return late
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
