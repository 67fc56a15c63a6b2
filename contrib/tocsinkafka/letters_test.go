package tocsinkafka_test

import (
	"context"
	"crypto/rand"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
)

// A refused record that is as large as a topic takes it does not hold up its partition.
func TestALargeRecordIsBuriedTooOrAPartOfIt(t *testing.T) {
	t.Parallel()
	e, _ := controlled(t, refused)
	noise := make([]byte, 1_048_588-100) // fits, but not with two headers more
	_, _ = rand.Read(noise)
	op := strings.Repeat("remove", 100_000)
	e.send(body(0, "close 42 %s", strings.Repeat("x", 1_040_000)))
	e.send(&kgo.Record{Key: []byte("k"), Value: noise})
	e.send(body(0, `{"op": "%s", "biz_type": "order.close", "biz_id": "1"}`, op))
	s := e.leading()
	var problems []string
	for len(problems) < 3 {
		rows, err := s.Read(t.Context(), everything, 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if n := len(row.Op) + len(row.Unfit); n > 1000 {
				t.Errorf("a row keeps %d bytes", n)
			}
			problems = append(problems, row.Problem())
			within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if err := s.SetAside(within, row.Key, row.Problem()); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(e.entrance.Brokers.Addresses...), kgo.ConsumeTopics(refused))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var found []*kgo.Record
	for len(found) < 3 && t.Context().Err() == nil {
		found = append(found, reader.PollFetches(t.Context()).Records()...)
	}
	if len(found[0].Value) != 1_040_009 || len(found[1].Value) != 1000 || string(found[1].Key) != "k" || len(found[2].Value) < len(op) {
		t.Errorf("%d, %d and %d bytes", len(found[0].Value), len(found[1].Value), len(found[2].Value))
	}
	for i, r := range found {
		if n := len(r.Headers); n != 2 || len(r.Headers[0].Value) > 400 || !strings.HasPrefix(string(r.Headers[0].Value), problems[i]) {
			t.Errorf("%d headers: %s", n, r.Headers[0].Value)
		}
	}
}

// The group is not joined again for each try, which would hold up the commits of all its members.
func TestTheGroupStaysWhileTheDeadLetterTopicIsMissing(t *testing.T) {
	t.Parallel()
	e, cluster := controlled(t)
	var joined atomic.Int64
	cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		joined.Add(1)
		return nil, nil, false
	})
	e.send(body(0, "close 42"))
	s := e.leading()
	rows, err := s.Read(t.Context(), everything, 1, nil)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	before := joined.Load()
	within, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
	defer cancel()
	if err := s.SetAside(within, rows[0].Key, "refused"); err == nil {
		t.Error("it is set aside nowhere")
	}
	if n := joined.Load(); n != before {
		t.Errorf("the group was joined %d times more", n-before)
	}
}

// A group that takes no member is told of.
func TestAGroupThatCanNotBeJoinedIsLogged(t *testing.T) {
	t.Parallel()
	e, cluster := controlled(t)
	cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil, true
	})
	topic, err := tocsinkafka.Topic(e.From)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = topic.Close() }()
	if _, err := topic.Parts(t.Context()); err != nil {
		t.Fatal(err)
	}
	line := e.log.Await(t, "group of consumers can't be joined, or was left: its partitions wait")
	if text, _ := line["error"].(string); !strings.Contains(text, "grant READ on the topic and on group tocsin-shop") {
		t.Error(line)
	}
}
