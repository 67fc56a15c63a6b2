package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// closedAfter is how long a database that turned wrong may still be written to, over
// connections that had found it right: two looks at it, plus statements on their way.
const closedAfter = 4 * time.Second

// wrongDatabase makes one database look like another cluster's, or takes its layout
// table away, for a while. It records writes to the database meanwhile.
func (s *Site) wrongDatabase(ctx context.Context, step Step) error {
	d, name := s.databases[step.Server], s.opts.Layout.Database(step.Database)
	harm, mend := wrongSQL, rightSQL
	if step.Fault == NoLayout {
		harm, mend = hideSQL, showSQL
	}
	render := strings.NewReplacer("{database}", name, "{cluster}", s.opts.Layout.Prefix)
	if err := d.exec(ctx, render.Replace(harm)); err != nil {
		return err
	}
	failed := s.watchClosed(ctx, step)
	if err := d.exec(context.WithoutCancel(ctx), render.Replace(mend)); err != nil {
		return err
	}
	return failed
}

// watchClosed waits for the fault's length. It compares the tables at its end with
// the tables as they were once every process should know of the fault.
func (s *Site) watchClosed(ctx context.Context, step Step) error {
	d, name := s.databases[step.Server], s.opts.Layout.Database(step.Database)
	begin := time.Now()
	if loop.Wait(ctx, closedAfter) != nil {
		return nil
	}
	from := time.Now()
	before, err := d.sums(ctx, name)
	if err != nil {
		return err
	}
	if loop.WaitUntil(ctx, begin.Add(step.Length)) != nil {
		return nil
	}
	after, err := d.sums(ctx, name)
	if err != nil {
		return err
	}
	if tables := changed(before, after); len(tables) > 0 {
		s.log.intrude(incident{Step: step, tables: tables, from: from, to: time.Now()})
	}
	return nil
}

// sums returns the checksums of all tables of a database.
func (d *database) sums(ctx context.Context, name string) (map[string]string, error) {
	tables, err := readAll[string](ctx, d.direct, d.String(), tablesSQL, name)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, table := range tables {
		var full, sum string
		query := strings.NewReplacer("{database}", name, "{table}", table).Replace(sumSQL)
		if err := d.direct.QueryRowContext(ctx, query).Scan(&full, &sum); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", d, query, err)
		}
		all[table] = sum
	}
	return all, nil
}

// changed names the tables that differ, are new, or are gone.
func changed(before, after map[string]string) (tables []string) {
	for table := range after {
		if before[table] != after[table] {
			tables = append(tables, table)
		}
	}
	for table := range before {
		if _, there := after[table]; !there {
			tables = append(tables, table)
		}
	}
	slices.Sort(tables)
	return slices.Compact(tables)
}
