package tocsinkafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tocsinhq/tocsin/biztype"
)

// malformed are records that are no commands, or commands that nobody can carry out, by what the dead-letter topic has to say.
var malformed = map[string]*kgo.Record{
	"the value is null":                                   {},
	"the value is no command as JSON: ":                   body(0, `close 42`),
	"the value has more than one JSON object":             body(0, `{"op": "cancel", "biz_type": "order.close", "biz_id": "1"} {}`),
	`unknown field "unique_key"`:                          body(0, `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1, "unique_key": "x"}`),
	`op "remove": use add, cancel or reschedule`:          body(0, `{"op": "remove", "biz_type": "order.close", "biz_id": "1"}`),
	"biz_type is missing":                                 body(0, `{"biz_id": "1", "delay_ms": 1}`),
	"name one of biz_id and biz_key":                      body(0, `{"biz_type": "order.close", "delay_ms": 1}`),
	"give either biz_id or biz_key":                       body(0, `{"biz_type": "order.close", "biz_id": "1", "biz_key": "x", "delay_ms": 1}`),
	`biz_id "18446744073709551616"`:                       body(0, `{"biz_type": "order.close", "biz_id": "18446744073709551616", "delay_ms": 1}`),
	"give either due_time or delay_ms":                    body(0, `{"biz_type": "order.close", "biz_id": "1"}`),
	"payload can't be a JSON object":                      body(0, `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1, "payload": {}}`),
	"more than 10 years away":                             body(0, `{"biz_type": "order.close", "biz_id": "1", "due_time": "2090-01-01T00:00:00Z"}`),
	`tocsin-due "soon": want RFC 3339`:                    headed("tocsin-biz-type", "order.close", "tocsin-biz-id", "1", "tocsin-due", "soon"),
	`due_time "2030-01-02T15:04:05+24:00": want RFC 3339`: body(0, `{"biz_type": "order.close", "biz_id": "1", "due_time": "2030-01-02T15:04:05+24:00"}`),
	`tocsin-delay-ms "1s": want a whole number`:           headed("tocsin-biz-type", "order.close", "tocsin-biz-id", "1", "tocsin-delay-ms", "1s"),
	`unknown biz type "no.such"`:                          body(0, `{"biz_type": "no.such", "biz_id": "1", "delay_ms": 1}`),
	"payload has 8193 characters":                         body(0, `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1, "payload": "%s"}`, strings.Repeat("x", 8193)),
}

// headed is a record whose command is in its headers.
func headed(pairs ...string) *kgo.Record {
	r := &kgo.Record{Value: []byte("p")}
	for i := 0; i < len(pairs); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return r
}

func TestWhatIsNoCommandGoesToTheDeadLetterTopic(t *testing.T) {
	t.Parallel()
	e := newEntry(t, map[string]int32{commands: 1, refused: 1})
	e.use(e.entrance.Within(time.Second, 0))
	for want, r := range malformed {
		r.Key = []byte("key of " + want)
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "mine", Value: []byte(want)})
		e.send(r)
	}
	e.send(body(0, `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 86400000, "payload": "behind"}`))
	e.relay()
	e.Want(1, "behind pending")
	e.committed(int64(len(malformed)) + 1)
	found := e.broker.kcat(t, refused)
	if len(found) != len(malformed) {
		t.Errorf("%d dead letters, want %d", len(found), len(malformed))
	}
	for _, r := range found {
		headers := map[string]string{}
		for i := 0; i+1 < len(r.Headers); i += 2 {
			headers[r.Headers[i]] = r.Headers[i+1]
		}
		want := headers["mine"]
		from := malformed[want]
		if from == nil || !strings.Contains(headers["tocsin-error"], want) || !strings.HasPrefix(headers["tocsin-origin"], commands+"/0@") || *r.Key != "key of "+want {
			t.Errorf("key %q, headers %v: want %q", *r.Key, headers, want)
			continue
		}
		if (r.Payload == nil) != (from.Value == nil) || r.Payload != nil && *r.Payload != string(from.Value) {
			t.Errorf("%s: the value differs", want)
		}
	}
}

func TestAPartitionPausesWhileItsDeadLetterTopicIsAway(t *testing.T) {
	t.Parallel()
	e := newEntry(t, map[string]int32{commands: 1})
	for n := range 50 {
		e.send(body(0, `nothing %d`, n), body(0, `{"biz_type": "order.close", "biz_id": "%d", "delay_ms": 86400000, "payload": "x"}`, n+1))
	}
	stop := e.relay()
	line := e.log.Await(t, "partition pauses: a command is refused, and the dead-letter topic can't be written")
	if text := line["error"]; text != "topic "+refused+" is missing: create it, as Tocsin never does" {
		t.Error(text)
	}
	stop() // in the pause
	if n := e.offsets(); n != 0 {
		t.Errorf("offset %d: the refused command would be lost", n)
	}
	e.relay()
	e.broker.create(t, refused, "")
	e.committed(100)
	if n := len(e.broker.kcat(t, refused)); n != 50 {
		t.Errorf("%d dead letters, want 50", n)
	}
	for n := range 50 {
		e.Want(uint64(n+1), "x pending")
	}
}

// A command of a biz type that is not there yet is not refused at once.
func TestABizTypeMayComeAfterItsCommands(t *testing.T) {
	t.Parallel()
	e := newEntry(t, map[string]int32{commands: 1, refused: 1})
	e.send(body(0, `{"biz_type": "late", "biz_id": "1", "delay_ms": 86400000, "payload": "a"}`),
		body(0, `{"op": "cancel", "biz_type": "late", "biz_id": "1"}`),
		body(0, `{"biz_type": "order.close", "biz_id": "2", "delay_ms": 86400000, "payload": "other"}`))
	e.relay()
	e.Want(2, "other pending")
	e.Apply(biztype.Policy{Name: "late", Number: 8})
	e.Want(1, "a cancelled")
	e.committed(3)
	if n := len(e.broker.kcat(t, refused)); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}
