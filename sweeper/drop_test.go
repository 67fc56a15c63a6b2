package sweeper

import (
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func dropTable(t *testing.T, name string) {
	t.Helper()
	db, err := sql.Open("mysql", devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "DROP TABLE "+name); err != nil {
		t.Fatal(err)
	}
}
