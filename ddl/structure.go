package ddl

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"strings"
)

// structure is the structure of one table, as far as Verify compares it.
type structure struct {
	engine    string
	collation string
	still     bool // STATS_AUTO_RECALC = 0: the server does not count its statistics anew by itself
	columns   map[string]column
	indexes   map[string]index
	texts     map[string]string // of an SQL file: the line of each column, as ADD COLUMN takes it
	younger   []string          // columns that older tables lack, and work without
}

// has reports whether the table has a column.
func (s structure) has(column string) bool {
	_, has := s.columns[column]
	return has
}

// columnsFor returns the columns that a stored table must have.
func (s structure) columnsFor(stored structure) map[string]column {
	columns := maps.Clone(s.columns)
	for _, name := range s.younger {
		if !stored.has(name) {
			delete(columns, name)
		}
	}
	if stored.columns["claimed_by"] == formerClaimer {
		columns["claimed_by"] = formerClaimer
	}
	return columns
}

// formerClaimer is claimed_by in tables that exist: it works, though a claim costs the server more than with a column of fixed length, and to change
// its type copies the table.
var formerClaimer = column{kind: "varchar(64)", collation: "utf8mb4_bin", fixed: true}

// column is one column in the words of information_schema, in which the
// servers' ways of saying the same are made one.
type column struct {
	kind      string // "bigint unsigned"
	collation string // of a text; "" of others
	nullable  bool
	fallback  string // default value; "" with fixed false: none
	fixed     bool   // has a default
	counts    bool   // AUTO_INCREMENT
	renewed   bool   // changes by itself when the row changes
}

// index is one key.
type index struct {
	unique  bool
	columns string // in order, separated by commas
}

// The SQL files are written in one strict form, a column or key a line, so that
// these expressions are all the parser there is.
var (
	columnLine = regexp.MustCompile(`^(\w+)\s+(\w+(?:\(\d+\))?(?: UNSIGNED)?)(?: CHARACTER SET \w+ COLLATE (\w+))?\s+(NOT NULL|NULL)(?: DEFAULT (\S+))?( AUTO_INCREMENT)?(?: COMMENT '[^']*')?$`)
	checkLine  = regexp.MustCompile(`^CHECK \(.*\)$`) // MySQL before 8.0.16 forgets it
	keyLine    = regexp.MustCompile(`^(PRIMARY KEY|UNIQUE KEY|KEY)(?: (\w+))? \(([\w, ]+)\)$`)
	tailLine   = regexp.MustCompile(`^\) ENGINE = (\w+) .*COLLATE = (\w+)( STATS_AUTO_RECALC = 0)?$`)
)

// expected reads the structure that an SQL file describes.
func expected(file string) structure {
	s := structure{columns: map[string]column{}, indexes: map[string]index{}, texts: map[string]string{}}
	lines := strings.Split(statement(file), "\n")
	for _, line := range lines[1:] {
		line = strings.TrimSuffix(strings.TrimSpace(line), ",")
		if !checkLine.MatchString(line) && !s.key(line) && !s.tail(line) && !s.column(line) {
			panic(fmt.Sprintf("ddl: sql/%s.sql: a line that is neither column nor key: %s", file, line)) // the files are part of the program
		}
	}
	for name, c := range s.columns {
		if text := strings.HasPrefix(c.kind, "varchar") || strings.HasPrefix(c.kind, "char") || c.kind == "text"; text && c.collation == "" {
			c.collation = s.collation
			s.columns[name] = c
		}
	}
	return s
}

func (s *structure) column(line string) bool {
	m := columnLine.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	s.texts[m[1]] = strings.Join(strings.Fields(line), " ")
	s.columns[m[1]] = column{
		kind:      normalKind(m[2]),
		collation: m[3],
		nullable:  m[4] == "NULL",
		fallback:  normalDefault(m[5]),
		fixed:     m[5] != "",
		counts:    m[6] != "",
	}
	return true
}

func (s *structure) key(line string) bool {
	m := keyLine.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	name := m[2]
	if m[1] == "PRIMARY KEY" {
		name = primary
	}
	s.indexes[name] = index{unique: m[1] != "KEY", columns: strings.ReplaceAll(m[3], " ", "")}
	return true
}

func (s *structure) tail(line string) bool {
	m := tailLine.FindStringSubmatch(line)
	if m != nil {
		s.engine, s.collation, s.still = m[1], m[2], m[3] != ""
	}
	return m != nil
}

var displayWidth = regexp.MustCompile(`^(tinyint|smallint|mediumint|int|bigint)\(\d+\)`)

// normalKind gives a column type the same text on every server: MariaDB and
// MySQL before 8.0.19 say bigint(20) unsigned, later ones bigint unsigned.
func normalKind(kind string) string {
	return displayWidth.ReplaceAllString(strings.ToLower(kind), "$1")
}

// normalDefault gives a default the same text on every server.
func normalDefault(value string) string {
	if lower := strings.ToLower(value); strings.HasPrefix(lower, "current_timestamp") {
		return lower
	}
	return unquote(value)
}

