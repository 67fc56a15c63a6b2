package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
)

// byStatus is the flags that name tasks of all tables.
type byStatus struct {
	status string
	name   string // of a biz type; "": all
	limit  int
}

// listByStatus lists tasks of all tables.
func (a *app) listByStatus(ctx context.Context, by byStatus) error {
	q := operator.Query{BizType: by.name, Limit: by.limit}
	if err := q.Status.UnmarshalText([]byte(by.status)); err != nil {
		return usage("--%w", err)
	}
	if by.limit < 1 || by.limit > operator.MaxFound {
		return usage("--limit %d: use 1 to %d", by.limit, operator.MaxFound)
	}
	o, err := a.operator(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	infos, failed := o.Find(ctx, q)
	if len(infos) == 0 && nothingRead(failed) {
		return failed
	}
	return errors.Join(a.printTasks("no "+by.status+" tasks"+inWhat(failed), infos), failed)
}

// nothingRead reports whether an error leaves nothing to print: no server could be read in full.
func nothingRead(failed error) bool {
	var partial *operator.Partial
	return failed != nil && (!errors.As(failed, &partial) || partial.All)
}

// inWhat follows what was not found: beside an error that is certain of a part only.
func inWhat(failed error) string {
	if failed != nil {
		return " in what could be read"
	}
	return ""
}

// printTasks lists tasks, or says none.
func (a *app) printTasks(none string, infos []tocsin.Info) error {
	if infos == nil {
		infos = []tocsin.Info{} // in JSON [], not null
	}
	return a.print(infos, func(w io.Writer) {
		if len(infos) == 0 {
			fmt.Fprintln(w, none)
		}
		writeTasks(w, infos, time.Now())
	})
}
