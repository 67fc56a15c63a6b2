package tocsinkafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/sink"
)

// reads returns the row of a record, as an entrance reads it.
func reads(t *testing.T, e tocsinkafka.Entrance, r *kgo.Record) outbox.Row {
	t.Helper()
	e.Group, e.Brokers = "g", sink.Config{Addresses: []string{"h:1"}}
	topic, err := tocsinkafka.Topic(outbox.Config{Name: "in", Table: commands, Driver: e})
	if err != nil {
		t.Fatal(err)
	}
	if r.Timestamp.IsZero() {
		r.Timestamp = time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	}
	return tocsinkafka.Row(topic, r, time.Now(), time.Now())
}

func TestARecordIsReadAsItsCommand(t *testing.T) {
	t.Parallel()
	var e tocsinkafka.Entrance
	row := reads(t, e, body(0, `{"biz_type": "order.close", "biz_id": "18446744073709551615", "delay_ms": 90000, "dedup_key": "d", "payload": "{}", "payload_version": 2, "headers": {"tenant": "ü"}}`))
	left := row.Left(time.Now())
	if row.Problem() != "" || row.Op != outbox.Add || row.BizID != 1<<64-1 || row.Dedup != "d" || row.Payload != "{}" || row.Headers != `{"_payload_version":"2","tenant":"ü"}` || left > 30*time.Second || left < 29*time.Second {
		t.Errorf("%+v, %s left", row, left)
	}
	r := headed("tocsin-op", "reschedule", "tocsin-biz-type", "order.close", "tocsin-due", "2030-01-02T03:04:05.678+01:00", "traceparent", "00-1", "__TypeId__", "x")
	r.Key = []byte("ord_1")
	due := time.Date(2030, 1, 2, 2, 4, 5, 678e6, time.UTC)
	if row := reads(t, e, r); row.Problem() != "" || row.Op != outbox.Reschedule || row.BizKey != "ord_1" || row.Payload != "p" || !row.Due.Equal(due) || row.Headers != `{"traceparent":"00-1"}` {
		t.Errorf("%+v", row)
	}
	if row := reads(t, e, headed("tocsin-op", "cancel", "tocsin-biz-type", "order.close", "tocsin-biz-id", "7")); row.Problem() != "" || row.BizID != 7 {
		t.Errorf("%+v", row)
	}
}

// A clock that is ahead makes no delay longer, and a time before the calendar of the database is due at once.
func TestTimesOfARecordAreTakenForWhatTheyAre(t *testing.T) {
	t.Parallel()
	var e tocsinkafka.Entrance
	ahead := body(0, `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1000}`)
	ahead.Timestamp = time.Now().Add(time.Hour)
	if row := reads(t, e, ahead); row.Problem() != "" || row.Left(time.Now()) > time.Second {
		t.Errorf("%+v", row)
	}
	wrong := body(0, `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1000}`)
	wrong.Timestamp = time.UnixMilli(time.Now().UnixMicro()) // of a producer that takes microseconds for milliseconds
	if row := reads(t, e, wrong); row.Problem() != "" || row.Age != 0 || row.Left(time.Now()) < 900*time.Millisecond {
		t.Errorf("%+v", row)
	}
	if row := reads(t, e, body(0, `{"biz_type": "order.close", "biz_id": "1", "due_time": "0001-01-01T00:00:00Z"}`)); row.Problem() != "" || row.Due.IsZero() {
		t.Errorf("%+v", row)
	}
	none := body(0, `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1000}`)
	none.Timestamp = time.UnixMilli(-1)
	if row := reads(t, e, none); row.Problem() != "the record has no time from which delay_ms could count: give due_time" || row.Created.IsZero() || row.Age != 0 {
		t.Errorf("%+v", row)
	}
}

func TestAKeyThatIsRequiredIsThatOfTheCommand(t *testing.T) {
	t.Parallel()
	e := tocsinkafka.Entrance{RequireKey: true}
	for text, want := range map[string]bool{"7": true, "8": false, "": false} {
		r := body(0, `{"op": "cancel", "biz_type": "order.close", "biz_id": "7"}`)
		r.Key = []byte(text)
		if row := reads(t, e, r); (row.Problem() == "") != want {
			t.Errorf("key %q: %q", text, row.Problem())
		}
	}
	r := body(0, `{"op": "cancel", "biz_type": "order.close", "biz_key": "ord_1"}`)
	for text, want := range map[string]bool{"ord_1": true, "0": false} {
		r.Key = []byte(text)
		if row := reads(t, e, r); (row.Problem() == "") != want {
			t.Errorf("key %q: %q", text, row.Problem())
		}
	}
}