// unquote takes the quotes off a default: MariaDB says 'x' where MySQL says x.
func unquote(value string) string {
	if len(value) >= 2 && value[0] == '\'' && value[len(value)-1] == '\'' {
		return value[1 : len(value)-1]
	}
	return value
}

func (c column) String() string {
	text := c.kind
	if c.collation != "" {
		text += " collate " + c.collation
	}
	if !c.nullable {
		text += " not null"
	}
	if c.fixed {
		text += fmt.Sprintf(" default '%s'", c.fallback)
	}
	if c.counts {
		text += " auto_increment"
	}
	if c.renewed {
		text += " on update"
	}
	return text
}

func (x index) String() string {
	if x.unique {
		return "unique (" + x.columns + ")"
	}
	return "(" + x.columns + ")"
}

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

// folding reads how a server compares the names of databases and tables: 0 as they are written, 1 and 2 without regard to case.
const folding = `SELECT /* tocsin ddl verify */
    @@lower_case_table_names`

// known returns a function that puts the name of a table into the form in which inspect returns it: two names of one table
// get the same. Servers compare the names of columns and indexes without regard to case, whatever this says.
func (s *site) known(ctx context.Context) (form func(string) string, err error) {
	var fold int
	if err := s.DB.GetContext(ctx, &fold, folding); err != nil {
		return nil, fmt.Errorf("how server %s compares names: %w", s.Name, err)
	}
	if fold != 0 {
		return strings.ToLower, nil
	}
	return func(name string) string { return name }, nil
}

// inspect reads the structure of every table of one database.
func (s *site) inspect(ctx context.Context, database string) (map[string]*structure, error) {
	var tables []struct {
		Name      string `db:"table_name"`
		Engine    string `db:"engine"`
		Collation string `db:"collation_name"`
		Options   string `db:"create_options"` // "stats_auto_recalc=0 row_format=DYNAMIC"
	}
	var columns []storedColumn
	var indexes []storedIndex
	for _, read := range []struct {
		into  any
		query string
	}{{&tables, selectStructures}, {&columns, selectColumns}, {&indexes, selectIndexes}} {
		if err := s.DB.SelectContext(ctx, read.into, read.query, database); err != nil {
			return nil, fmt.Errorf("inspect %s on server %s: %w", database, s.Name, err)
		}
	}
	form, err := s.known(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]*structure{}
	for _, t := range tables {
		found[form(t.Name)] = &structure{
			engine: t.Engine, collation: t.Collation,
			still:   strings.Contains(strings.ToLower(t.Options), "stats_auto_recalc=0"),
			columns: map[string]column{}, indexes: map[string]index{},
		}
	}
	for _, c := range columns { // a table that was made since the list was read is left out
		if t := found[form(c.Table)]; t != nil {
			t.columns[strings.ToLower(c.Name)] = c.column()
		}
	}
	for _, x := range indexes {
		if t := found[form(x.Table)]; t != nil {
			name := x.Name
			if name != primary {
				name = strings.ToLower(name)
			}
			t.indexes[name] = t.indexes[name].with(x)
		}
	}
	return found, nil
}

// primary is what servers call the primary key.
const primary = "PRIMARY"

// storedColumn is a row of selectColumns.
type storedColumn struct {
	Table     string         `db:"table_name"`
	Name      string         `db:"column_name"`
	Kind      string         `db:"column_type"`
	Collation string         `db:"collation_name"`
	Nullable  string         `db:"is_nullable"`
	Fallback  sql.NullString `db:"column_default"`
	Extra     string         `db:"extra"`
}

// column puts a row of information_schema into the common form. MariaDB
// writes the default NULL of a nullable column as the text NULL.
func (s storedColumn) column() column {
	c := column{
		kind:      normalKind(s.Kind),
		collation: s.Collation,
		nullable:  s.Nullable == "YES",
		counts:    strings.Contains(strings.ToLower(s.Extra), "auto_increment"),
		renewed:   strings.Contains(strings.ToLower(s.Extra), "on update"),
	}
	if s.Fallback.Valid && s.Fallback.String != "NULL" {
		c.fallback, c.fixed = normalDefault(s.Fallback.String), true
	}
	return c
}

// storedIndex is a row of selectIndexes: a column of an index.
type storedIndex struct {
	Table     string         `db:"table_name"`
	Name      string         `db:"index_name"`
	NotUnique bool           `db:"non_unique"`
	Column    sql.NullString `db:"column_name"`
	Prefix    sql.NullString `db:"sub_part"` // length, if only the beginning of the column is indexed
}

// with adds the next column of an index.
func (x index) with(s storedIndex) index {
	column := strings.ToLower(s.Column.String)
	if s.Prefix.Valid {
		column += "(" + s.Prefix.String + ")"
	}
	if x.columns != "" {
		column = x.columns + "," + column
	}
	return index{unique: !s.NotUnique, columns: column}
}
