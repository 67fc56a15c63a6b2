package tocsinpg_test

import (
	"database/sql"
	"errors"
	"math"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/outbox"
)

func TestHeadersAndKeysGoThroughPostgreSQL(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.In(func(tx *sql.Tx) error {
		_, err := s.Client.AddManyTx(t.Context(), tx, []tocsin.NewTask{
			closeOrder.NewKey("ord_ü", "x", tocsin.In(day)).Header("tenant", "ü \x00\\'"), closeOrder.New(5, "y", tocsin.In(day)),
		})
		return errors.Join(err, func() error { _, err := s.Client.CancelTx(t.Context(), tx, closeOrder.OfKey("ord_ü")); return err }())
	})
	s.Exec("INSERT INTO tocsin_outbox (biz_type, biz_key, delay_ms, headers) VALUES ('order.close', 'ord_1', 1, '{\"a\":\"b\"}')")
	rows, err := s.Session().Read(t.Context(), []outbox.Range{{First: 0, Last: math.MaxUint64}}, 10, nil)
	if err != nil || len(rows) != 4 {
		t.Fatal(rows, err)
	}
	for i, want := range []struct {
		key, headers string
		bizID        uint64
	}{
		{"ord_ü", `{"tenant":"ü \u0000\\'"}`, tocsin.KeyID("ord_ü")}, {"", "", 5},
		{"ord_ü", "", tocsin.KeyID("ord_ü")}, {"ord_1", `{"a":"b"}`, tocsin.KeyID("ord_1")},
	} {
		if r := rows[i]; r.BizKey != want.key || r.Headers != want.headers || r.BizID != want.bizID || r.Both || r.Problem() != "" {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	for name, values := range map[string]string{"both": "5, 'k'", "neither": "0, ''", "a key of 66 bytes": "0, repeat('ü', 33)"} {
		if _, err := s.DB.Exec("INSERT INTO tocsin_outbox (op, biz_type, biz_id, biz_key) VALUES ('cancel', 'order.close', " + values + ")"); err == nil {
			t.Errorf("the server takes a row with %s", name)
		}
	}
	tx, err := s.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := s.Client.AddTx(t.Context(), tx, closeOrder.NewKey("a\x00", "x", tocsin.In(day))); !errors.Is(err, tocsin.ErrInvalid) {
		t.Errorf("a key with a zero byte: %v", err)
	}
}
