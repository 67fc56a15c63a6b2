package ddl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// Finding is one thing that is missing or differs.
type Finding struct {
	Server  string `json:"server"`
	Object  string `json:"object"`  // what, by its full name: "toc_3.task_0517, column due_time"
	Detail  string `json:"detail"`  // "is missing", "is int, want bigint unsigned not null"
	Warning bool   `json:"warning"` // all works as it is, but costs the server more than it has to
}

// String gives one line for people.
func (f Finding) String() string {
	line := fmt.Sprintf("server %s: %s %s", f.Server, f.Object, f.Detail)
	if f.Warning {
		return "warning: " + line
	}
	return line
}

// absent is the detail of what is not there.
const absent = "is missing"

// Absent reports whether a whole table or database is missing, which Apply makes. It changes none that is there.
func (f Finding) Absent() bool { return f.Detail == absent && !strings.Contains(f.Object, ", ") }

// Verify compares every database, layout row, table, column and index with what
// the SQL files describe, and names all that is missing or differs, in order
// of database and table; none means that all is well. What is there beyond that
// is reported only where it would refuse Tocsin's rows: a further unique index,
// or a further column that must be given a value. A database of an older schema
// version is a finding; its tables are compared with that version. Tables whose
// statistics the server recalculates are one warning a database. It changes
// nothing. The error names the servers that
// could not be asked; the findings are of the others.
func Verify(ctx context.Context, cfg tocsin.Config) ([]Finding, error) {
	opt, err := Options{}.withDefaults(cfg)
	if err != nil {
		return nil, err
	}
	sites, err := openSites(cfg, opt.Parallel)
	if err != nil {
		return nil, err
	}
	defer func() { _ = closeSites(sites) }()
	v := &verification{want: newExpectations(), cluster: cfg.Cluster, found: map[int][]Finding{}}
	err = each(sites, func(s *site) error { return v.site(ctx, s) })
	v.clusters(sites)
	var all []Finding
	for _, db := range slices.Sorted(maps.Keys(v.found)) {
		all = append(all, v.found[db]...)
	}
	return all, err
}

// expectations is what tables of each schema version are compared with.
type expectations map[int]map[string]structure

func newExpectations() expectations {
	all := expectations{}
	for version := layoutrow.OldestSchema; version <= layoutrow.SchemaVersion; version++ {
		all[version] = expectationsAt(version)
	}
	return all
}

// knownVersion returns the schema version that this program knows and that is nearest to a stored one.
func knownVersion(version int) int {
	return max(layoutrow.OldestSchema, min(version, layoutrow.SchemaVersion))
}

// verification is one Verify under way.
type verification struct {
	want    expectations
	cluster string // of the config; "" is any

	mu    sync.Mutex
	found map[int][]Finding // by database number
}

func (v *verification) site(ctx context.Context, s *site) error {
	if err := s.surveyDatabases(ctx); err != nil {
		return err
	}
	for _, db := range s.Databases {
		r := report{server: s.Name}
		if !s.databases[db] {
			r.add(s.layout.Database(db), absent)
		} else if err := v.database(ctx, s, db, &r); err != nil {
			return err
		}
		v.mu.Lock()
		v.found[db] = r.findings
		v.mu.Unlock()
	}
	return nil
}

// database compares one database. The layout table is the first of all: its row,
// which can be read only if it has the right shape, says the version of the rest.
func (v *verification) database(ctx context.Context, s *site, db int, r *report) error {
	found, err := s.inspect(ctx, s.layout.Database(db))
	if err != nil {
		return err
	}
	if stored := found[layoutTable]; stored != nil && !stored.has("mark") && !stored.has("ownership") {
		r.add(s.layout.Database(db), layoutrow.TooOld(layoutrow.OldestSchema-1))
		return nil
	}
	version, layout := layoutrow.SchemaVersion, report{}
	layout.table("", v.want[layoutrow.OldestSchema][layoutTable], found[layoutTable])
	if len(layout.findings) == 0 {
		if err := v.layout(ctx, s, db, r); err != nil {
			return err
		}
		row, ok := s.rows[db]
		if ok {
			version = knownVersion(row.Version)
		}
		if s.rows[db].State == layoutrow.Retired || ok && s.rows[db].Version < layoutrow.OldestSchema {
			return nil // its tables are not missing: they have other names, or are not to be judged
		}
	}
	tables := tablesAt(s.layout, db, version)
	for _, t := range tables {
		r.table(t.full(), v.want[version][t.file], found[t.name])
	}
	if version < layoutrow.SchemaVersion {
		v.older(s, db, r, found)
		return nil
	}
	r.counted(tables, v.want[version], found)
	return nil
}

