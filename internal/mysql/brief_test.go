package mysql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestAStatementThatWaitsForATableIsKilledAndOneThatWorksIsNot(t *testing.T) {
	t.Parallel()
	server := open(t, devtest.DSN(t))
	db := devtest.Prefix(t) + "_0"
	for _, statement := range []string{"CREATE DATABASE " + db, "CREATE TABLE " + db + ".t (id INT PRIMARY KEY)", "INSERT INTO " + db + ".t (id) VALUES (1)"} {
		if _, err := server.DB.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := server.DB.Beginx()
	if err != nil {
		t.Fatal(err)
	}
	var id int
	if err := tx.Get(&id, "SELECT id FROM "+db+".t"); err != nil {
		t.Fatal(err)
	}
	alter := "ALTER TABLE " + db + ".t ADD COLUMN a INT NULL"
	err = mysql.ExecBriefly(t.Context(), server.DB, 20*time.Millisecond, alter)
	if mysql.ClassOf(err) != mysql.Contended || !strings.Contains(err.Error(), "the table was in use for 20ms") {
		t.Errorf("an ALTER of a table in use: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for statement, want := range map[string]string{
		alter: "", "DO SLEEP(0.2)": "", "ALTER TABLE " + db + ".t ADD COLUMN id INT NULL": "Duplicate column name",
	} {
		err := mysql.ExecBriefly(t.Context(), server.DB, 20*time.Millisecond, statement)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", statement, err)
		}
	}
}
