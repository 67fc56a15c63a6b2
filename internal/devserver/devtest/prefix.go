package devtest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of DSN
	"github.com/jmoiron/sqlx"
)

// cleanTimeout bounds the removal of one test's databases, which may hold thousands of tables.
const cleanTimeout = 2 * time.Minute

// databasesSQL lists the databases whose name matches the pattern in its parameter.
const databasesSQL = `SELECT /* devtest */
  schema_name
FROM information_schema.schemata
WHERE schema_name LIKE ?`

// Prefix returns a fresh prefix for the names of this test's databases, matching ^t[0-9a-z]+$ and at most 20
// characters. When the test ends, every database of DSN whose name starts with the prefix and "_" is dropped.
func Prefix(tb testing.TB) string {
	tb.Helper()
	dsn := DSN(tb)
	prefix := newPrefix()
	tb.Cleanup(func() {
		if err := dropDatabases(dsn, prefix); err != nil {
			tb.Errorf("drop the databases %s_*: %v", prefix, err)
		}
	})
	return prefix
}

// newPrefix is random: tests of several processes may share one server.
func newPrefix() string { return "t" + strconv.FormatUint(rand.Uint64(), 36) }

func dropDatabases(dsn, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
	defer cancel()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	names, err := databases(ctx, db, prefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := db.ExecContext(ctx, "DROP DATABASE IF EXISTS `"+name+"`"); err != nil {
			return fmt.Errorf("drop %s: %w", name, err)
		}
	}
	return nil
}

// databases returns the names that start with the prefix and "_", which LIKE would take for any character.
func databases(ctx context.Context, db *sql.DB, prefix string) ([]string, error) {
	var names []string
	err := sqlx.NewDb(db, "mysql").SelectContext(ctx, &names, databasesSQL, strings.ReplaceAll(prefix+"_", "_", `\_`)+"%")
	return names, err
}
