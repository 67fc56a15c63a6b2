package store

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

const day = int64(24 * time.Hour / time.Millisecond)

// mark reads the mark in a database's layout row.
func (b *bench) mark(database int) int64 {
	b.tb.Helper()
	return scalar[int64](b, "SELECT mark FROM "+b.layout.Database(database)+".layout")
}

// shift moves the mark in a database's layout row.
func (b *bench) shift(database int, by int64) {
	b.exec("UPDATE "+b.layout.Database(database)+".layout SET mark = mark + ?", by)
}

// age sets the marks of both databases to an hour ago, so that they count as soon as they are read, and returns them.
func (b *bench) age() (mark int64) {
	mark = time.Now().Add(-time.Hour).UnixMilli()
	for database := range 2 {
		b.exec("UPDATE "+b.layout.Database(database)+".layout SET mark = ?", mark)
	}
	return mark
}

// beat raises marks as a node does that finds no other.
func (b *bench) beat() {
	b.tb.Helper()
	for range 2 {
		if err := b.Beat(b.tb.Context(), 0); err != nil {
			b.tb.Fatal(err)
		}
	}
}

// met is a store on the same databases that knows only what it reads.
func (b *bench) met() *Store {
	b.tb.Helper()
	s, err := Connect(b.tb.Context(), tocsin.Config{Layout: b.layout, Cluster: "test", Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(b.tb)}}})
	if err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(func() { _ = s.Close() })
	return s
}

// use tries a statement in each database, and returns the errors.
func use(tb testing.TB, s *Store) (errs [2]error) {
	for database := range errs {
		errs[database] = s.Own(tb.Context(), "g", "me", map[int]int64{database * s.layout.Tables: 1})
	}
	return errs
}

// onlySecondRefused fails the test unless the second database alone is refused as an older copy.
func onlySecondRefused(t *testing.T, s *Store, part string) {
	t.Helper()
	errs := use(t, s)
	if errs[0] != nil || !errors.Is(errs[1], tocsin.ErrLayout) || !strings.Contains(errs[1].Error(), part) {
		t.Errorf("first: %v; second: %v; want %q for the second alone", errs[0], errs[1], part)
	}
}

func TestMarksGrowWhateverTheClocksDo(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	aged, before := b.age(), time.Now().UnixMilli()
	b.beat()
	first := b.mark(0)
	if first < before || b.mark(1) < before {
		t.Fatalf("marks %d and %d after a beat at %d", first, b.mark(1), before)
	}
	if err := b.met().Beat(t.Context(), 0); err != nil || b.mark(0) != first {
		t.Errorf("error %v; another process raised the mark by %d ms at once", err, b.mark(0)-first)
	}
	b.shift(0, day) // the clock was set back by a day
	ahead := b.mark(0)
	b.beat()
	if grown := b.mark(0) - ahead; grown != layoutrow.MarkEvery.Milliseconds() {
		t.Errorf("the mark grew by %d ms", grown)
	}
	if kept := scalar[int64](b, "SELECT mark FROM "+b.layout.Database(1)+".mark WHERE database_no = 0"); kept != aged {
		t.Errorf("the other database keeps %d; want %d until those after it count", kept, aged)
	}
}

func TestAnOlderCopyIsRefusedAlone(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	aged := b.age()
	b.beat()

	b.shift(1, aged-b.mark(1)-layoutrow.Tolerated.Milliseconds()+1000)
	if errs := use(t, b.met()); errors.Join(errs[:]...) != nil {
		t.Errorf("a copy that lacks some seconds: %v", errs)
	}
	b.shift(1, layoutrow.Tolerated.Milliseconds()-1000-day)
	older := b.met()
	onlySecondRefused(t, older, b.layout.Database(1)+" on db1 is an older copy: it ends at ")
	onlySecondRefused(t, older, "run `tocsin ddl restore-check`")

	if err := older.Beat(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	b.exec("DELETE FROM " + b.layout.Database(0) + ".mark") // nobody remembers: the layout row says it
	onlySecondRefused(t, b.met(), b.layout.Database(1)+" on db1 is held, as it is an older copy or is being restored")
	held := b.mark(1)
	if b.beat(); b.mark(1) != held {
		t.Error("the mark of a database that is held was raised")
	}
	b.exec("UPDATE "+b.layout.Database(1)+".layout SET state = 'active', mark = ?", b.mark(0))
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := older.Survey(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		errs := use(t, older)
		if errors.Join(errs[:]...) == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("long after it was released: %v", errs)
		}
	}
}

// The copy's server was read before the one that knows better, and a third one does not answer.
func TestAnOlderCopyIsRefusedBesideASilentServer(t *testing.T) {
	t.Parallel()
	b := open(t, tocsin.Layout{Databases: 3, Tables: 1})
	b.age()
	b.beat()
	b.shift(0, -day)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // like a frozen process: the kernel accepts connections
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cfg := tocsin.Config{Layout: b.layout, Cluster: "test", Servers: []tocsin.Server{
		{Name: "db0", DSN: devtest.DSN(t), Databases: []int{0}},
		{Name: "db1", DSN: devtest.DSN(t), Databases: []int{1}},
		{Name: "db2", DSN: "root@tcp(" + silent.Addr().String() + ")/", Databases: []int{2}},
	}}
	for met := false; !met; { // on a slow machine the first two may not answer in time either
		s, err := Connect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		met = s.servers[0].refusals.Load() != nil && s.servers[1].refusals.Load() != nil
		if copies, others := s.Databases(0, 0), s.Databases(1, 0); met && (len(copies) != 0 || len(others) != 1) {
			t.Errorf("usable are %v and %v, want the second alone", copies, others)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A connection that is made after the restore reads the layout row before its first statement.
func TestAnOlderCopyIsRefusedWithoutASurvey(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.age()
	if _, err := b.Survey(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	b.shift(1, -day)
	b.servers[0].DB.SetMaxIdleConns(0) // its server was restarted
	onlySecondRefused(t, b.Store, "is an older copy")
}

func TestMarksOfAnotherClusterDoNotCount(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.age()
	b.beat()
	for database := range 2 {
		b.exec("UPDATE "+b.layout.Database(database)+".mark SET mark = mark + ?, identity = 'other'", day)
	}
	s := b.met()
	s.Remember(t.Context(), "other", map[int]int64{0: b.mark(0) + day})
	if errs := use(t, s); errors.Join(errs[:]...) != nil {
		t.Errorf("got %v", errs)
	}
	s.Remember(t.Context(), s.Identity(), map[int]int64{1: b.mark(1) + day})
	onlySecondRefused(t, s, "is an older copy")
}

func TestADatabaseOfVersion1IsRefusedAlone(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.exec("ALTER TABLE " + b.layout.Database(1) + ".layout DROP COLUMN mark")
	s := b.met()
	onlySecondRefused(t, s, "has schema version 1, this program works with 2 and 3: first upgrade it with a tocsin for version 2")
	if err := s.Beat(t.Context(), 0); err != nil {
		t.Error(err)
	}
}
