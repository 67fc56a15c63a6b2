package schedule

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/ids"
)

// A text doubles in a statement if all of it is escaped, so a window of long payloads has several packets.
func TestWindowsOfLongPayloadsFitASmallPacket(t *testing.T) {
	t.Parallel()
	server, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{Dir: t.TempDir(), Args: []string{"--max-allowed-packet=1M"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	s := openSite(t, apply(t, tocsin.Config{Layout: tocsin.Layout{Databases: 1, Tables: 1}, Servers: []tocsin.Server{{Name: "small", DSN: server.DSN()}}}))
	for name, payload := range map[string]string{
		"quotes":    strings.Repeat(`"`, tocsin.MaxPayload),
		"four.byte": strings.Repeat("😀", tocsin.MaxPayload),
	} {
		d := every(name, "1s")
		d.Payload = payload
		if made, err := s.Create(t.Context(), d); err != nil || made.Made != MaxRuns {
			t.Errorf("%s: %d runs, %v", name, made.Made, err)
		}
	}
}

// history stores runs of a schedule's first revision that are done, a second apart, before those that it has.
func (s *site) history(of Schedule, n int) {
	s.t.Helper()
	prefix := ids.FirstRunKey(uint64(of.ID), 1)
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d, %d, ?, 1, 2, CONCAT(?, UNHEX(LPAD(HEX(%d), 16, '0'))), '', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))",
			i+1, (&row{Schedule: of}).subject(), of.Anchor.UnixMilli()-int64(n-i)*1000)
	}
	for part := range slices.Chunk(rows, 1000) {
		var args []any
		for range part {
			args = append(args, []byte(of.Key), []byte(prefix[:len(prefix)-8]))
		}
		s.exec(of, "INSERT INTO {task} (job_id, biz_id, biz_key, biz_type, status, dedup_key, attribute, due_time, action_time, gmt_create, gmt_modified) VALUES "+
			strings.Join(part, ", "), args...)
	}
}

// Of a schedule that fires each second millions of runs may be done and not purged.
func TestAChangeDoesNotReadSettledRunsUnderItsLock(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.create(every("report", "1m"))
	s.history(made, pageSettled+1)
	lock, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	if _, err := lock.ExecContext(t.Context(), "UPDATE "+s.cfg.Layout.Table(made.Table)+" SET claimed_by = 'x' WHERE job_id IN (1, ?)", pageSettled+1); err != nil {
		t.Fatal(err)
	}
	first := s.pending(made)[0].Key.String()
	d := every("report", "1m")
	d.Payload = "new"
	s.apply(d)
	for _, r := range s.pending(made) {
		if r.Payload != "new" {
			t.Errorf("pending %+v", r)
		}
	}
	if n := s.count("SELECT COUNT(*) FROM " + s.database(made) + ".schedule WHERE LEFT(open_from, 21) = X'" + hex.EncodeToString([]byte(first)) + "'"); n != 1 {
		t.Error("the row does not say how far its runs are settled")
	}
	if _, changed, err := s.Deactivate(t.Context(), d.Name); err != nil || !changed || len(s.pending(made)) != 0 {
		t.Errorf("changed %v, %v, %d pending", changed, err, len(s.pending(made)))
	}
	if err := s.Delete(t.Context(), d.Name); err != nil {
		t.Error(err)
	}
}

func TestAnEditBeginsToCountFailuresAnew(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("report", "1m")
	d.PauseAfter = 3
	made := s.create(d)
	s.exec(made, "UPDATE {schedule} SET failures = 2")
	if s.apply(d); s.get(d.Name).Failures != 2 {
		t.Error("an apply that changes nothing clears the failures")
	}
	d.Payload = "mended"
	if s.apply(d); s.get(d.Name).Failures != 0 {
		t.Errorf("%+v", s.get(d.Name))
	}
}

// TestAnEditMakesTheFireTimesThatNoKeptRunCovers: those within the second after it, in which runs of the revision before it are kept.
func TestAnEditMakesTheFireTimesThatNoKeptRunCovers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.create(every("report", "1h"))
	s.apply(every("report", "1s"))
	after := s.get("report")
	if runs := s.pending(made); len(runs) == 0 || !runs[0].Due.Equal(after.Anchor.Add(time.Second)) {
		t.Errorf("edited at %s, the first run is due %s", after.Anchor, runs[0].Due)
	}
	next := every("report", "1s")
	next.Payload = "new"
	s.apply(next)
	fires := map[time.Time]string{}
	for _, r := range s.pending(made) {
		if fires[r.Due] != "" || len(fires) == 0 && r.Due.After(after.Anchor.Add(time.Minute)) {
			t.Errorf("due %s: %q and %q", r.Due, fires[r.Due], r.Payload)
		}
		fires[r.Due] = r.Payload
	}
}
