package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/upkeep"
)

// missingTasks is the JSON of `audit --against`.
type missingTasks struct {
	Type   string        `json:"biz_type"`
	Asked  int           `json:"asked"`   // biz_ids
	BizIDs []string      `json:"missing"` // without a task
	Unread int           `json:"unread"`  // biz_ids of tables that could not be read
	Took   time.Duration `json:"took_ns"`
}

func (a *app) auditAgainst(cmd *cobra.Command, f auditFlags) error {
	if f.against == "" || f.name == "" {
		return usage("--type and --against need each other: see `%s --help`", cmd.CommandPath())
	}
	in := cmd.InOrStdin()
	if f.against != "-" {
		file, err := os.Open(f.against)
		if err != nil {
			return usage("--against: %w", err)
		}
		defer file.Close()
		in = file
	}
	file, err := a.load()
	if err != nil {
		return err
	}
	policies, tables, err := openAudit(cmd.Context(), file)
	if err != nil {
		return err
	}
	defer tables.Close()
	missing, failed := upkeep.Against(cmd.Context(), tables, policies, f.name, readBizIDs(in, f.against))
	if failed != nil && missing.Asked == 0 {
		return failed
	}
	if err := a.printMissing(missing); err != nil || failed != nil {
		return errors.Join(failed, err)
	}
	if len(missing.BizIDs) > 0 {
		return errSilent
	}
	return nil
}

func (a *app) printMissing(m upkeep.Missing) error {
	text := missingTasks{Type: m.Type, Asked: m.Asked, BizIDs: make([]string, len(m.BizIDs)), Unread: m.Unread, Took: m.Took}
	for i, bizID := range m.BizIDs {
		text.BizIDs[i] = strconv.FormatUint(bizID, 10)
	}
	return a.print(text, func(w io.Writer) {
		fmt.Fprintf(w, "audit: %d of %d biz_ids have no task %s, %d could not be looked up, took %s\n",
			len(m.BizIDs), m.Asked, m.Type, m.Unread, m.Took.Round(time.Millisecond))
		for _, bizID := range text.BizIDs {
			fmt.Fprintln(w, bizID)
		}
	})
}

// readBizIDs reads one biz_id from each line; blank lines are left out.
func readBizIDs(in io.Reader, name string) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		lines := bufio.NewScanner(in)
		for n := 1; lines.Scan(); n++ {
			word := strings.TrimSpace(lines.Text())
			if word == "" {
				continue
			}
			bizID, err := strconv.ParseUint(word, 10, 64)
			if err != nil || bizID == 0 {
				yield(0, usage("%s:%d: %.40q is no biz_id: want a decimal number in each line", name, n, word))
				return
			}
			if !yield(bizID, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(0, fmt.Errorf("read %s: %w", name, err))
		}
	}
}
