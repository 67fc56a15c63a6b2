package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// session opens a session in a database.
func (b *bench) session(database int, id string) Session {
	b.tb.Helper()
	s := Session{
		Database: database, ID: id, Group: "g", Node: "n", Incarnation: "abcdefghijkl", Seat: true, Schema: 3,
		SessionState: SessionState{AboutNo: 1, About: `{}`},
	}
	if err := b.OpenSession(b.tb.Context(), s); err != nil {
		b.tb.Fatal(err)
	}
	return s
}

// sessions reads the sessions of all databases, with what they say.
func (b *bench) sessions() (all []Session, read []int, err error) {
	b.tb.Helper()
	all, read, err = b.Sessions(b.tb.Context(), 0, b.Usable(0))
	ids := map[int][]string{}
	for _, s := range all {
		ids[s.Database] = append(ids[s.Database], s.ID)
	}
	abouts, _ := b.SessionAbouts(b.tb.Context(), 0, ids)
	for i := range all {
		for _, about := range abouts {
			if about.ID == all[i].ID && about.Database == all[i].Database {
				all[i].Schema, all[i].About = about.Schema, about.About
			}
		}
		all[i].Modified = 0
	}
	return all, read, err
}

func TestASessionBeatsAndEnds(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	one, two := b.session(0, "aaaaaaaaaaaa"), b.session(1, "bbbbbbbbbbbb")
	if err := b.OpenSession(t.Context(), one); mysql.ClassOf(err) != mysql.Duplicate {
		t.Errorf("a second session with an id: %v", err)
	}
	began := time.Now()
	beaten, err := b.BeatSessions(t.Context(), 0, map[int]string{0: one.ID, 1: "cccccccccccc"})
	if err != nil || !beaten.There[0] || beaten.There[1] || len(beaten.There) != 2 || beaten.Began.Before(began) || beaten.Server == "" {
		t.Errorf("%+v, %v", beaten, err)
	}
	if beaten, err := b.BeatSession(t.Context(), 0, one.ID); err != nil || !beaten.There[0] || len(beaten.There) != 1 {
		t.Errorf("%+v, %v", beaten, err)
	}
	one.Beat = 2
	if all, read, err := b.sessions(); err != nil || !slices.Equal(all, []Session{one, two}) || !slices.Equal(read, []int{0, 1}) {
		t.Errorf("%+v, %v, %v", all, read, err)
	}
	for _, c := range []struct {
		beat uint64
		ends bool
	}{{1, false}, {2, true}, {2, false}} {
		if ended, err := b.EndSession(t.Context(), 0, one.ID, c.beat); ended != c.ends || err != nil {
			t.Errorf("end at beat %d: %t, %v", c.beat, ended, err)
		}
	}
	if err := errors.Join(b.CloseSession(t.Context(), 1, two.ID), b.CloseSession(t.Context(), 1, two.ID)); err != nil {
		t.Error(err)
	}
	for database := range 2 {
		for _, table := range []string{".session", ".session_about"} {
			if n := scalar[int](b, "SELECT COUNT(*) FROM "+b.layout.Database(database)+table); n != 0 {
				t.Errorf("%d rows of %s are left in database %d", n, table, database)
			}
		}
	}
}

// A write that was delayed changes nothing back.
func TestASessionTellsTheLatest(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	one := b.session(0, "aaaaaaaaaaaa")
	for _, s := range []SessionState{{Draining: true, AboutNo: 3, About: "later"}, {Unable: true, AboutNo: 2, About: "earlier"}} {
		if err := b.TellSession(t.Context(), 0, one.ID, s); err != nil {
			t.Fatal(err)
		}
	}
	one.SessionState = SessionState{Draining: true, AboutNo: 3, About: "later"}
	if all, _, err := b.sessions(); err != nil || !slices.Equal(all, []Session{one}) {
		t.Errorf("%+v, %v", all, err)
	}
}

// A missing table is an error, of its database alone.
func TestAMissingSessionTableIsAnError(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.session(0, "aaaaaaaaaaaa")
	two := b.session(1, "bbbbbbbbbbbb")
	b.exec("DROP TABLE " + b.layout.Database(0) + ".session")
	ids := map[int]string{0: "aaaaaaaaaaaa", 1: two.ID}
	beaten, err := b.BeatSessions(t.Context(), 0, ids)
	if mysql.ClassOf(err) != mysql.Missing || len(beaten.There) > 0 {
		t.Errorf("%+v, %v", beaten, err)
	}
	_, alone := b.BeatSession(t.Context(), 0, ids[0])
	_, end := b.EndSession(t.Context(), 0, ids[0], 0)
	for _, err := range []error{alone, end, b.CloseSession(t.Context(), 0, ids[0]), b.TellSession(t.Context(), 0, ids[0], SessionState{})} {
		if mysql.ClassOf(err) != mysql.Missing {
			t.Errorf("want that the table is missing: %v", err)
		}
	}
	all, read, err := b.sessions()
	if len(all) != 1 || all[0].ID != two.ID || !slices.Equal(read, []int{1}) || err == nil || !strings.Contains(err.Error(), b.layout.Database(0)) {
		t.Errorf("%+v, %v, %v", all, read, err)
	}
}

func TestNoSessionInADatabaseThatMustNotBeUsed(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.session(1, "bbbbbbbbbbbb")
	b.Store.cluster = "another"
	if _, err := b.Measure(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if left := b.Usable(0); len(left) > 0 {
		t.Errorf("usable: %v", left)
	}
	if _, err := b.BeatSessions(t.Context(), 0, map[int]string{1: "bbbbbbbbbbbb"}); !errors.Is(err, tocsin.ErrLayout) {
		t.Error(err)
	}
	if err := b.OpenSession(t.Context(), Session{Database: 1, ID: "cccccccccccc"}); !errors.Is(err, tocsin.ErrLayout) {
		t.Error(err)
	}
	if all, read, err := b.Sessions(t.Context(), 0, []int{0, 1}); len(all)+len(read) > 0 || err != nil {
		t.Errorf("%v, %v, %v", all, read, err)
	}
}

// A beat has its own connection, and doesn't wait for a lock longer than its time-out.
func TestABeatWaitsForNoConnectionOfThePool(t *testing.T) {
	t.Parallel()
	b := open(t, small, func(cfg *tocsin.Config) { cfg.Servers[0].MaxConns = 4 })
	one := b.session(0, "aaaaaaaaaaaa")
	for range b.db.Stats().MaxOpenConnections {
		conn, err := b.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if beaten, err := b.BeatSessions(ctx, 0, map[int]string{0: one.ID}); err != nil || !beaten.There[0] {
		t.Errorf("%+v, %v", beaten, err)
	}
}
