package mysql

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// TestEachErrorOfThisServerIsListed fails with a version that has new errors: add them to testdata/errors.txt, and to classNumbers if a statement of
// ours can meet them.
func TestEachErrorOfThisServerIsListed(t *testing.T) {
	t.Parallel()
	all := listedErrors(t)
	if devtest.IsMySQL(t) {
		for n, symbol := range mysqlErrors(t) {
			if l := all[n]; l.mysql != symbol {
				t.Errorf("%d %s: listed as %q", n, symbol, l.mysql)
			}
		}
		return
	}
	for _, n := range mariaErrors(t) {
		if l := all[n]; l.mariadb == "" || l.mariadb == "-" {
			t.Errorf("%d: not listed", n)
		}
	}
}

// logOnly is the first number of the messages of MySQL's error log, which no client gets.
const logOnly = 10000

// mysqlErrors reads the list in the server's memory.
func mysqlErrors(t *testing.T) map[uint16]string {
	t.Helper()
	m, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{Dir: t.TempDir(), Memory: 64 << 20, Args: []string{"--performance-schema=ON"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.Kill()
		_ = m.Stop()
	})
	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(127.0.0.1:%d)/", m.Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT error_number, error_name FROM performance_schema.events_errors_summary_global_by_error WHERE error_number < ?`, logOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := make(map[uint16]string)
	for rows.Next() {
		var n uint16
		var symbol string
		if err := rows.Scan(&n, &symbol); err != nil {
			t.Fatal(err)
		}
		all[n] = symbol
	}
	if err := rows.Err(); err != nil || len(all) == 0 {
		t.Fatalf("%d errors, %v", len(all), err)
	}
	return all
}

// mariaErrors reads the numbers from the server's messages: how many there are from 1000, 2000 ... on, and how long each is. One that is empty is
// no error. MariaDB has no table of them.
func mariaErrors(t *testing.T) (all []uint16) {
	t.Helper()
	db, err := sql.Open("mysql", devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var dir string
	if err := db.QueryRow("SELECT @@lc_messages_dir").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "english", "errmsg.sys"))
	if err != nil {
		t.Fatal(err)
	}
	const header = 32
	if len(text) < header || !strings.HasPrefix(string(text), "\xfe\xfe") {
		t.Fatal("the messages have another form")
	}
	total, sections := binary.LittleEndian.Uint16(text[12:]), binary.LittleEndian.Uint16(text[14:])
	lengths, seen := text[header+2*int(sections):], 0
	for i := range sections {
		for n := range binary.LittleEndian.Uint16(text[header+2*i:]) {
			if binary.LittleEndian.Uint16(lengths[2*seen:]) > 2 { // its end counts, and 11.8 has placeholders of one letter
				all = append(all, 1000*(i+1)+n)
			}
			seen++
		}
	}
	if seen != int(total) || len(all) == 0 {
		t.Fatalf("the messages have another form: %d of %d", seen, total)
	}
	return all
}
