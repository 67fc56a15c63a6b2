package ddl

import (
	"os"
	"path/filepath"
	"testing"
)

// A MySQL whose files were copied has the server_uuid of the original, until its auto.cnf is removed. MariaDB has none.
func TestAServerMadeFromACopyOfTheOthersFiles(t *testing.T) {
	t.Parallel()
	here, there := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	if err := otherServer(t, here).Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(there, os.DirFS(here)); err != nil {
		t.Fatal(err)
	}
	first, second := otherServer(t, here), otherServer(t, there)
	cfg := config(t, 2, 4)
	cfg.Servers[0].DSN = first.DSN()
	r := newRemovalTo(t, cfg, second.DSN())
	if first.IsMySQL() {
		r.refused((*Move).Retire, "servers db1 and db2 are the same one: nothing moves (both have server_uuid ", "remove its auto.cnf and restart it")
		if err := second.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(there, "data", "auto.cnf")); err != nil {
			t.Fatal(err)
		}
		r.new.Servers[1].DSN = otherServer(t, there).DSN()
	}
	r.must((*Move).Retire)
}
