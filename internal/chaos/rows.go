package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
)

// row is a task as its table has it.
type row struct {
	JobID     tocsin.JobID
	BizID     uint64
	BizType   uint64
	Status    tocsin.Status
	Action    time.Time
	Due       time.Time
	Attempts  int
	Crashes   int
	Version   uint32
	ClaimedBy string
	LastError string
}

// String is for a breach's trace.
func (r row) String() string {
	text := fmt.Sprintf("row: %s, attempts %d, crashes %d, version %d, action_time %s, due_time %s",
		r.Status, r.Attempts, r.Crashes, r.Version, r.Action.Format(clockForm), r.Due.Format(clockForm))
	if r.ClaimedBy != "" {
		text += ", claimed by " + r.ClaimedBy
	}
	if r.LastError != "" {
		text += ", last error " + r.LastError
	}
	return text
}

// clockForm is how traces and schedules show a time of day.
const clockForm = "15:04:05.000"

// open counts the tasks without a final state.
func (s *Site) open(ctx context.Context) (int, error) {
	total := 0
	for table := range s.opts.Layout.Total() {
		var n int
		d := s.databaseOf(table)
		query := strings.ReplaceAll(openSQL, "{table}", s.opts.Layout.Table(table))
		if err := d.direct.QueryRowContext(ctx, query).Scan(&n); err != nil {
			return 0, fmt.Errorf("count %s of server db%d: %w", s.opts.Layout.Table(table), d.number, err)
		}
		total += n
	}
	return total, nil
}

// rows reads every task, by biz_id, and those that share one with another.
func (s *Site) rows(ctx context.Context) (map[uint64]row, []row, error) {
	all, err := s.allRows(ctx)
	if err != nil {
		return nil, nil, err
	}
	rows, doubles := byBizID(all)
	return rows, doubles, nil
}

// allRows reads every task.
func (s *Site) allRows(ctx context.Context) ([]row, error) {
	parts := make([][]row, s.opts.Layout.Total())
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for table := range parts {
		g.Go(func() (err error) {
			parts[table], err = s.rowsOf(ctx, table)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(parts...), nil
}

// byBizID returns the first row of each biz_id, and the others.
func byBizID(rows []row) (map[uint64]row, []row) {
	all := map[uint64]row{}
	var doubles []row
	for _, r := range rows {
		if _, known := all[r.BizID]; known {
			doubles = append(doubles, r)
			continue
		}
		all[r.BizID] = r
	}
	return all, doubles
}

func (s *Site) rowsOf(ctx context.Context, table int) ([]row, error) {
	name, d := s.opts.Layout.Table(table), s.databaseOf(table)
	found, err := d.direct.QueryContext(ctx, strings.ReplaceAll(rowsSQL, "{table}", name))
	if err != nil {
		return nil, fmt.Errorf("read %s of server db%d: %w", name, d.number, err)
	}
	defer func() { _ = found.Close() }()
	rows, err := scanRows(found)
	if err != nil {
		return nil, fmt.Errorf("read %s of server db%d: %w", name, d.number, err)
	}
	return rows, nil
}

func scanRows(found *sql.Rows) (all []row, err error) {
	for found.Next() {
		var r row
		err := found.Scan(&r.JobID, &r.BizID, &r.BizType, &r.Status, &r.Action, &r.Due, &r.Attempts, &r.Crashes, &r.Version,
			&r.ClaimedBy, &r.LastError)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, found.Err()
}
