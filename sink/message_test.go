package sink_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

var cfg = sink.Config{Name: "orders-kafka", Addresses: []string{"h:1"}, Topics: []string{"orders.*", "eu-*"}, Cluster: "shop"}

// task is one with all that a message may hold.
func task() tocsin.Info {
	due := time.Date(2026, 11, 26, 10, 0, 0, 5e6, time.UTC)
	return tocsin.Info{
		JobID: 42, BizID: 7, BizType: "order.close", Version: 3, Attempts: 1, Payload: `{"order":7}`, ActionTime: due.Add(time.Minute), DueTime: due,
		Headers: `{"region":"eu-west","traceparent":"00-1"}`, PayloadVersion: 2, Schedule: "nightly", FireTime: due,
	}
}

// fits refuses topics that end with a dot.
func fits(topic string) error {
	if strings.HasSuffix(topic, ".") {
		return fmt.Errorf("topic %q ends with a dot", topic)
	}
	return nil
}

// route is that of a policy that goes to a sink.
func route(t *testing.T, to tocsin.Sink) *sink.Route {
	t.Helper()
	r, err := sink.NewRoute(cfg, tocsin.Policy{Name: "order.close", Sink: &to}, fits)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAMessageIsACloudEvent(t *testing.T) {
	t.Parallel()
	got, err := route(t, tocsin.Sink{Name: cfg.Name, Topic: "orders.{biz_type}"}).Message(task())
	want := sink.Message{
		ID: "42.3", Topic: "orders.order.close", Key: []byte("7"), ContentType: "application/json", Value: []byte(`{"order":7}`),
		Headers: []sink.Pair{{"region", "eu-west"}, {"traceparent", "00-1"}},
		Attributes: []sink.Pair{
			{"specversion", "1.0"}, {"id", "42.3"}, {"source", "/tocsin/shop"}, {"type", "order.close"}, {"subject", "7"}, {"time", "2026-11-26T10:00:00.005Z"},
			{"tocsinjobid", "42"}, {"tocsinattempt", "2"}, {"partitionkey", "7"}, {"tocsinpayloadversion", "2"}, {"tocsinschedule", "nightly"}, {"tocsinfiretime", "2026-11-26T10:00:00.005Z"},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

func TestTopicAndKeyComeFromTheTask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		to         tocsin.Sink
		topic, key string
	}{
		"a topic by header": {tocsin.Sink{Topic: "{header.region}"}, "eu-west", "7"},
		"the job":           {tocsin.Sink{Topic: "orders.x", Key: "job_id"}, "orders.x", "42"},
		"a key by header":   {tocsin.Sink{Topic: "orders.x", Key: "header.region"}, "orders.x", "eu-west"},
		"no key":            {tocsin.Sink{Topic: "orders.x", Key: "none"}, "orders.x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := route(t, c.to).Message(task())
			if err != nil || m.Topic != c.topic || string(m.Key) != c.key || (m.Key == nil) != (c.key == "") {
				t.Errorf("topic %q, key %q, %v", m.Topic, m.Key, err)
			}
		})
	}
	keyed := task()
	keyed.BizKey = "ord_01J"
	if m, err := route(t, tocsin.Sink{Topic: "orders.x"}).Message(keyed); err != nil || string(m.Key) != "ord_01J" {
		t.Errorf("a business key: key %q, %v", m.Key, err)
	}
}

func TestWhatCanNeverBeSentIsDead(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		to      tocsin.Sink
		headers tocsin.Headers
	}{
		`topic {header.country} of sink orders-kafka: the task has no header "country"`: {tocsin.Sink{Topic: "{header.country}"}, `{}`},
		`key header.country of sink orders-kafka: the task has no header "country"`:     {tocsin.Sink{Topic: "orders.x", Key: "header.country"}, `{}`},
		`biz type order.close: sink orders-kafka does not allow topic "us"`:             {tocsin.Sink{Topic: "{header.region}"}, `{"region":"us"}`},
		`sink orders-kafka: topic "eu-." ends with a dot`:                               {tocsin.Sink{Topic: "{header.region}"}, `{"region":"eu-."}`},
		`headers`: {tocsin.Sink{Topic: "orders.x"}, `[1]`},
	} {
		bad := task()
		bad.Headers = c.headers
		r, err := sink.NewRoute(cfg, tocsin.Policy{Name: "order.close", Sink: &tocsin.Sink{Name: cfg.Name, Topic: c.to.Topic, Key: c.to.Key}}, fits)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Message(bad)
		if verb, _, reason := tocsin.AsOutcome(err); verb != tocsin.Buried || !strings.Contains(reason, want) {
			t.Errorf("got %s %q, want it dead: %s", verb, reason, want)
		}
	}
	_, err := sink.NewRoute(cfg, tocsin.Policy{Name: "order.close", Sink: &tocsin.Sink{Name: cfg.Name, Topic: "refunds"}}, fits)
	if want := "biz type order.close: sink orders-kafka does not allow topic refunds: name another, or add it to the sink's topics in the config"; err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	_, err = sink.NewRoute(cfg, tocsin.Policy{Name: "order.close", Sink: &tocsin.Sink{Name: cfg.Name, Topic: "orders.{header.x}."}}, fits)
	if want := `biz type order.close: sink orders-kafka: topic "orders.x." ends with a dot`; err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestTheFormOfCallbacksHasTheirBody(t *testing.T) {
	t.Parallel()
	m, err := route(t, tocsin.Sink{Topic: "orders.x", Format: tocsin.FormatWebhook}).Message(task())
	var body struct {
		Data struct {
			JobID string `json:"job_id"`
		} `json:"data"`
	}
	if err != nil || json.Unmarshal(m.Value, &body) != nil || body.Data.JobID != "42" || m.Attributes != nil || len(m.Headers) != 2 {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestTextThatIsNoJSONSaysSo(t *testing.T) {
	t.Parallel()
	plain := task()
	plain.Payload = "hello"
	if m, err := route(t, tocsin.Sink{Topic: "orders.x"}).Message(plain); err != nil || m.ContentType != "text/plain; charset=utf-8" || string(m.Value) != "hello" {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestUnavailableIsNoAttempt(t *testing.T) {
	t.Parallel()
	err := sink.Unavailable(errors.New("no leader"))
	if verb, _, reason := tocsin.AsOutcome(err); verb != tocsin.Retried || reason != "no leader" || !sink.IsUnavailable(err) {
		t.Errorf("%s %q", verb, reason)
	}
	if sink.IsUnavailable(errors.New("no")) || sink.IsUnavailable(nil) {
		t.Error("any other error counts as one")
	}
}
