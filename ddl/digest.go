package ddl

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
)

// digest is what two copies of a table must agree in.
type digest struct {
	counts string // of tasks by status, with the highest job_id
	sums   string // of the rows that may still be delivered
}

// digest reads a task table, under whichever name it has.
func (c *dbCopy) digest(ctx context.Context, name string) (d digest, err error) {
	var rows []struct {
		Status  int    `db:"status"`
		Tasks   int    `db:"tasks"`
		Highest uint64 `db:"highest"`
	}
	if err := c.DB.SelectContext(ctx, &rows, inTable(c.name(), c.standing(name), countTasks)); err != nil {
		return d, fmt.Errorf("count %s of %s: %w", name, c.where(), err)
	}
	counts := make([]string, len(rows))
	for i, r := range rows {
		counts[i] = fmt.Sprintf("%d tasks of status %d up to job_id %d", r.Tasks, r.Status, r.Highest)
	}
	d.counts = strings.Join(counts, ", ")
	d.sums, err = c.sum(ctx, name, sumTasks)
	return d, err
}

// sum runs sumTasks, sumTypes, sumRelayed, sumSchedules or spanRuns on a table, under whichever name it has.
func (c *dbCopy) sum(ctx context.Context, name, query string) (string, error) {
	var rows, sum, xor uint64
	if err := c.DB.QueryRowContext(ctx, inTable(c.name(), c.standing(name), query)).Scan(&rows, &sum, &xor); err != nil {
		return "", fmt.Errorf("sum up %s of %s: %w", name, c.where(), err)
	}
	return fmt.Sprintf("%d rows, %d, %d", rows, sum, xor), nil
}

// differences names in what two copies of a database differ, first in their
// tables, then, where these are alike, in their rows.
func (p *pair) differences(ctx context.Context, want expectations, parallel int, done func(int)) ([]Finding, error) {
	r := report{server: p.to.Name}
	if p.versions(&r); len(r.findings) > 0 {
		return r.findings, nil
	}
	version := knownVersion(p.from.rows[p.from.db].Version)
	for _, c := range []*dbCopy{p.from, p.to} {
		found, err := c.structures(ctx)
		if err != nil {
			return nil, err
		}
		side := report{server: c.Name}
		for _, t := range tablesAt(c.layout, c.db, version) {
			side.table(t.full(), want[version][t.file], found[t.name])
		}
		r.findings = append(r.findings, side.findings...)
	}
	if len(r.findings) > 0 {
		return r.findings, nil
	}
	p.layouts(&r)
	if err := p.whole(ctx, &r, version); err != nil {
		return nil, err
	}
	return r.findings, p.rows(ctx, &r, parallel, done)
}

// versions compares the schema versions. Copies of different ones differ in every table.
func (p *pair) versions(r *report) {
	from, to := p.from.rows[p.from.db].Version, p.to.rows[p.to.db].Version
	if from != to {
		r.add(p.to.name(), fmt.Sprintf("has schema version %d, on %s it has %d: drop it, and copy it again from there, all tables; `tocsin ddl apply` migrates it after the move",
			to, p.from.Name, from))
	}
}

// layouts compares both layout rows, except for the state and the mark: nodes raise the mark of the one in use.
func (p *pair) layouts(r *report) {
	from, to := p.from.rows[p.from.db], p.to.rows[p.to.db]
	from.State, to.State = "", ""
	from.Mark, to.Mark = 0, 0
	if from != to {
		r.add(p.to.name()+".layout", fmt.Sprintf("is %+v, on %s it is %+v", to, p.from.Name, from))
	}
}

// whole compares the tables that are compared as a whole.
func (p *pair) whole(ctx context.Context, r *report, version int) error {
	for _, t := range []struct{ name, query string }{{"biz_type", sumTypes}, {"relayed", sumRelayed}, {"schedule", sumSchedules}, {"run", spanRuns}, {"act", spanActs}} {
		if since(t.name) > version {
			continue
		}
		from, err := p.from.sum(ctx, t.name, t.query)
		if err != nil {
			return err
		}
		to, err := p.to.sum(ctx, t.name, t.query)
		if err != nil {
			return err
		}
		if from != to {
			r.add(p.to.name()+"."+t.name, "differs from that on "+p.from.Name)
		}
	}
	return nil
}

// rows compares the task tables, several at a time.
func (p *pair) rows(ctx context.Context, r *report, parallel int, done func(int)) error {
	found := make([]string, p.from.layout.Tables)
	err := atOnce(ctx, parallel, len(found), func(ctx context.Context, n int) (err error) {
		found[n], err = p.compareTable(ctx, p.from.layout.TableName(n))
		done(1)
		return err
	})
	if err != nil {
		return err
	}
	for n, detail := range found {
		if detail != "" {
			r.add(p.to.name()+"."+p.to.layout.TableName(n), detail)
		}
	}
	return nil
}

// compareTable says in what the copies of a table differ; "" is nothing.
func (p *pair) compareTable(ctx context.Context, name string) (string, error) {
	var from, to digest
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { from, err = p.from.digest(ctx, name); return err })
	g.Go(func() (err error) { to, err = p.to.digest(ctx, name); return err })
	switch err := g.Wait(); {
	case err != nil:
		return "", err
	case from.counts != to.counts:
		return fmt.Sprintf("holds %s, on %s %s", cmp.Or(to.counts, "no task"), p.from.Name, cmp.Or(from.counts, "no task")), nil
	case from.sums != to.sums:
		return "holds as many tasks as on " + p.from.Name + ", but other ones", nil
	}
	return "", nil
}
