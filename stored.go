package tocsin

import "time"

// SchemaVersion is the version of the tables that this program expects.
const SchemaVersion = 1

// layoutHash names how a biz_id becomes a table number.
const layoutHash = "crc32"

// layoutRow is what a database says it is part of.
type layoutRow struct {
	asked     int // the database's number by the config
	cluster   string
	number    int // and by itself
	databases int
	tables    int
	hash      string
	horizon   time.Duration
	version   int // of its schema
	worksWith int // the oldest version that programs may expect
	state     string
	packet    int
	now       time.Time
}

func (r *layoutRow) scan(scan func(...any) error) error {
	var millis int64
	var now string
	err := scan(&r.asked, &r.cluster, &r.number, &r.databases, &r.tables, &r.hash, &millis,
		&r.version, &r.worksWith, &r.state, &r.packet, &now)
	if err != nil {
		return err
	}
	r.horizon = time.Duration(millis) * time.Millisecond
	return setTime(&r.now, now)
}

// expected is what the config says of every database.
type expected struct {
	layout  Layout
	cluster string // "": any
}

// refuse compares a database's own account with the config and names both
// sides of the first difference. where is "toc_0 on db1".
func (e expected) refuse(r layoutRow, where string) error {
	own := Layout{Databases: r.databases, Tables: r.tables}
	switch {
	case r.databases != e.layout.Databases || r.tables != e.layout.Tables:
		return refuse(ErrLayout, "layout of the config is %s, that of %s is %s", e.layout, where, own)
	case e.cluster != "" && r.cluster != e.cluster:
		return refuse(ErrLayout, "cluster of the config is %q, that of %s is %q", e.cluster, where, r.cluster)
	case r.number != r.asked:
		return refuse(ErrLayout, "database %d of the config, %s, says that it is database %d", r.asked, where, r.number)
	case r.hash != layoutHash:
		return refuse(ErrLayout, "this program places tasks by %q, %s by %q", layoutHash, where, r.hash)
	case r.version < SchemaVersion:
		return refuse(ErrLayout, "this program needs schema version %d, %s has %d: run `tocsin ddl apply`", SchemaVersion, where, r.version)
	case r.worksWith > SchemaVersion:
		return refuse(ErrLayout, "this program knows schema version %d, %s works with %d or newer only: upgrade the program", SchemaVersion, where, r.worksWith)
	case r.state != "active":
		return refuse(ErrLayout, "%s is %s: its tables have moved, correct the servers of the config", where, r.state)
	}
	return nil
}
