package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/store"
	"github.com/tocsinhq/tocsin/tocsinpg"
	"github.com/tocsinhq/tocsin/upkeep"
)

func (a *app) auditOutboxes(ctx context.Context, f auditFlags) error {
	switch {
	case f.older < 0:
		return usage("--older: want a time above 0")
	case f.all || f.name != "" || f.against != "":
		return usage("--outbox excludes --all, --type and --against: it checks no rows of tasks")
	}
	if err := f.out.check(false); err != nil {
		return err
	}
	file, err := a.load()
	if err != nil {
		return err
	}
	policies, err := biztype.LoadStored(ctx, file.Tocsin())
	if err != nil {
		return err
	}
	tables, err := store.Connect(ctx, file.Tocsin())
	if err != nil {
		return err
	}
	defer tables.Close()
	boxes, err := openOutboxes(file)
	if err != nil {
		return err
	}
	defer closeOutboxes(boxes)
	report, failed := upkeep.AuditOutboxes(ctx, upkeep.OutboxConfig{Store: tables, Outboxes: boxes, Policies: policies, Older: f.older})
	if left := f.out.once(ctx, "audit_outbox", file, report.Ended(failed == nil)); left != nil {
		failed = errors.Join(failed, left)
	}
	if err := a.print(report, func(w io.Writer) { writeOutboxReport(w, report) }); err != nil {
		return err
	}
	if failed == nil && len(report.Findings) > 0 {
		return errSilent
	}
	return failed
}

// openOutboxes opens the outboxes of the config. It connects to none.
func openOutboxes(file config.File) (boxes []*outbox.Outbox, err error) {
	for _, cfg := range tocsinpg.Drive(file.Relayed()) {
		box, err := outbox.Open(cfg)
		if err != nil {
			closeOutboxes(boxes)
			return nil, err
		}
		boxes = append(boxes, box)
	}
	return boxes, nil
}

func closeOutboxes(boxes []*outbox.Outbox) {
	for _, box := range boxes {
		_ = box.Close()
	}
}

func writeOutboxReport(w io.Writer, r upkeep.OutboxReport) {
	waiting := fmt.Sprintf("%d rows wait in %d outboxes", r.Waiting, r.Outboxes)
	if r.Outboxes == 0 && len(r.Failed) == 0 {
		waiting = "the config has no outboxes"
	}
	fmt.Fprintf(w, "audit: %s; %d moved tasks looked for, %d of them may be purged, %s; %d statements that took %s, %s in all\n",
		said(r.Faults, r.Failed), r.Moved, r.Purged, waiting,
		r.Cost.Statements, r.Cost.Busy.Round(time.Millisecond), r.Cost.Took.Round(time.Millisecond))
	if len(r.Findings) == 0 {
		return
	}
	rows := [][]string{{"WHERE", "FAULT", "ROWS", "JOB_IDS OR IDS"}}
	for _, f := range r.Findings {
		ids := f.Examples
		if f.Rows > len(ids) {
			ids = append(slices.Clone(ids), "...")
		}
		rows = append(rows, []string{f.Where, f.Fault, strconv.Itoa(f.Rows), strings.Join(ids, " ")})
	}
	columns(w, rows...)
}

// said begins the summary of an audit.
func said(faults map[string]int, failed []string) string {
	words := make([]string, 0, len(faults))
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		words = append(words, name+" "+strconv.Itoa(faults[name]))
	}
	text := "all fits"
	switch {
	case len(words) > 0:
		text = strings.Join(words, ", ")
	case len(failed) > 0:
		text = "no fault in what could be read"
	}
	if len(failed) > 0 {
		text += "; not read in full: " + strings.Join(failed, ", ")
	}
	return text
}
