package ddl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// markLag is how long a database may have been used after the last time known of it: marks are raised, and kept elsewhere, about
// every 10 s, and nodes take up to 5 s to see that a database is held.
const markLag = 20 * time.Second

// AllTypes, as a biz type of RestoreOptions, means every one.
const AllTypes = "all"

// RestoreOptions says which databases to judge, and what becomes of their tasks. The zero value judges all.
type RestoreOptions struct {
	Databases []string      // names; none: all
	Kept      map[int]int64 // marks kept outside of the servers, by database number
	Until     time.Time     // tasks that were due until then count as settled; not in the future; zero: 20 s after the last time known of their database, at most now
	Dead      []string      // biz types whose tasks that count as settled become dead, or AllTypes
	Cancelled []string      // the same, cancelled
	Parallel  int           // connections to each server, 1 to 64; 0: 4
	Progress  func(done, total int)
}

// Restored is what is known of a database that may be an older copy of itself.
type Restored struct {
	Database string
	Server   string
	State    string // of its layout row
	Older    bool   // it lacks what happened since Ends
	Ends     time.Time
	Known    time.Time // the last time known of it; zero: nobody knows one
	Knows    string    // where that is kept
	Until    time.Time // tasks that were due until then count as settled
	Types    []RestoredType
	Added    int      // estimate of the tasks that were added between Ends and Known and are missing; -1: not known
	Stale    []string // biz types whose policy is newer in other databases
}

// Waits reports whether the database is not used until an operator decides.
func (r Restored) Waits() bool { return r.Older || r.State == layoutrow.Held }

// RestoredType counts the tasks of a biz type in one database.
type RestoredType struct {
	Type      string `json:"biz_type"`
	Settled   int    `json:"settled"` // may be delivered, were in delivery or due until Until: they were probably settled, and are delivered again
	Due       int    `json:"due"`     // were due since
	Later     int    `json:"later"`   // are not due yet
	Dead      int    `json:"dead"`
	Killed    int    `json:"to_dead"`      // of Settled, become dead
	Cancelled int    `json:"to_cancelled"` // of Settled, become cancelled
}

// restore is the work on some databases of some servers.
type restore struct {
	opt    RestoreOptions
	layout tocsin.Layout
	sites  []*site // that answered
	copies []*restored
	types  map[uint64]bizType // newest of each

	progress progress // in tables
}

// restored is one database to judge.
type restored struct {
	*dbCopy
	row   layoutRow
	known int64
	types map[uint64]bizType
	found Restored
}

type bizType struct {
	Number   uint64 `db:"number"`
	Name     string `db:"name"`
	Revision uint64 `db:"revision"`
}

// CheckRestored says which databases are older copies of themselves, or are held, and what would become of their tasks.
// It changes nothing. The error names the servers that could not be read; the result is of the others.
func CheckRestored(ctx context.Context, cfg tocsin.Config, opt RestoreOptions) ([]Restored, error) {
	r, unread, err := openRestore(ctx, cfg, opt)
	if err != nil {
		return nil, errors.Join(err, unread)
	}
	defer func() { _ = closeSites(r.sites) }()
	for _, c := range r.copies {
		if c.found.Waits() {
			r.progress.total += r.layout.Tables
		}
	}
	if err := r.count(ctx); err != nil {
		return nil, errors.Join(err, unread)
	}
	return r.results(), unread
}

// FindCopies is CheckRestored of all databases without the counts of tasks: it returns those that wait for a decision. kept are the
// marks in etcd.
func FindCopies(ctx context.Context, cfg tocsin.Config, kept map[int]int64) ([]Restored, error) {
	r, unread, err := openRestore(ctx, cfg, RestoreOptions{Kept: kept})
	if err != nil {
		return nil, errors.Join(err, unread)
	}
	waiting := slices.DeleteFunc(r.results(), func(c Restored) bool { return !c.Waits() })
	return waiting, errors.Join(unread, closeSites(r.sites))
}

