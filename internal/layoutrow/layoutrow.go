// Package layoutrow is the authority for whether a database is the one that a
// config means. Every database says in one row what it is part of:
//
//	layout row --Fields--> Row --Want.Refuse--> "", or what differs
//
// It reads nothing itself and is pure. What differs is one sentence that names
// both sides.
package layoutrow

import (
	"fmt"
	"time"
)

// What this program expects of a database.
const (
	SchemaVersion = 1         // version of the tables
	Hash          = "crc32"   // how a biz_id becomes a table number
	Active        = "active"  // state of a database that is in use
	Retired       = "retired" // state of one that has moved to another server
)

// Row is the layout row of one database.
type Row struct {
	Asked     int // the database's number by the config
	Cluster   string
	Identity  string // random, made once for all databases of a cluster; "": made before there was one
	Number    int    // and by itself
	Databases int
	Tables    int // in each database
	Hash      string
	HorizonMS int64 // nearer tasks ring the doorbell
	Version   int   // of its schema
	WorksWith int   // the oldest version that programs may expect
	State     string
}

// Fields are where a row is scanned to that holds Asked and the columns
// cluster_id, identity, database_no, databases_total, tables_per_database, hash,
// doorbell_horizon_ms, schema_version, works_with and state.
func (r *Row) Fields() []any {
	return []any{
		&r.Asked, &r.Cluster, &r.Identity, &r.Number, &r.Databases, &r.Tables, &r.Hash,
		&r.HorizonMS, &r.Version, &r.WorksWith, &r.State,
	}
}

// Horizon is how near a task must be to ring the doorbell.
func (r Row) Horizon() time.Duration { return time.Duration(r.HorizonMS) * time.Millisecond }

// Want is what the config says of every database.
type Want struct {
	Databases int
	Tables    int    // in each database
	Cluster   string // "": any
	Identity  string // "": any; see Identities
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
	case r.Version < SchemaVersion:
		return fmt.Sprintf("this program needs schema version %d, %s has %d: run `tocsin ddl apply`", SchemaVersion, where, r.Version)
	case r.WorksWith > SchemaVersion:
		return fmt.Sprintf("this program knows schema version %d, %s works with %d or newer only: upgrade the program", SchemaVersion, where, r.WorksWith)
	case r.State != Active:
		return fmt.Sprintf("%s is %s: its tables have moved, correct the servers of the config", where, r.State)
	}
	return ""
}
