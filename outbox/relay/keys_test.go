package relay

import (
	"database/sql"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func TestHeadersAndKeysGoThroughTheOutbox(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.relay(s.config())
	s.In(func(tx *sql.Tx) error {
		if _, err := s.Client.AddTx(t.Context(), tx, closeOrder.NewKey("ord_1", "library", tocsin.In(day)).Header("tenant", "ü 🔔")); err != nil {
			return err
		}
		_, err := s.Client.AddTx(t.Context(), tx, closeOrder.New(tocsin.KeyID("ord_1"), "number", tocsin.In(day)).Header("a", "b"))
		return err
	})
	s.Exec(`INSERT INTO {outbox} (biz_type, biz_key, delay_ms, headers, attribute) VALUES ('order.close', 'ord_1', 86400000, '{ "z": "1", "a": "<2>" }', 'sql')`)
	s.Exec(`INSERT INTO {outbox} (op, biz_type, biz_key, delay_ms) VALUES ('reschedule', 'order.close', 'ord_1', 90000000)`)
	var infos []tocsin.Info
	s.Await("three tasks, two of them rescheduled", func() bool {
		var err error
		if infos, err = s.Client.ListKey(t.Context(), "ord_1"); err != nil {
			t.Fatal(err)
		}
		return len(infos) == 2 && infos[0].Version+infos[1].Version == 2
	})
	if infos[0].Payload != "library" {
		infos[0], infos[1] = infos[1], infos[0] // both were moved in one go: ids of one millisecond
	}
	if infos[0].Headers != `{"tenant":"ü 🔔"}` || infos[0].BizKey != "ord_1" || infos[1].Payload != "sql" || infos[1].Headers != `{"a":"<2>","z":"1"}` {
		t.Errorf("%+v", infos)
	}
	numbers, err := s.Client.List(t.Context(), tocsin.KeyID("ord_1"))
	if err != nil || len(numbers) != 1 || numbers[0].Header("a") != "b" || numbers[0].Version != 0 {
		t.Errorf("%+v, %v", numbers, err)
	}
	s.In(func(tx *sql.Tx) error {
		done, err := s.Client.CancelTx(t.Context(), tx, closeOrder.OfKey("ord_1"))
		if !done.Relayed {
			t.Errorf("%+v", done)
		}
		return err
	})
	s.Await("the tasks of the key to be cancelled", func() bool {
		infos, err := s.Client.ListKey(t.Context(), "ord_1")
		return err == nil && infos[0].Status == tocsin.Cancelled && infos[1].Status == tocsin.Cancelled
	})
	s.Want(tocsin.KeyID("ord_1"), "number pending")
	s.Rows(0)
}

func TestTheVersionOfAPayloadGoesThroughTheOutbox(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.relay(s.config())
	s.In(func(tx *sql.Tx) error {
		_, err := s.Client.AddTx(t.Context(), tx, closeOrder.Version(3).New(1, "library", tocsin.In(day)).Header("a", "b"))
		return err
	})
	s.Exec(`INSERT INTO {outbox} (biz_type, biz_id, delay_ms, headers, attribute) VALUES ('order.close', 2, 86400000, '{ "_payload_version": "4" }', 'sql')`)
	s.Exec(`INSERT INTO {outbox} (biz_type, biz_id, delay_ms, headers, attribute) VALUES ('order.close', 3, 86400000, '{"_payload_version":"four"}', 'bad')`)
	s.Want(1, "library pending")
	s.Want(2, "sql pending")
	s.Await("the row with a bad version to be set aside", func() bool {
		return s.Number("SELECT COUNT(*) FROM {outbox} WHERE biz_id = 3 AND last_error LIKE '_payload_version among the headers is not a whole number%'") == 1
	})
	for bizID, want := range map[uint64]tocsin.Info{1: {PayloadVersion: 3, Headers: `{"a":"b"}`}, 2: {PayloadVersion: 4}} {
		infos, err := s.Client.List(t.Context(), bizID)
		if err != nil || infos[0].PayloadVersion != want.PayloadVersion || infos[0].Headers != want.Headers {
			t.Errorf("%+v, %v", infos, err)
		}
	}
}

func TestBadHeadersAndKeysOfPlainSQLAreSetAside(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.relay(s.config())
	stray := func(bizID uint64, key, headers []byte, dedup any) {
		s.Exec("INSERT INTO {outbox} (biz_type, biz_id, biz_key, delay_ms, headers, dedup_key) VALUES ('order.close', ?, ?, 86400000, ?, ?)", bizID, key, headers, dedup)
	}
	stray(1, []byte{}, []byte(`{"a":1}`), nil)
	stray(2, []byte{}, []byte(`{"a b":"1"}`), nil)
	stray(0, []byte("\xff"), nil, nil)
	stray(3, []byte{}, nil, []byte("\x00run"))
	want := map[string]string{
		"no texts":    "biz_id = 1 AND last_error = 'headers are not a JSON object of texts'",
		"a bad name":  "biz_id = 2 AND last_error LIKE 'header \"a b\": use letters%'",
		"a run's key": "biz_id = 3 AND last_error LIKE 'dedup_key begins with a zero byte%'",
		"no UTF-8":    "biz_id = 0 AND last_error LIKE 'biz_key %is not UTF-8'",
	}
	for what, where := range want {
		s.Await(what+" to be set aside", func() bool { return s.Number("SELECT COUNT(*) FROM {outbox} WHERE "+where) == 1 })
	}
	for name, values := range map[string]string{"both": "5, 'k'", "neither": "0, ''"} {
		if _, err := s.DB.Exec(s.Fill("INSERT INTO {outbox} (op, biz_type, biz_id, biz_key) VALUES ('cancel', 'order.close', " + values + ")")); err == nil {
			t.Errorf("the server takes a row with %s", name)
		}
	}
}

// A row whose task would be another key's must neither be stored nor be forgotten.
func TestACollisionOfKeysIsSetAsideAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := tocsin.KeyID("ord_1")
	first, err := s.Client.Add(t.Context(), closeOrder.NewKey("ord_1", "x", tocsin.In(day)).Dedup("d"))
	if err != nil {
		t.Fatal(err)
	}
	s.Exec("UPDATE "+s.Config.Layout.Table(first.JobID.Table())+" SET biz_key = 'evil' WHERE job_id = ?", uint64(first.JobID))
	s.In(func(tx *sql.Tx) error {
		_, err := s.Client.AddManyTx(t.Context(), tx, []tocsin.NewTask{
			closeOrder.NewKey("ord_1", "mine", tocsin.In(day)).Dedup("d"),
			closeOrder.New(s.beside(id), "other", tocsin.In(day)).Dedup("d"),
			closeOrder.New(s.beside(id)+1, "other", tocsin.In(day)),
		})
		return err
	})
	s.relay(s.config())
	s.Want(s.beside(id), "other pending")
	s.Await("the collision to be set aside", func() bool {
		return s.Number("SELECT COUNT(*) FROM {outbox} WHERE last_error LIKE '%is that of key \"ord_1\" and of key \"evil\"%'") == 1
	})
	if n, err := s.Outbox().Retry(t.Context(), nil, true); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s.Await("it to be set aside again", func() bool {
		return s.Number("SELECT COUNT(*) FROM {outbox} WHERE attempts = 2") == 1
	})
	s.Exec("UPDATE "+s.Config.Layout.Table(first.JobID.Table())+" SET dedup_key = NULL WHERE job_id = ?", uint64(first.JobID))
	if n, err := s.Outbox().Retry(t.Context(), nil, true); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s.Await("the task to be moved once nothing is in its way", func() bool {
		infos, err := s.Client.ListKey(t.Context(), "ord_1")
		return err == nil && len(infos) == 1 && infos[0].Payload == "mine"
	})
	s.Rows(0)
}
