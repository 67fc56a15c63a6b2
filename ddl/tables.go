package ddl

import (
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// table is one table of the schema.
type table struct {
	file     string // its SQL file, without path and ending
	database string
	name     string
}

// tablesOf gives every table of one database, in the order of creation.
func tablesOf(layout tocsin.Layout, db int) []table {
	return tablesAt(layout, db, layoutrow.SchemaVersion)
}

// tablesAt gives those of a schema version.
func tablesAt(layout tocsin.Layout, db, version int) []table {
	name := layout.Database(db)
	tables := make([]table, 0, len(fixedTables)+layout.Tables)
	for _, fixed := range fixedTables {
		if since(fixed) <= version {
			tables = append(tables, table{fixed, name, fixed})
		}
	}
	for n := range layout.Tables {
		tables = append(tables, table{taskFile, name, layout.TableName(n)})
	}
	return tables
}

func (t table) full() string { return t.database + "." + t.name }

// create renders the statement, without a semicolon.
func (t table) create() string {
	return strings.NewReplacer("{database}", t.database, "{table}", t.name).Replace(statement(t.file))
}

// missing gives the tables of the site's databases that did not stand when it
// was surveyed.
func (s *site) missing() []table {
	var missing []table
	for _, db := range s.Databases {
		for _, t := range tablesOf(s.layout, db) {
			if !s.tables[t.full()] {
				missing = append(missing, t)
			}
		}
	}
	return missing
}
