package ddl

import (
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// newRemoval2 is newRemoval of tables of version 2, which have rows.
func newRemoval2(t *testing.T) *removal {
	t.Helper()
	return removalOf(t, version2(t), otherServer(t))
}

// migrated wants Apply to migrate what has moved, with the task of each table.
func (r *removal) migrated() {
	r.t.Helper()
	if _, err := Apply(r.t.Context(), r.new, Options{}); err != nil {
		r.t.Fatal(err)
	}
	if findings := must(Verify(r.t.Context(), r.new)); len(findings) != 1 || !findings[0].Warning {
		r.t.Errorf("verify after the move and the migration: %v", findings)
	}
	var rows int
	if err := r.dest.QueryRow("SELECT COUNT(*) FROM " + r.name + ".task_0000 WHERE attribute = 'as it was' AND biz_key = ''").Scan(&rows); err != nil || rows != 1 {
		r.t.Errorf("%d rows, %v", rows, err)
	}
}

func TestADatabaseOfVersion2MovesAndIsMigratedThere(t *testing.T) {
	t.Parallel()
	r := newRemoval2(t)
	r.must((*Move).Retire)
	devtest.CopyDatabase(t, r.from, r.dest, r.name)
	if found := r.differences(); len(found) > 0 {
		t.Fatalf("differences after a copy: %v", found)
	}
	r.must((*Move).Activate)
	if got := versions(t, r.old); !slices.Equal(got, []string{"2/2", "2/2"}) {
		t.Errorf("the move migrated something: versions %q", got)
	}
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
	devtest.CopyDatabase(t, r.from, r.dest, r.name)
	r.must((*Move).Activate)
	r.migrated()
}

// The new place has what a newer program made there, or the old one was migrated after the copy.
func TestAMoveBetweenSchemaVersionsIsRefused(t *testing.T) {
	t.Parallel()
	r := newRemoval2(t)
	if _, err := Apply(t.Context(), r.new, Options{}); err != nil { // migrates database 0, and makes database 1 anew
		t.Fatal(err)
	}
	r.refused((*Move).Retire, "is active, and on server db2 too: if `tocsin ddl apply` made the one on db2, which then has no tasks, drop it")
	r.exec(r.dest, "DROP DATABASE $")
	r.must((*Move).Retire)
	devtest.CopyDatabase(t, r.from, r.dest, r.name)
	r.exec(r.dest, "UPDATE $.layout SET schema_version = 3")
	want := "has schema version 3, on db1 it has 2: drop it, and copy it again from there, all tables; `tocsin ddl apply` migrates it after the move"
	r.refused((*Move).Activate, "the copies differ: server db2: "+r.name+" "+want)
	if found := r.differences(); len(found) != 1 {
		t.Errorf("differences: %v", found)
	}
	devtest.CopyDatabase(t, r.from, r.dest, r.name)
	r.must((*Move).Undo)
	if _, err := Apply(t.Context(), r.old, Options{}); err != nil {
		t.Fatal(err)
	}
	r.must((*Move).Retire)
	r.refused((*Move).Activate, r.name+" has schema version 2, on db1 it has 3: drop it, and copy it again")
	devtest.CopyDatabase(t, r.from, r.dest, r.name)
	r.must((*Move).Activate)
}
