package tocsinkafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

// fates are the rows of the table in docs/sinks.md, by how they begin behind the name of the answer.
var fates = map[fate]string{waits: "waits: ", waitsOrAttempt: "waits, and the biz type with it. ", attempt: "has failed, ", dead: "is dead: "}

func TestThePageSaysWhatBecomesOfEachAnswer(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/sinks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| the broker answers | the task |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, a := range answers {
		found := ""
		for line := range strings.Lines(table) {
			cells := strings.Split(line, " | ")
			if strings.Contains(cells[0], "`"+a.err.Message+"`") {
				found = cells[1]
			}
		}
		if !strings.HasPrefix(found, fates[a.becomes]) {
			t.Errorf("%s: the page says %q, want %q", a.err.Message, found, fates[a.becomes])
		}
	}
}

func TestErrorsAreTold(t *testing.T) {
	t.Parallel()
	m, err := New(sink.Config{Name: "k", Addresses: []string{"h:9092"}, Topics: []string{"*"}, Username: "u", Password: "pw", Mechanism: "PLAIN"})
	if err != nil {
		t.Fatal(err)
	}
	to := func(topic string) *topics {
		s, err := m.Sink(tocsin.Policy{Name: "a", Sink: &tocsin.Sink{Name: "k", Topic: topic}})
		if err != nil {
			t.Fatal(err)
		}
		return s.(*topics)
	}
	const buried, failed, unavailable = "dead", "failed", "unavailable"
	for name, c := range map[string]struct {
		err             error
		fixed, byHeader string
		says            string
	}{
		"too large":     {fmt.Errorf("%w (uncompressed_bytes=9)", kerr.MessageTooLarge), buried, buried, "sink k: topic t takes no record of this size"},
		"missing":       {kerr.UnknownTopicOrPartition, unavailable, failed, "sink k: topic t is missing: create it"},
		"no right":      {kerr.TopicAuthorizationFailed, unavailable, failed, "sink k: user u may not write to topic t"},
		"no mechanism":  {kerr.UnsupportedSaslMechanism, unavailable, unavailable, "sink k: the broker does not have the mechanism PLAIN"},
		"no replicas":   {kerr.NotEnoughReplicas, unavailable, failed, "sink k: topic t has fewer replicas in sync"},
		"a leader":      {kerr.NotLeaderForPartition, unavailable, unavailable, "sink k: no answer from h:9092: NOT_LEADER"},
		"an odd answer": {kerr.UnknownServerError, failed, failed, "sink k: topic t: UNKNOWN_SERVER_ERROR"},
		"no time":       {context.DeadlineExceeded, unavailable, unavailable, "sink k: no answer from h:9092 in time"},
		"too old":       {kgo.ErrRecordTimeout, unavailable, unavailable, "sink k: no answer from h:9092 in time"},
		"closed":        {kgo.ErrClientClosed, unavailable, unavailable, "sink k: its connections are closed"},
		"several lines": {errors.New("a\nb"), unavailable, unavailable, "sink k: no answer from h:9092: a b"},
	} {
		for topic, want := range map[string]string{"t": c.fixed, "{header.x}": c.byHeader} {
			err := to(topic).outcome("t", c.err)
			verb, _, text := tocsin.AsOutcome(err)
			got := failed
			switch {
			case verb == tocsin.Buried:
				got = buried
			case sink.IsUnavailable(err):
				got = unavailable
			}
			if got != want || !strings.HasPrefix(text, c.says) {
				t.Errorf("%s, topic %s: %s, %q; want %s, %q", name, topic, got, text, want, c.says)
			}
		}
	}
}

// A dial to a silent broker ends with a time-out too.
func TestALateAnswerIsToldByTheLastDial(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dials []error
		says  string
	}{
		"none":                   {nil, "sink k: no answer from h:9092 in time"},
		"refused":                {[]error{errors.New("refused")}, "sink k: no answer from h:9092: refused; start it, or correct addresses of sink k in the config"},
		"late":                   {[]error{fmt.Errorf("unable to dial: %w", context.DeadlineExceeded)}, "sink k: no answer from h:9092 in time"},
		"cancelled":              {[]error{context.Canceled}, "sink k: no answer from h:9092 in time"},
		"refused, and cancelled": {[]error{errors.New("refused"), context.Canceled}, "sink k: no answer from h:9092: refused; start it, or correct addresses of sink k in the config"},
		"refused, and made":      {[]error{errors.New("refused"), nil}, "sink k: no answer from h:9092 in time"},
	} {
		m := &Maker{cfg: sink.Config{Name: "k", Addresses: []string{"h:9092"}}}
		for _, err := range c.dials {
			m.dial.OnBrokerConnect(kgo.BrokerMetadata{}, 0, nil, err)
		}
		if becomes, told := m.explain("t", context.DeadlineExceeded); becomes != waits || told.Error() != c.says {
			t.Errorf("%s: %d, %v; want %q", name, becomes, told, c.says)
		}
	}
}