// older names a database of an older schema version, and how far its migration is.
func (v *verification) older(s *site, db int, r *report, found map[string]*structure) {
	newest, tables := v.want[layoutrow.SchemaVersion], tablesOf(s.layout, db)
	left := 0
	for _, t := range tables {
		if stored := found[t.name]; stored == nil || len(changesTo(t, newest[t.file], *stored)) > 0 {
			left++
		}
	}
	r.add(s.layout.Database(db), fmt.Sprintf("has schema version %d, this program is for %d, which %d of %d tables have: run `tocsin ddl apply`",
		s.rows[db].Version, layoutrow.SchemaVersion, len(tables)-left, len(tables)))
}

// counted warns of the tables of one database whose statistics are counted anew
// by the server though the SQL file says that they are not.
func (r *report) counted(tables []table, want map[string]structure, found map[string]*structure) {
	var restless []table
	for _, t := range tables {
		if stored := found[t.name]; stored != nil && want[t.file].still && !stored.still {
			restless = append(restless, t)
		}
	}
	if len(restless) == 0 {
		return
	}
	first := restless[0]
	r.warn(first.database, fmt.Sprintf(
		"has %d of %d tables whose statistics the server counts anew by itself, which costs it much: run `tocsin ddl apply`, or ALTER TABLE %s STATS_AUTO_RECALC = 0, and so on",
		len(restless), len(tables), first.full()))
}

// layout compares the layout row.
func (v *verification) layout(ctx context.Context, s *site, db int, r *report) error {
	if err := s.surveyLayout(ctx, db); err != nil {
		return err
	}
	name := s.layout.Database(db)
	stored, ok := s.rows[db]
	want := newRow(s.layout, db, Options{Cluster: v.cluster})
	if !ok {
		r.add(name+".layout", "has no row")
	} else if err := want.conflict(stored, name); err != nil {
		r.add(name+".layout", "differs: "+err.Error())
	} else if stored.State == layoutrow.Held {
		r.add(name+".layout", "is held, as it is an older copy or is being restored: run `tocsin ddl restore-check`")
	} else if stored.State != layoutrow.Active {
		r.add(name+".layout", fmt.Sprintf("has state %q, want %q", stored.State, layoutrow.Active))
	} else if stored.GraceMS == 0 && stored.Version == layoutrow.SchemaVersion {
		r.add(name+".layout", "has no grace of sweeps yet: run `tocsin ddl apply`")
	} else if stored.Identity == "" {
		r.warn(name+".layout", "has no identity, by which nodes tell this cluster from another with the same id: run `tocsin ddl apply`")
	}
	return nil
}

