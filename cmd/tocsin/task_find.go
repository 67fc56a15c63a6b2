package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

// maxFound is the most tasks that are listed by status.
const maxFound = 10_000

// byStatus is the flags that name tasks of all tables.
type byStatus struct {
	status string
	name   string // of a biz type; "": all
	limit  int
}

// listByStatus lists tasks of all tables: live ones by action time, the earliest
// first; finished ones from the latest on.
func (a *app) listByStatus(ctx context.Context, by byStatus) error {
	var status tocsin.Status
	if err := status.UnmarshalText([]byte(by.status)); err != nil {
		return usage("--%w", err)
	}
	if by.limit < 1 || by.limit > maxFound {
		return usage("--limit %d: use 1 to %d", by.limit, maxFound)
	}
	types, err := a.knownTypes(ctx)
	if err != nil {
		return err
	}
	q := store.FindQuery{Status: status, Latest: status.Final(), Limit: by.limit}
	if by.name != "" {
		number, err := types.number(by.name)
		if err != nil {
			return err
		}
		q.Types = []uint64{number}
	}
	tables, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer tables.Close()
	infos, failed := findTasks(ctx, tables, types, q)
	if len(infos) == 0 && failed != nil {
		return failed
	}
	return errors.Join(a.printTasks("no "+by.status+" tasks", infos), failed)
}

// findTasks asks all servers at once. What can't be read is named in the error.
func findTasks(ctx context.Context, tables *store.Store, types typeNames, q store.FindQuery) ([]tocsin.Info, error) {
	found := make([][]tocsin.Info, len(tables.Servers()))
	errs := make([]error, len(found))
	var all sync.WaitGroup
	for server := range found {
		q.Server = server
		all.Go(func() { found[server], errs[server] = findOn(ctx, tables, types, q) })
	}
	all.Wait()
	infos := slices.Concat(found...)
	slices.SortFunc(infos, func(a, b tocsin.Info) int {
		if q.Latest {
			a, b = b, a
		}
		return cmp.Or(a.ActionTime.Compare(b.ActionTime), cmp.Compare(a.JobID, b.JobID))
	})
	return infos[:min(len(infos), q.Limit)], errors.Join(errs...)
}

// lookAtOnce is how many rows are read at once.
const lookAtOnce = 500

// findOn gives the tasks of one server that are still in the status.
func findOn(ctx context.Context, tables *store.Store, types typeNames, q store.FindQuery) ([]tocsin.Info, error) {
	entries, failed := tables.Find(ctx, q)
	var infos []tocsin.Info
	for chunk := range slices.Chunk(entries, lookAtOnce) {
		rows, err := tables.Look(ctx, q.Server, jobIDs(chunk))
		if err != nil {
			return infos, errors.Join(failed, err)
		}
		for _, row := range rows {
			if row.Status == q.Status {
				row.BizType = types.name(row.Type)
				infos = append(infos, row.Info)
			}
		}
	}
	return infos, failed
}

func jobIDs(entries []duequeue.Entry) []tocsin.JobID {
	ids := make([]tocsin.JobID, len(entries))
	for i, e := range entries {
		ids[i] = e.JobID
	}
	return ids
}

// typeNames are the names of the stored biz types, by number.
type typeNames map[uint64]string

func (a *app) knownTypes(ctx context.Context) (typeNames, error) {
	cfg, err := a.cluster()
	if err != nil {
		return nil, err
	}
	policies, err := biztype.Load(ctx, cfg)
	if err != nil {
		return nil, err
	}
	names := make(typeNames, len(policies))
	for _, p := range policies {
		names[p.Number] = p.Name
	}
	return names, nil
}

// name gives "#7" where number 7 has no name.
func (t typeNames) name(number uint64) string {
	if name, ok := t[number]; ok {
		return name
	}
	return "#" + strconv.FormatUint(number, 10)
}

func (t typeNames) number(name string) (uint64, error) {
	for number, known := range t {
		if known == name {
			return number, nil
		}
	}
	return 0, fmt.Errorf("unknown biz type %q: `tocsin biz list` names those that are applied", name)
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
