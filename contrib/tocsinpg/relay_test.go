package tocsinpg_test

import (
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

// Rows as drivers, psql and a restore write them.
func TestRowsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	due := time.Date(2030, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	tasks := []tocsin.NewTask{
		closeOrder.New(math.MaxUint64, "ä\\'\"\n {}", tocsin.At(due)).Dedup("ü'\\"),
		closeOrder.New(1, "", tocsin.In(1500*time.Millisecond)),
		closeOrder.New(2, strings.Repeat("ä", tocsin.MaxPayload), tocsin.At(time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC))),
	}
	s.In(func(tx *sql.Tx) error {
		if _, err := tx.Exec("SET LOCAL timezone = 'Asia/Tokyo'"); err != nil {
			return err
		}
		_, err := s.Client.AddManyTx(t.Context(), tx, tasks)
		return err
	})
	s.Exec("INSERT INTO tocsin_outbox (biz_type, biz_id, due_time) VALUES ('order.close', 3, '2030-01-02 03:04:05.6780001+00')")
	s.Exec("INSERT INTO tocsin_outbox (id, op, biz_type, biz_id) OVERRIDING SYSTEM VALUE VALUES (9223372036854775807, 'cancel', 'order.close', 4)")
	rows, err := s.Session().Read(t.Context(), []outbox.Range{{First: 0, Last: 3}, {First: 4, Last: math.MaxUint64}}, 10, nil)
	if err != nil || len(rows) != 5 {
		t.Fatal(rows, err)
	}
	if r := rows[0]; r.BizID != math.MaxUint64 || r.Payload != "ä\\'\"\n {}" || r.Dedup != "ü'\\" || !r.Due.Equal(due) || r.Delay != nil || r.Op != outbox.Add || r.BizType != "order.close" {
		t.Errorf("%+v", r)
	}
	if r := rows[1]; r.BizID != 1 || r.Payload != "" || r.Dedup != "" || !r.Due.IsZero() || *r.Delay != 1500*time.Millisecond {
		t.Errorf("%+v", r)
	}
	if r := rows[2]; r.Payload != strings.Repeat("ä", tocsin.MaxPayload) || r.Due.Year() != 1000 {
		t.Errorf("due %v", r.Due)
	}
	if r := rows[3]; !r.Due.Equal(due) {
		t.Errorf("due %v", r.Due)
	}
	if r := rows[4]; r.ID != math.MaxInt64 || r.Op != outbox.Cancel || r.Age < 0 || r.Age > time.Minute || time.Since(r.Created) > time.Minute {
		t.Errorf("%+v", r)
	}
	some, err := s.Session().Read(t.Context(), []outbox.Range{{First: 1, Last: 2}, {First: 4, Last: 9}}, 2, func(id uint64) bool { return id == 1 })
	if err != nil || len(some) != 1 || some[0].ID != 2 {
		t.Errorf("%+v, %v", some, err)
	}
}

// The age of a row that was made centuries ahead is no time.Duration. The row is as wrong as one with such a delay, and not due at once.
func TestARowThatWasMadeCenturiesAheadIsSetAside(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for i, year := range []string{"2200", "2400", "2700", "9998"} {
		s.Exec("INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms, created) VALUES ('order.close', $1, 1, CAST($2 AS timestamptz))", i+1, year+"-01-01")
	}
	var log devtest.Log
	s.relay(s.config(&log))
	s.Await("the rows to be set aside", func() bool {
		return s.Number("SELECT count(*) FROM tocsin_outbox WHERE last_error LIKE 'action time%'") == 4
	})
}

// Large rows end a page before it has as many as asked for.
func TestAPageEndsBeforeItIsTooLarge(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Exec("INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms, attribute) SELECT 'order.close', n, 86400000, repeat('ä', 8192) FROM generate_series(1, 200) AS n")
	session := s.Session()
	all := []outbox.Range{{First: 0, Last: math.MaxUint64}}
	rows, err := session.Read(t.Context(), all, 200, nil)
	if err != nil || len(rows) > outbox.PageBytes/16384+1 || !outbox.Full(rows, 200) {
		t.Fatal(len(rows), err)
	}
	if rows, err = session.Read(t.Context(), all, 10, nil); err != nil || len(rows) != 10 { // the session is usable
		t.Fatal(len(rows), err)
	}
	var log devtest.Log
	s.relay(s.config(&log))
	s.Rows(0)
	s.Want(200, strings.Repeat("ä", 8192)+" pending")
}

// A page reads its own rows alone, whatever the server knows of the table: these it has never counted.
func TestAPageOfRowsReadsNoOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Exec("INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms) SELECT 'order.close', n, 86400000 FROM generate_series(1, 20000) AS n")
	from, err := outbox.Open(s.From)
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := from.List(t.Context(), 100, 100, false); err != nil || len(rows) != 100 {
		t.Fatal(len(rows), err)
	}
	read := 0
	s.Await("the server to count what was read", func() bool {
		read = s.Number("SELECT idx_tup_read FROM pg_stat_user_indexes WHERE relname = 'tocsin_outbox'")
		return read > 0
	})
	if read > 200 {
		t.Errorf("a page of 100 rows reads %d", read)
	}
}

func TestAnErrorOfTheServerIsShownAndCutForTheRow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Add(1, "x", tocsin.In(day))
	session := s.Session()
	rows, err := session.Read(t.Context(), []outbox.Range{{First: 0, Last: 9}}, 10, nil)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	if err := session.SetAside(t.Context(), rows[0].Key, "\x00\xff"+strings.Repeat("ä", 300)); err != nil {
		t.Fatal(err)
	}
	rows, err = session.Read(t.Context(), []outbox.Range{{First: 0, Last: 9}}, 10, nil)
	if err != nil || rows[0].LastError != `\x00\xff`+strings.Repeat("ä", 247) {
		t.Error(rows, err)
	}
	cfg := s.From
	cfg.Table = "public.nowhere"
	missing, err := outbox.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := missing.Session(t.Context()); !errors.Is(err, outbox.ErrNoIdentity) {
		t.Error(err)
	}
	if _, err := missing.List(t.Context(), 0, 1, false); err == nil || !strings.Contains(err.Error(), "outbox public.nowhere on 127.0.0.1:") || !strings.Contains(err.Error(), "run `tocsin outbox apply`") {
		t.Error(err)
	}
}
