// Package layoutrow is the authority for whether a database is the one that a config
// means. Every database describes in one row what it is part of:
//
//	layout row --Read--> Row --Want.Refuse--> "", or what differs
//	rows of one server, and what could not be read --Want.Judge--> Problems
//
// All but Read is pure. A difference is one sentence that names the database and both sides.
package layoutrow

import (
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// What this program expects of a database.
const (
	SchemaVersion = 3         // version of the tables that this program writes for, the newest that it knows
	OldestSchema  = 2         // the oldest that it works with, without what is newer: the one before
	Hash          = "crc32"   // how a biz_id becomes a table number
	Active        = "active"  // state of a database that is in use
	Retired       = "retired" // state of one that has moved to another server
	Held          = "held"    // state of an older copy, or of one that is being restored, until an operator decides
)

// Who may start a row. A node that owns tables and one that claims rows would deliver the same row, so a cluster has one
// kind of nodes.
const (
	ByEtcd = "etcd" // the owner of its table, by a key in etcd
	ByRows = "rows" // whoever claims it in the database; nobody owns tables
)

// CheckGrace wants a grace of sweeps in whole milliseconds, since the layout row holds these.
func CheckGrace(grace time.Duration) error {
	const low, high = time.Second, 24 * time.Hour
	if grace < low || grace > high || grace%time.Millisecond != 0 {
		return fmt.Errorf("grace of sweeps %s: use %s to %s, in whole milliseconds", grace, low, high)
	}
	return nil
}

// RestoredError is how last_error begins of tasks that may have been delivered since the copy was made that their database was
// restored from: `tocsin ddl restore-check --accept` has made them dead, or found them dead.
const RestoredError = "the database was restored from a copy of "

// Row is the layout row of one database.
type Row struct {
	Asked     int // the database's number by the config
	Cluster   string
	Identity  string // random, made once for all databases of a cluster; "": it could not be written yet
	Number    int    // and by itself
	Databases int
	Tables    int // in each database
	Hash      string
	HorizonMS int64 // nearer tasks ring the doorbell
	Version   int   // of its schema
	WorksWith int   // the oldest version that programs may be for
	State     string
	Ownership string // ByEtcd or ByRows; "": not read
	Mark      int64  // see Marks; 0: never marked, or not read
	GraceMS   int64  // of sweeps: how long a task is overdue before a sweep takes it; 0: not written yet, or not read

	Packet int       // max_allowed_packet of the server, bytes; 0: not read
	Clock  time.Time // of the server when the row was read, in microseconds; zero: not read
}

// Horizon is how near a task must be to ring the doorbell.
func (r Row) Horizon() time.Duration { return time.Duration(r.HorizonMS) * time.Millisecond }

// Want is what the config says of every database.
type Want struct {
	Databases int
	Tables    int    // in each database
	Cluster   string // "": any
	Identity  string // "": any; see Identities
	Ownership string // "": any
	GraceMS   int64  // of sweeps; 0: any
}

// Refuse compares a database's own account with the config and says the first
// difference; "" is none. where is "toc_0 on db1".
func (w Want) Refuse(r Row, where string) string {
	switch {
	case r.Databases != w.Databases || r.Tables != w.Tables:
		return fmt.Sprintf("layout of the config is %dx%d, that of %s is %dx%d", w.Databases, w.Tables, where, r.Databases, r.Tables)
	case w.Cluster != "" && r.Cluster != w.Cluster:
		return fmt.Sprintf("cluster of the config is %q, that of %s is %q", w.Cluster, where, r.Cluster)
	case w.Identity != "" && r.Identity != "" && r.Identity != w.Identity:
		return fmt.Sprintf("identity of the config's other databases is %s, that of %s is %s: it is of another cluster with the same id, correct the servers of the config",
			w.Identity, where, r.Identity)
	case r.Number != r.Asked:
		return fmt.Sprintf("database %d of the config, %s, says that it is database %d", r.Asked, where, r.Number)
	case r.Hash != Hash:
		return fmt.Sprintf("this program places tasks by %q, %s by %q", Hash, where, r.Hash)
	case r.WorksWith > SchemaVersion:
		return fmt.Sprintf("this program is for schema version %d, %s has %d and works with programs for %d or newer: upgrade the program",
			SchemaVersion, where, r.Version, r.WorksWith)
	case r.State == Held:
		return fmt.Sprintf("%s is held, as it is an older copy or is being restored: run `tocsin ddl restore-check`", where)
	case r.State != Active:
		return fmt.Sprintf("%s is %s: its tables have moved, correct the servers of the config", where, r.State)
	case r.Version < OldestSchema:
		return where + " " + TooOld(r.Version)
	case r.WorksWith < OldestSchema:
		return where + " " + Unfinished(r.WorksWith)
	case w.Ownership != "" && r.Ownership != "" && r.Ownership != w.Ownership:
		return fmt.Sprintf("ownership of this node is %q, that of %s is %q: set layout.ownership of the config (in Go, node.Config.Ownership), or stop all nodes and run `tocsin ddl ownership %s`",
			w.Ownership, where, r.Ownership, w.Ownership)
	case w.GraceMS != 0 && r.GraceMS != 0 && r.GraceMS != w.GraceMS:
		mine, theirs := time.Duration(w.GraceMS)*time.Millisecond, time.Duration(r.GraceMS)*time.Millisecond
		return fmt.Sprintf("grace of sweeps of this process is %s, that of %s is %s: set sweep.grace of the config (in Go, node.Config.SweepGrace) to %s, or stop all nodes and sweeps and run `tocsin ddl grace %s`",
			mine, where, theirs, theirs, mine)
	}
	return ""
}

// TooOld says of a database that its tables are older than this program works with, and the way to this version.
func TooOld(version int) string {
	return fmt.Sprintf("has schema version %d, this program works with %d and %d: first upgrade it with a tocsin for version %d, by its `tocsin ddl apply` and `tocsin ddl finish`",
		version, OldestSchema, SchemaVersion, OldestSchema)
}

// Unfinished says of a database that programs which are older than this one works beside may still use it.
func Unfinished(worksWith int) string {
	return fmt.Sprintf("works with programs for schema version %d, this program works beside programs for %d or newer: first finish that upgrade, by `tocsin ddl finish` of a tocsin for the version of the tables",
		worksWith, OldestSchema)
}

// Problem says why one database must not be used.
type Problem struct {
	Why     string // one sentence that names the database
	Differs bool   // the database is not the one that the config means
	Moved   bool   // the database is retired, and nothing else differs
	Older   bool   // the database is held, or has to be as it is an older copy, and nothing else differs
	Err     error  // from reading its row; nil if the row could be read
}

// Judge returns the problem of each of a server's databases; a database without one
// is as the config says. By database number, rows are the rows that were read, and
// failed the reasons why others could not be. where names a database: "toc_0 on db1".
func (w Want) Judge(databases []int, rows map[int]Row, failed map[int]error, where func(database int) string) map[int]Problem {
	if w.Cluster == "" {
		w.Cluster = mostNamed(databases, rows)
	}
	problems := make(map[int]Problem)
	for _, database := range databases {
		row, read := rows[database]
		if err := failed[database]; !read && err != nil {
			problems[database] = unread(where(database), err)
		} else if !read {
			problems[database] = Problem{Why: where(database) + " has no layout row: run `tocsin ddl apply`", Differs: true}
		} else if text := w.Refuse(row, where(database)); text != "" {
			problems[database] = w.problem(row, text)
		}
	}
	return problems
}

// problem is that of a row that is refused for a reason.
func (w Want) problem(row Row, why string) Problem {
	state := row.State
	row.State, row.Version, row.WorksWith = Active, max(row.Version, OldestSchema), max(row.WorksWith, OldestSchema)
	same := w.Refuse(row, "") == ""
	return Problem{Why: why, Differs: true, Moved: same && state != Active && state != Held, Older: same && state == Held}
}

// First returns the problem of the first of a server's databases that has one. If all
// of them lack their tables, the problem is the server's.
func First(server string, databases []int, problems map[int]Problem) (first Problem, ok bool) {
	bare := 0
	for _, database := range databases {
		p, wrong := problems[database]
		if wrong && !ok {
			first, ok = p, true
		}
		if mysql.ClassOf(p.Err) == mysql.Missing {
			bare++
		}
	}
	if ok && bare == len(databases) {
		first.Why = fmt.Sprintf("server %s has no Tocsin tables (%v): run `tocsin ddl apply`", server, first.Err)
	}
	return first, ok
}

// unread turns an error of reading one database's layout row into a problem.
func unread(where string, err error) Problem {
	if mysql.ColumnMissing(err) {
		return Problem{Why: fmt.Sprintf("the layout row of %s can't be read: %v; if the database %s", where, err, TooOld(OldestSchema-1)), Differs: true, Err: err}
	}
	switch mysql.ClassOf(err) {
	case mysql.Missing:
		return Problem{Why: fmt.Sprintf("%s has no layout table (%v): run `tocsin ddl apply`", where, err), Differs: true, Err: err}
	case mysql.Denied:
		return Problem{Why: fmt.Sprintf("the layout row of %s may not be read: grant the user its rights (%v)", where, err), Err: err}
	}
	return Problem{Why: fmt.Sprintf("the layout row of %s can't be read: %v", where, err), Err: err}
}

// mostNamed returns the cluster that most of the databases name; among equals, the
// one named first.
func mostNamed(databases []int, rows map[int]Row) (cluster string) {
	named, most := make(map[string]int), 0
	for _, row := range rows {
		named[row.Cluster]++
		most = max(most, named[row.Cluster])
	}
	i := slices.IndexFunc(databases, func(db int) bool { r, ok := rows[db]; return ok && named[r.Cluster] == most })
	if i < 0 {
		return ""
	}
	return rows[databases[i]].Cluster
}
