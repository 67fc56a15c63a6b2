package ddl

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// These read one whole database each: with 1024 tables in it, a question per
// table would take minutes. Parameter: the database's name.
const (
	selectStructures = `SELECT /* tocsin ddl verify */
    table_name                   AS table_name,
    COALESCE(engine, '')         AS engine,
    COALESCE(table_collation,'') AS collation_name,
    COALESCE(create_options, '') AS create_options
FROM information_schema.tables
WHERE table_schema = ?`

	selectColumns = `SELECT /* tocsin ddl verify */
    table_name                   AS table_name,
    column_name                  AS column_name,
    column_type                  AS column_type,
    COALESCE(collation_name, '') AS collation_name,
    is_nullable                  AS is_nullable,
    column_default               AS column_default,
    extra                        AS extra
FROM information_schema.columns
WHERE table_schema = ?`

	selectIndexes = `SELECT /* tocsin ddl verify */
    table_name  AS table_name,
    index_name  AS index_name,
    non_unique  AS non_unique,
    column_name AS column_name,
    sub_part    AS sub_part
FROM information_schema.statistics
WHERE table_schema = ?
ORDER BY table_name, index_name, seq_in_index`
)

// inspect reads the structure of every table of one database.
func (s *site) inspect(ctx context.Context, db int) (map[string]*structure, error) {
	found := map[string]*structure{}
	for _, read := range []func(context.Context, string, map[string]*structure) error{
		s.inspectTables, s.inspectColumns, s.inspectIndexes,
	} {
		if err := read(ctx, s.layout.Database(db), found); err != nil {
			return nil, fmt.Errorf("inspect %s: %w", s.place(db), err)
		}
	}
	return found, nil
}

func (s *site) inspectTables(ctx context.Context, database string, found map[string]*structure) error {
	var rows []struct {
		Table     string `db:"table_name"`
		Engine    string `db:"engine"`
		Collation string `db:"collation_name"`
		Options   string `db:"create_options"` // "stats_auto_recalc=0 row_format=DYNAMIC"
	}
	if err := s.DB.SelectContext(ctx, &rows, selectStructures, database); err != nil {
		return err
	}
	for _, r := range rows {
		found[r.Table] = &structure{
			engine: r.Engine, collation: r.Collation,
			still:   strings.Contains(strings.ToLower(r.Options), "stats_auto_recalc=0"),
			columns: map[string]column{}, indexes: map[string]index{},
		}
	}
	return nil
}

func (s *site) inspectColumns(ctx context.Context, database string, found map[string]*structure) error {
	rows, err := s.DB.QueryContext(ctx, selectColumns, database)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var table, name, kind, collation, nullable, extra string
		var fallback sql.NullString
		if err := rows.Scan(&table, &name, &kind, &collation, &nullable, &fallback, &extra); err != nil {
			return err
		}
		// A table that was made since the list was read is left out.
		if t := found[table]; t != nil {
			t.columns[name] = storedColumn(kind, collation, nullable, fallback, extra)
		}
	}
	return rows.Err()
}

// storedColumn puts a row of information_schema into the common form. MariaDB
// writes the default NULL of a nullable column as the text NULL.
func storedColumn(kind, collation, nullable string, fallback sql.NullString, extra string) column {
	c := column{
		kind:      normalKind(kind),
		collation: collation,
		nullable:  nullable == "YES",
		counts:    strings.Contains(strings.ToLower(extra), "auto_increment"),
		renewed:   strings.Contains(strings.ToLower(extra), "on update"),
	}
	if fallback.Valid && fallback.String != "NULL" {
		c.fallback, c.fixed = normalDefault(fallback.String), true
	}
	return c
}

func (s *site) inspectIndexes(ctx context.Context, database string, found map[string]*structure) error {
	rows, err := s.DB.QueryContext(ctx, selectIndexes, database)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var table, name string
		var notUnique bool
		var columnName, prefix sql.NullString
		if err := rows.Scan(&table, &name, &notUnique, &columnName, &prefix); err != nil {
			return err
		}
		if t := found[table]; t != nil {
			t.indexes[name] = t.indexes[name].with(columnName.String, prefix, !notUnique)
		}
	}
	return rows.Err()
}

// with adds the next column of an index; prefix is its length where only the
// beginning of the column is indexed.
func (x index) with(column string, prefix sql.NullString, unique bool) index {
	if prefix.Valid {
		column += "(" + prefix.String + ")"
	}
	if x.columns != "" {
		column = x.columns + "," + column
	}
	return index{unique: unique, columns: column}
}