// AcceptRestored settles tasks of the databases as the options say, and puts the databases into use. Tasks that it makes dead,
// or finds dead, may have been delivered since the copy was made: a redrive takes them only if asked. A database that needs no
// decision is refused. A copy gets the ownership and the grace of sweeps of the databases in use, if it is older than a change of
// them. Without Until, AcceptRestored refuses while a server can't be read, which may know a later time. It may be
// repeated, and goes on where it was interrupted. The result is of the databases that are in use now. The error also names the
// servers that could not be read.
func AcceptRestored(ctx context.Context, cfg tocsin.Config, opt RestoreOptions) ([]Restored, error) {
	r, unread, err := openRestore(ctx, cfg, opt)
	if err != nil {
		return nil, errors.Join(err, unread)
	}
	defer func() { _ = closeSites(r.sites) }()
	if unread != nil && opt.Until.IsZero() {
		return nil, fmt.Errorf("a server that can't be read may know a later time until which tasks count as settled: accept when all servers answer, or give that time (--until): %w", unread)
	}
	for _, c := range r.copies {
		if !c.found.Waits() {
			return nil, fmt.Errorf("%s is in use and no older copy: there is nothing to accept", c.where())
		}
	}
	r.progress.total = 2 * len(r.copies) * r.layout.Tables
	if err := r.count(ctx); err != nil {
		return nil, errors.Join(err, unread)
	}
	var accepted []Restored
	for _, c := range r.copies {
		if err := r.accept(ctx, c); err != nil {
			return accepted, errors.Join(err, unread)
		}
		accepted = append(accepted, c.found)
	}
	return accepted, unread
}

// openRestore reads the layout rows and marks of all servers. unread names those that don't answer. A database to judge
// that can't be read is an error, unless all are to be judged.
func openRestore(ctx context.Context, cfg tocsin.Config, opt RestoreOptions) (r *restore, unread, err error) {
	opt.Parallel, opt.Until = cmp.Or(opt.Parallel, DefaultParallel), opt.Until.UTC() // statements get its digits
	if err := cmp.Or(checkEffort(0, opt.Parallel), cfg.Validate()); err != nil {
		return nil, nil, err
	}
	if err := client.CheckTime("until", opt.Until); err != nil && !opt.Until.IsZero() {
		return nil, nil, err
	}
	if opt.Until.After(time.Now()) {
		return nil, nil, fmt.Errorf("until %s is in the future: tasks that are not due yet would count as settled", opt.Until.Format(time.RFC3339))
	}
	sites, err := openSites(cfg, opt.Parallel)
	if err != nil {
		return nil, nil, err
	}
	r = &restore{opt: opt, layout: cfg.Layout, types: map[uint64]bizType{}, progress: progress{tell: opt.Progress}}
	var mu sync.Mutex
	unread = each(sites, func(s *site) error {
		if err := s.survey(ctx); err != nil {
			_ = s.DB.Close()
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		r.sites = append(r.sites, s)
		return nil
	})
	if err = r.judge(ctx, cfg.Cluster); err != nil {
		return nil, unread, errors.Join(err, closeSites(r.sites))
	}
	return r, unread, nil
}

// judge finds the databases, refuses those that are not the config's, and compares their marks with those that are kept elsewhere.
func (r *restore) judge(ctx context.Context, cluster string) error {
	all := map[int]*restored{}
	for _, s := range r.sites {
		for db, row := range s.rows {
			all[db] = &restored{dbCopy: &dbCopy{site: s, db: db}, row: row, types: map[uint64]bizType{}}
		}
	}
	for db := range r.layout.Databases {
		c, ok := all[db]
		if wanted := slices.Contains(r.opt.Databases, r.layout.Database(db)); wanted && !ok {
			return fmt.Errorf("%s can't be read, or has no layout row", r.layout.Database(db))
		} else if ok && (wanted || len(r.opt.Databases) == 0) {
			if err := newRow(r.layout, db, Options{Cluster: cluster}).conflict(c.row, c.where()); err != nil {
				return err
			}
			r.copies = append(r.copies, c)
		}
	}
	for _, name := range r.opt.Databases {
		if !slices.ContainsFunc(r.copies, func(c *restored) bool { return c.name() == name }) {
			return fmt.Errorf("layout %s has no database %s", r.layout, name)
		}
	}
	if err := r.readOthers(ctx, all); err != nil {
		return err
	}
	for _, c := range all {
		c.compare(r)
	}
	return r.knowsTypes()
}

// knowsTypes refuses names of biz types that no database has.
func (r *restore) knowsTypes() error {
	for _, name := range slices.Concat(r.opt.Dead, r.opt.Cancelled) {
		known := name == AllTypes
		for _, t := range r.types {
			known = known || t.Name == name
		}
		if !known {
			return fmt.Errorf("unknown biz type %q: `tocsin biz list` names those that are applied", name)
		}
	}
	return nil
}

// readOthers reads the marks that each database knows of others, and the biz types.
func (r *restore) readOthers(ctx context.Context, all map[int]*restored) error {
	for db, mark := range r.opt.Kept {
		if c := all[db]; c != nil {
			c.know(mark, "etcd")
		}
	}
	for db := range r.layout.Databases {
		from, ok := all[db]
		if !ok {
			continue
		}
		if err := from.readTypes(ctx); err != nil {
			return err
		}
		for number, t := range from.types {
			if t.Revision > r.types[number].Revision {
				r.types[number] = t
			}
		}
		marks, err := from.marks(ctx)
		if err != nil {
			return err
		}
		for _, m := range marks {
			if c := all[m.Database]; c != nil && c.db != db {
				c.know(m.Mark, from.where())
			}
		}
	}
	return nil
}

func (c *restored) readTypes(ctx context.Context) error {
	var types []bizType
	err := c.DB.SelectContext(ctx, &types, in(c.name(), selectBizTypes))
	if mysql.ClassOf(err) == mysql.Missing {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the biz types of %s: %w", c.where(), err)
	}
	for _, t := range types {
		c.types[t.Number] = t
	}
	return nil
}

type knownMark struct {
	Database int   `db:"database_no"`
	Mark     int64 `db:"mark"`
}

// marks reads what a database knows of others.
func (c *restored) marks(ctx context.Context) (marks []knownMark, err error) {
	if c.row.Identity == "" {
		return nil, nil
	}
	err = c.DB.SelectContext(ctx, &marks, in(c.name(), selectMarks), c.row.Identity)
	if mysql.ClassOf(err) == mysql.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the marks in %s: %w", c.where(), err)
	}
	return marks, nil
}

