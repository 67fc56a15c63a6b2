package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/why"
)

// timeText is how a time stands in the text for people: UTC, as in the tables.
const timeText = "2006-01-02 15:04:05.000Z"

// writeTasks writes a line for each task.
func writeTasks(w io.Writer, infos []tocsin.Info, now time.Time) {
	rows := make([][]string, len(infos))
	for i, info := range infos {
		rows[i] = taskRow(info, now)
	}
	columns(w, rows...)
}

// taskRow gives the cells of a task; those that say nothing are left out at its
// end.
func taskRow(i tocsin.Info, now time.Time) []string {
	row := []string{
		"job_id " + i.JobID.String(), i.BizType, subject(i), i.Status.String(),
		whenText(i, now), "attempts " + strconv.Itoa(i.Attempts),
	}
	if i.Crashes > 0 {
		row = append(row, "crashes "+strconv.Itoa(i.Crashes))
	}
	if i.LastError != "" {
		row = append(row, "last error: "+oneCell(i.LastError))
	}
	return row
}

// subject names what a task is about.
func subject(i tocsin.Info) string {
	if i.BizKey != "" {
		return "key " + oneCell(i.BizKey)
	}
	return "biz_id " + strconv.FormatUint(i.BizID, 10)
}

// whenText says what action_time means in the task's status.
func whenText(i tocsin.Info, now time.Time) string {
	at := i.ActionTime.UTC().Format(timeText)
	switch i.Status {
	case tocsin.Pending:
		return "due " + at + " (" + away(i.ActionTime.Sub(now)) + ")"
	case tocsin.Claimed:
		return "claimed until " + at
	}
	return i.Status.String() + " " + at
}

// away gives a time relative to now, in no more detail than people want.
func away(d time.Duration) string {
	if d < 0 {
		return why.Short(-d) + " ago"
	}
	return "in " + why.Short(d)
}

// writeTask writes everything about one task, a field a line.
func writeTask(w io.Writer, i tocsin.Info, now time.Time) {
	rows := [][]string{
		{"job_id", i.JobID.String()},
		{"biz type", i.BizType},
		{"biz_id", strconv.FormatUint(i.BizID, 10)},
		{"key", oneCell(i.BizKey)},
		{"table", i.Table},
		{"status", i.Status.String()},
		{"action time", i.ActionTime.UTC().Format(timeText) + " (" + away(i.ActionTime.Sub(now)) + ")"},
		{"due time", i.DueTime.UTC().Format(timeText)},
		{"schedule", oneCell(i.Schedule)},
		{"fire time", fireText(i.FireTime)},
		{"attempts", strconv.Itoa(i.Attempts)},
		{"crashes", strconv.Itoa(i.Crashes)},
		{"version", strconv.FormatUint(uint64(i.Version), 10)},
		{"claimed by", oneCell(i.ClaimedBy)},
		{"dedup key", quoted(i.DedupKey)},
		{"last error", oneCell(i.LastError)},
		{"created", i.Created.UTC().Format(timeText)},
		{"modified", i.Modified.UTC().Format(timeText)},
		{"headers", oneCell(string(i.Headers))},
		{"payload version", strings.TrimPrefix(strconv.Itoa(i.PayloadVersion), "0")},
		{"payload", oneCell(i.Payload)},
	}
	var said [][]string
	for _, row := range rows {
		if row[1] != "" {
			said = append(said, row)
		}
	}
	columns(w, said...)
}

// fireText shows a fire time; "" if there is none.
func fireText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeText)
}

// oneCell keeps foreign text from breaking lines and columns, or steering the
// terminal.
func oneCell(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// quoted shows bytes as they are; "" stays empty.
func quoted(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("%q", s)
}
