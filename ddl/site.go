package ddl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/jmoiron/sqlx"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// site is one server and what stood on it when it was surveyed.
type site struct {
	*mysql.Server
	layout    tocsin.Layout
	databases map[int]bool      // database numbers that exist
	tables    map[string]bool   // full names, toc_0.task_0000
	rows      map[int]layoutRow // stored layout rows by database number
}

// openSites makes a pool per server, with connections for parallel statements, a lock, and a query for what waits. The
// caller closes them.
func openSites(cfg tocsin.Config, parallel int) ([]*site, error) {
	servers, err := client.OpenServers(cfg, parallel+2)
	var sites []*site
	for _, server := range servers {
		sites = append(sites, &site{
			Server: server, layout: cfg.Layout,
			databases: map[int]bool{}, tables: map[string]bool{}, rows: map[int]layoutRow{},
		})
	}
	return sites, err
}

// surveySites opens the sites and surveys them. The caller closes them.
func surveySites(ctx context.Context, cfg tocsin.Config, parallel int) ([]*site, error) {
	sites, err := openSites(cfg, parallel)
	if err != nil {
		return nil, err
	}
	if err := each(sites, func(s *site) error { return s.survey(ctx) }); err != nil {
		return nil, errors.Join(err, closeSites(sites))
	}
	return sites, nil
}

func closeSites(sites []*site) error {
	var errs []error
	for _, s := range sites {
		errs = append(errs, s.DB.Close())
	}
	return errors.Join(errs...)
}

// each runs fn for every site at once and joins the errors: one server that
// fails stops no other.
func each(sites []*site, fn func(*site) error) error {
	errs := make([]error, len(sites))
	var wg sync.WaitGroup
	for i, s := range sites {
		wg.Go(func() { errs[i] = fn(s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// atOnce runs do for 0 to n-1, several of them at once, until one fails.
func atOnce(ctx context.Context, several, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(several)
	for i := range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, i)
		})
	}
	return g.Wait()
}

// progress tells how much of something is done.
type progress struct {
	mu          sync.Mutex // guards what follows, and calls of tell
	done, total int
	tell        func(done, total int) // nil: nobody is told
}

// add adds to what is done, and to what there is to do.
func (p *progress) add(done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total = p.done+done, p.total+total
	if done > 0 && p.tell != nil {
		p.tell(min(p.done, p.total), p.total)
	}
}

// exec runs a statement, again if transactions of others stood in its way, and returns how many rows it changed.
func (s *site) exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	err = mysql.Retry(ctx, func() error {
		result, err := s.DB.ExecContext(ctx, query, args...)
		if err == nil {
			changed, err = result.RowsAffected()
		}
		return err
	})
	return changed, err
}

// survey reads which databases, tables and layout rows exist.
func (s *site) survey(ctx context.Context) error {
	if err := s.surveyDatabases(ctx); err != nil {
		return err
	}
	for db := range s.databases {
		if err := s.surveyTables(ctx, db); err != nil {
			return err
		}
		if !s.tables[s.layout.Database(db)+"."+layoutTable] {
			continue
		}
		if err := s.surveyLayout(ctx, db); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) surveyDatabases(ctx context.Context) error {
	if len(s.Databases) == 0 {
		return nil
	}
	number := map[string]int{}
	var names []string
	for _, db := range s.Databases {
		number[s.layout.Database(db)] = db
		names = append(names, s.layout.Database(db))
	}
	query, args, err := sqlx.In(selectDatabases, names)
	if err != nil {
		return err
	}
	var found []string
	if err := s.DB.SelectContext(ctx, &found, query, args...); err != nil {
		return fmt.Errorf("server %s: list databases: %w", s.Name, err)
	}
	form, err := s.known(ctx)
	if err != nil {
		return err
	}
	for _, name := range found { // MariaDB compares without regard to case here, also if these are two databases
		if db, ours := number[form(name)]; ours {
			s.databases[db] = true
		}
	}
	return nil
}

func (s *site) surveyTables(ctx context.Context, db int) error {
	name := s.layout.Database(db)
	var found []string
	if err := s.DB.SelectContext(ctx, &found, selectTables, name); err != nil {
		return fmt.Errorf("list tables of %s: %w", s.place(db), err)
	}
	for _, table := range found {
		s.tables[name+"."+table] = true
	}
	return nil
}

func (s *site) surveyLayout(ctx context.Context, db int) error {
	row, err := s.readLayout(ctx, db)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err == nil {
		s.rows[db] = row
	}
	return err
}

// readLayout reads the layout row of one database; sql.ErrNoRows: none yet.
func (s *site) readLayout(ctx context.Context, db int) (layoutRow, error) {
	var row layoutRow
	err := s.DB.GetContext(ctx, &row, in(s.layout.Database(db), selectLayout))
	if mysql.ColumnMissing(err) {
		oldest := fill(selectOldest, slots{"database": s.layout.Database(db), "oldest": layoutrow.OldestSchema})
		if s.DB.GetContext(ctx, &row, oldest) == nil {
			return row, nil // whoever uses it sees the version
		}
	}
	if err != nil {
		return row, fmt.Errorf("read layout of %s: %w", s.place(db), err)
	}
	return row, nil
}

// place names a database in messages, "toc_3 on server db2".
func (s *site) place(db int) string { return s.layout.Database(db) + " on server " + s.Name }
