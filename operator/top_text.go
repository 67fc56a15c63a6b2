package operator

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin/dispatcher"
)

// Lines are the text for people: rows of cells. A row of one cell is a sentence.
func (v Activity) Lines(cluster string) [][]string {
	var nodes, notes [][]string
	for _, n := range v.Nodes {
		if n.Error == "" {
			nodes = append(nodes, n.line(v.Seconds > 0))
		} else {
			notes = append(notes, []string{fmt.Sprintf("note: %s does not answer: %s", titleOf(n), n.Error)})
		}
	}
	rates := "no rates yet"
	if v.Seconds > 0 {
		rates = fmt.Sprintf("rates over %.1fs: %s delivered/s, %s failed/s, %s dead/s", v.Seconds, rate(v.Total.Delivered), rate(v.Total.Failed), rate(v.Total.Dead))
	}
	lines := [][]string{{fmt.Sprintf("cluster %s at %s: %d of %d nodes answer; %s", cluster, v.At.UTC().Format("2006-01-02 15:04:05Z"), len(nodes), len(v.Nodes), rates)}}
	lines = append(lines, []string{""}, []string{"BIZ TYPE", "DELIVERED/S", "FAILED/S", "DEAD/S", "LATE 50%", "LATE 99%", "RUNNING", "QUEUED", "LANE", "OVERDUE", "OLDEST", "DRAINED IN"})
	for _, t := range v.Types {
		row := t.line(v.Seconds > 0)
		if t.Overdue != nil && slices.ContainsFunc(v.Servers, func(s ServerTrouble) bool { return s.Figures >= stale.Seconds() }) {
			row[9] += "?"
		}
		lines = append(lines, row)
	}
	lines = append(lines, []string{""}, []string{"NODE", "GROUP", "MODE", "TABLES", "WANTED", "DELIVERED/S", "FAILED/S", "IN HAND", "UNSETTLED", "FOR"})
	lines = append(append(lines, nodes...), notes...)
	for _, s := range v.Servers {
		lines = append(lines, []string{"note: server " + s.Name + " " + s.trouble().Text})
	}
	for _, g := range v.Groups {
		lines = append(lines, []string{fmt.Sprintf("note: group %s has no node: nobody but the sweeper delivers its %d biz types", g.Name, g.Types)})
	}
	for _, note := range v.Notes {
		lines = append(lines, []string{"note: " + note})
	}
	return lines
}

// trouble says what is wrong with a server.
func (s ServerTrouble) trouble() Sentence {
	var is []Sentence
	switch {
	case s.Away == 1:
		is = append(is, sentence("does not answer a node"))
	case s.Away > 1:
		is = append(is, sentence("does not answer %d nodes", s.Away))
	}
	if s.Waiting >= hangs.Seconds() {
		is = append(is, sentence("has not answered a statement for %s", span(secondsOf(s.Waiting))))
	}
	if s.Figures >= stale.Seconds() {
		is = append(is, sentence("has overdue figures that are %s old", span(secondsOf(s.Figures))))
	}
	if len(is) == 0 {
		return Sentence{}
	}
	for len(is) > 1 {
		is = append([]Sentence{sentence("%s, and %s", is[0], is[1])}, is[2:]...)
	}
	return is[0]
}

func titleOf(n NodeActivity) string {
	if n.ID == n.Address || n.Address == "" {
		return n.ID
	}
	return n.ID + " at " + n.Address
}

func (t TypeActivity) line(rates bool) []string {
	row := []string{t.Name, "-", "-", "-", atMost(t.Late50), atMost(t.Late99), strconv.Itoa(t.Running) + "/" + strconv.Itoa(t.Limit), strconv.Itoa(t.Queued), t.State, "-", "-", "-"}
	if t.Waiters != nil && t.State == laneOrder[0] {
		row[8] = fmt.Sprintf("%s, %d ask", t.State, *t.Waiters)
	}
	if t.Throttled > 0 && t.State == string(dispatcher.Busy) {
		row[8] = fmt.Sprintf("%s, %s/s", t.State, perSecond(t.Throttled))
	}
	if rates {
		copy(row[1:], []string{rate(t.Delivered), rate(t.Failed), rate(t.Dead)})
	}
	if t.Overdue != nil {
		row[9] = strconv.FormatFloat(*t.Overdue, 'f', 0, 64)
	}
	if t.Age > 0 {
		row[10] = seconds(t.Age)
	}
	if t.Drain != nil && t.Age > 0 {
		row[11] = seconds(*t.Drain)
	}
	return row
}

func (n NodeActivity) line(rates bool) []string {
	row := []string{n.ID, orDash(n.Group), orDash(n.Mode), strconv.Itoa(n.Tables), strconv.Itoa(n.Wanted), "-", "-", strconv.Itoa(n.Open), strconv.Itoa(n.Unsettled), "-"}
	if rates {
		row[5], row[6] = rate(n.Delivered), rate(n.Failed)
	}
	if n.Unsettled > 0 {
		row[9] = seconds(n.Oldest)
	}
	return row
}

// atMost writes the bound of a bucket.
func atMost(s *float64) string {
	if s == nil {
		return "-"
	}
	return "<" + time.Duration(*s*float64(time.Second)).String()
}

// rate writes figures per second: small ones with a digit more.
func rate(r float64) string {
	if r > 0 && r < 10 {
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return strconv.FormatFloat(r, 'f', 0, 64)
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
