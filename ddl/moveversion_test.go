package ddl

import (
	"testing"
	"time"
)

// newRemoval2 is newRemoval of tables of version 2, which have rows.
func newRemoval2(t *testing.T) *removal {
	t.Helper()
	return removalOf(t, version2(t), otherServer(t, "").DSN())
}

// migrated wants Apply to migrate what has moved, with the task of each table.
func (r *removal) migrated() {
	r.t.Helper()
	applied(r.t, r.new, Options{})
	verified(r.t, r.new, "warning: ")
	var rows int
	if err := r.dest.QueryRow("SELECT COUNT(*) FROM " + r.name + ".task_0000 WHERE attribute = 'as it was' AND biz_key = ''").Scan(&rows); err != nil || rows != 1 {
		r.t.Errorf("%d rows, %v", rows, err)
	}
}

func TestADatabaseOfVersion2MovesAndIsMigratedThere(t *testing.T) {
	t.Parallel()
	r := newRemoval2(t)
	r.must((*Move).Retire)
	r.copy()
	if found := r.differences(); len(found) > 0 {
		t.Fatalf("differences after a copy: %v", found)
	}
	r.must((*Move).Activate)
	wantSaid(t, versions(t, r.old), "2/2", "2/2")
	r.migrated()
}

// A migration that was killed has altered some tables.
func TestAHalfMigratedDatabaseMoves(t *testing.T) {
	t.Parallel()
	r := newRemoval2(t)
	release := hold(t, r.old, r.name+".task_0002")
	if _, err := Apply(t.Context(), r.old, Options{Wait: 500 * time.Millisecond}); err == nil {
		t.Fatal("a table that is held was migrated")
	}
	release()
	r.must((*Move).Retire)
	r.copy()
	r.must((*Move).Activate)
	r.migrated()
}

// The new place has what a newer program made there, or the old one was migrated after the copy.
func TestAMoveBetweenSchemaVersionsIsRefused(t *testing.T) {
	t.Parallel()
	r := newRemoval2(t)
	applied(t, r.new, Options{}) // migrates database 0, and makes database 1 anew
	r.refused((*Move).Retire, "is active, and on server db2 too: if `tocsin ddl apply` made the one on db2, which then has no tasks, drop it")
	r.exec(r.dest, "DROP DATABASE $")
	r.must((*Move).Retire)
	r.copy()
	r.exec(r.dest, "UPDATE $.layout SET schema_version = 3")
	want := "has schema version 3, on db1 it has 2: drop it, and copy it again from there, all tables; `tocsin ddl apply` migrates it after the move"
	r.refused((*Move).Activate, "the copies differ: server db2: "+r.name+" "+want)
	if found := r.differences(); len(found) != 1 {
		t.Errorf("differences: %v", found)
	}
	r.copy()
	r.must((*Move).Undo)
	applied(t, r.old, Options{})
	r.must((*Move).Retire)
	r.refused((*Move).Activate, r.name+" has schema version 2, on db1 it has 3: drop it, and copy it again")
	r.copy()
	r.must((*Move).Activate)
}