// clusters finds databases whose cluster id differs from the first one's, or whose
// identity differs from that of most, or whose ownership or grace of sweeps differs from the first one's.
func (v *verification) clusters(sites []*site) {
	rows, servers := map[int]layoutRow{}, map[int]*site{}
	for _, s := range sites {
		for db, row := range s.rows {
			rows[db], servers[db] = row, s
		}
	}
	first, agreed, ownership, grace := "", identityOf(rows), "", int64(0)
	for _, db := range slices.Sorted(maps.Keys(rows)) {
		if first == "" {
			first, ownership, grace = rows[db].Cluster, rows[db].Ownership, rows[db].GraceMS
		}
		r, row := report{server: servers[db].Name}, servers[db].layout.Database(db)+".layout"
		if rows[db].Cluster != first && v.cluster == "" {
			r.add(row, fmt.Sprintf("belongs to cluster %q, those before it to %q", rows[db].Cluster, first))
		} else if id := rows[db].Identity; id != "" && id != agreed {
			r.add(row, fmt.Sprintf("has identity %s, most others %s: it is of another cluster with the same id", id, agreed))
		} else if rows[db].Ownership != ownership {
			r.add(row, fmt.Sprintf("has ownership %q, those before it %q: run `tocsin ddl ownership` again, with all nodes stopped", rows[db].Ownership, ownership))
		} else if rows[db].GraceMS != grace && rows[db].GraceMS*grace != 0 {
			r.add(row, fmt.Sprintf("has the grace of sweeps %s, those before it %s: run `tocsin ddl grace` again, with all nodes and sweeps stopped",
				millis(rows[db].GraceMS), millis(grace)))
		}
		v.found[db] = append(r.findings, v.found[db]...)
	}
	v.unfinished(rows, servers)
}

// unfinished warns once of databases of the newest version that programs for an older one may still use.
func (v *verification) unfinished(rows map[int]layoutRow, servers map[int]*site) {
	first, more := -1, 0
	for _, db := range slices.Sorted(maps.Keys(rows)) {
		switch row := rows[db]; {
		case row.Version != layoutrow.SchemaVersion || row.WorksWith >= row.Version:
		case first < 0:
			first = db
		default:
			more++
		}
	}
	if first < 0 {
		return
	}
	r := report{server: servers[first].Name}
	r.warn(servers[first].layout.Database(first)+".layout", fmt.Sprintf(
		"has schema version %d and works with programs for %d or newer, as %d more databases do: when all programs are for version %d, run `tocsin ddl finish`",
		layoutrow.SchemaVersion, rows[first].WorksWith, more, layoutrow.SchemaVersion))
	v.found[first] = append(v.found[first], r.findings...)
}

// report collects the findings of one database.
type report struct {
	server   string
	findings []Finding
}

func (r *report) add(object, detail string) {
	r.findings = append(r.findings, Finding{Server: r.server, Object: object, Detail: detail})
}

func (r *report) warn(object, detail string) {
	r.findings = append(r.findings, Finding{Server: r.server, Object: object, Detail: detail, Warning: true})
}

// table compares one table; stored nil: there is none.
func (r *report) table(name string, want structure, stored *structure) {
	if stored == nil {
		r.add(name, absent)
		return
	}
	if !strings.EqualFold(stored.engine, want.engine) {
		r.add(name, fmt.Sprintf("has engine %s, want %s", stored.engine, want.engine))
	}
	if stored.collation != want.collation {
		r.add(name, fmt.Sprintf("has collation %s, want %s", stored.collation, want.collation))
	}
	compare(r, name+", column ", want.columnsFor(*stored), stored.columns)
	compare(r, name+", index ", want.indexes, stored.indexes)
	r.beyond(name, want, *stored)
}

// compare names what is missing or differs of one table's columns or indexes.
func compare[T interface {
	comparable
	fmt.Stringer
}](r *report, object string, want, stored map[string]T) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		got, ok := stored[name]
		if !ok {
			r.add(object+name, absent)
		} else if got != want[name] {
			r.add(object+name, fmt.Sprintf("is %s, want %s", got, want[name]))
		}
	}
}

// beyond names what the schema does not have and what would refuse rows.
func (r *report) beyond(name string, want, stored structure) {
	for _, c := range slices.Sorted(maps.Keys(stored.columns)) {
		got := stored.columns[c]
		if _, known := want.columns[c]; !known && !got.nullable && !got.fixed && !got.counts {
			r.add(name+", column "+c, "is not of the schema and needs a value")
		}
	}
	for _, x := range slices.Sorted(maps.Keys(stored.indexes)) {
		if _, known := want.indexes[x]; !known && stored.indexes[x].unique {
			r.add(name+", index "+x, "is not of the schema and unique")
		}
	}
}