// know takes a mark that is kept somewhere.
func (c *restored) know(mark int64, where string) {
	if mark > c.known {
		c.known, c.found.Knows = mark, where
	}
}

// compare fills in what follows from the marks.
func (c *restored) compare(r *restore) {
	f := &c.found
	f.Database, f.Server, f.State, f.Added = c.name(), c.Name, c.row.State, -1
	f.Older = layoutrow.Lags(c.row.Mark, c.known) && f.State != layoutrow.Retired
	f.Ends, f.Known = markTime(c.row.Mark), markTime(c.known)
	f.Until = r.opt.Until
	if f.Until.IsZero() {
		last := max(c.row.Mark, c.known) + markLag.Milliseconds()
		f.Until = markTime(min(last, time.Now().UnixMilli())) // marks are ahead after a server's clock was
	}
	for number, t := range r.types {
		if t.Revision > c.types[number].Revision {
			f.Stale = append(f.Stale, t.Name)
		}
	}
	slices.Sort(f.Stale)
}

// markTime returns the time of a mark; zero if there is none.
func markTime(mark int64) time.Time {
	if mark == 0 {
		return time.Time{}
	}
	return time.UnixMilli(mark).UTC()
}

func (r *restore) results() []Restored {
	all := make([]Restored, len(r.copies))
	for i, c := range r.copies {
		all[i] = c.found
	}
	return all
}

// HoldDatabases takes databases out of use, before they are replaced by copies: nodes, sweepers and clients refuse them
// within seconds, until AcceptRestored. The other databases keep the time of it, so that a copy shows exactly what it
// lacks. The error also names the servers that did not answer, whose databases don't know the time: repeat it then.
func HoldDatabases(ctx context.Context, cfg tocsin.Config, databases []string) error {
	r, unread, err := openRestore(ctx, cfg, RestoreOptions{Databases: databases})
	if err != nil {
		return errors.Join(err, unread)
	}
	defer func() { _ = closeSites(r.sites) }()
	for _, c := range r.copies {
		if err := r.hold(ctx, c); err != nil {
			return errors.Join(err, unread)
		}
	}
	if unread != nil {
		return errors.Join(errors.New("held, but not all other databases know since when: repeat it when all servers answer"), unread)
	}
	return nil
}

// hold takes one database out of use. The mark of an older copy stays: it says how old the copy is.
func (r *restore) hold(ctx context.Context, c *restored) error {
	if c.row.State != layoutrow.Active && c.row.State != layoutrow.Held {
		return fmt.Errorf("%s is %s: only a database in use can be held", c.where(), c.row.State)
	}
	if c.found.Older {
		return c.write(ctx, holdLayout, DefaultWait)
	}
	if err := c.write(ctx, holdNow, DefaultWait); err != nil {
		return err
	}
	row, err := c.readLayout(ctx, c.db)
	if err != nil {
		return err
	}
	for _, s := range r.sites {
		for db := range s.rows {
			if db == c.db {
				continue
			}
			_, err := s.DB.ExecContext(ctx, in(r.layout.Database(db), keepMark), c.db, row.Identity, row.Mark)
			if err != nil && mysql.ClassOf(err) != mysql.Missing {
				return fmt.Errorf("keep the mark of %s in %s: %w", c.name(), s.place(db), err)
			}
		}
	}
	return nil
}
