// Package sinktest is the test of modules that deliver to message brokers: Run, once for each kind of broker, against a real
// one in a process of its own.
//
//	func TestConforms(t *testing.T) { sinktest.Run(t, sinktest.Target{New: ..., Make: ..., ...}) }
//
// It covers what the dispatcher relies on: one error a task, errors that say whether an attempt was made, the same id in
// every attempt, and that Deliver always returns in time.
package sinktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/sink"
)

// Topics is the glob of the topics that Run uses.
const Topics = "sinktest.*"

// Target is a broker, how a module reaches it, and how a consumer sees it. The functions end the test if they fail. Run calls
// them one after the other, and nothing else may use the broker meanwhile.
type Target struct {
	Config  sink.Config                                                  // of the broker; Run sets Topics
	New     func(cfg sink.Config) (sink.Maker, error)                    // of the module
	Make    func(tb testing.TB, topic string)                            // makes a topic, so that the broker keeps what is sent to it
	Read    func(tb testing.TB, topic string, least int) []sink.Message  // waits until a topic has at least that many messages, and returns all, in any order
	Refused func(tb testing.TB, topic string) (tocsin.Sink, tocsin.Info) // makes the topic, and returns a task that the broker will never take
	Keyed   bool                                                         // the broker keeps the key of a message
	Vague   bool                                                         // a message has no place of its own: a run's output names its topic alone

	Kill   func(tb testing.TB) // ends the broker as kill -9 does
	Start  func(tb testing.TB) // starts it again unless it runs, with its data and on its address
	Freeze func(tb testing.TB) // stops it, as SIGSTOP does: its connections stay, and it answers nothing
	Thaw   func(tb testing.TB) // lets it go on
}

// Run tests the module.
func Run(t *testing.T, target Target) {
	target.Config.Topics = []string{Topics}
	for _, c := range []struct {
		name string
		test func(t *testing.T, s *site)
	}{
		{"a message arrives as it was sent", arrives},
		{"a callback's body arrives in the other format", callback},
		{"each task of a batch has a result, and where it lies", batch},
		{"one refused task of a batch is buried alone", refused},
		{"deliveries may run at once", concurrent},
		{"a topic that is missing is unavailable until it is made", missing},
		{"a broker that goes, or was never reached, is unavailable until it is there", away},
		{"what timed out is sent again under its id", repeat},
		{"Deliver ends with its context", cancelled},
		{"Close ends deliveries", closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &site{Target: target, topic: fmt.Sprintf("sinktest.%d", ids.Add(1))}
			s.maker = s.new(t)
			c.test(t, s)
		})
	}
}

// ids makes topics and tasks that differ.
var ids atomic.Uint64

const (
	soon     = 10 * time.Second // a delivery to a broker that answers, and one to a broker that is away
	hasty    = 2 * time.Second  // a delivery to a broker that does not answer
	eventual = time.Minute      // until a broker that was started takes messages
)

// site is a test of one maker and topic.
type site struct {
	Target
	maker sink.Maker
	topic string
}

// new returns a maker that is closed at the end of the test.
func (s *site) new(t *testing.T) sink.Maker {
	t.Helper()
	m, err := s.New(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close(t, m) })
	return m
}

func (s *site) close(t *testing.T, m sink.Maker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := m.Close(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("Close: %v, %v", err, ctx.Err())
	}
}

// anyTopic is what the suite takes: it is the module that knows the broker's form.
func anyTopic(string) error { return nil }

// policy is that of the test's topic.
func (s *site) policy() tocsin.Policy {
	return tocsin.Policy{Name: "order.close", Number: 7, Sink: &tocsin.Sink{Name: s.Config.Name, Topic: s.topic}}
}

// sink returns the sink of a policy.
func (s *site) sink(t *testing.T, m sink.Maker, p tocsin.Policy) sink.Sink {
	t.Helper()
	to, err := m.Sink(p)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// ready makes the topic, and returns its sink.
func (s *site) ready(t *testing.T) sink.Sink {
	t.Helper()
	s.Make(t, s.topic)
	return s.sink(t, s.maker, s.policy())
}

// tasks returns n tasks that no other test has.
func tasks(n int) []tocsin.Info {
	all := make([]tocsin.Info, n)
	for i := range all {
		id := ids.Add(1)
		due := time.Date(2026, 12, 1, 12, 0, 0, int(id%1000)*1e6, time.UTC)
		all[i] = tocsin.Info{
			JobID: tocsin.JobID(1<<40 + id), BizID: 1000 + id, BizType: "order.close", Version: 3, Attempts: 1, Status: tocsin.Claimed,
			ActionTime: due, DueTime: due, Payload: fmt.Sprintf(`{"order":%d,"why":"unpaid 未付款"}`, id),
			Headers: `{"X-Tenant":"acme","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`,
		}
	}
	return all
}

// deliver delivers under a deadline, and checks what holds for every result.
func (s *site) deliver(t *testing.T, to sink.Sink, within time.Duration, tasks []tocsin.Info) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	errs := to.Deliver(ctx, tasks)
	if ctx.Err() != nil {
		t.Errorf("Deliver returned after its deadline: %v", errs)
	}
	if len(errs) != len(tasks) {
		t.Fatalf("%d results for %d tasks", len(errs), len(tasks))
	}
	for _, err := range errs {
		s.plain(t, err)
	}
	return errs
}

// plain checks that an error is a line without the password.
func (s *site) plain(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if text := err.Error(); strings.ContainsAny(text, "\r\n") || text == "" || s.Config.Password != "" && strings.Contains(text, s.Config.Password) {
		t.Errorf("want a line without the password: %q", text)
	}
}

// taken wants the broker to take all tasks at once.
func (s *site) taken(t *testing.T, to sink.Sink, tasks []tocsin.Info) {
	t.Helper()
	for i, err := range s.deliver(t, to, soon, tasks) {
		if err != nil {
			t.Errorf("task %d: %v", i, err)
		}
	}
}

// eventually delivers until the broker takes the tasks. Until then it is unavailable.
func (s *site) eventually(t *testing.T, to sink.Sink, tasks []tocsin.Info) {
	t.Helper()
	for end := time.Now().Add(eventual); ; <-time.After(20 * time.Millisecond) {
		errs := s.deliver(t, to, soon, tasks)
		open := slices.IndexFunc(errs, func(err error) bool { return err != nil })
		if open < 0 {
			return
		}
		s.unavailable(t, errs[open:open+1])
		if time.Now().After(end) {
			t.Fatalf("not taken: %v", errs[open])
		}
	}
}

// unavailable wants errors that count no attempt.
func (s *site) unavailable(t *testing.T, errs []error) {
	t.Helper()
	for i, err := range errs {
		s.plain(t, err)
		verb, _, _ := tocsin.AsOutcome(err)
		if !sink.IsUnavailable(err) || verb != tocsin.Retried {
			t.Fatalf("task %d: %v; want Unavailable", i, err)
		}
	}
}

// read reads the topic, and wants a message for each task as the policy says, and no other. Only after a fault may one be there twice.
func (s *site) read(t *testing.T, p tocsin.Policy, twice bool, tasks []tocsin.Info) {
	t.Helper()
	route, err := sink.NewRoute(s.Config, p, anyTopic)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, m := range s.Read(t, s.topic, len(tasks)) {
		got[s.text(m)]++
	}
	for i, task := range tasks {
		m, err := route.Message(task)
		if err != nil {
			t.Fatal(err)
		}
		want := s.text(m)
		if n := got[want]; n == 0 || n > 1 && !twice {
			t.Errorf("task %d is there %d times:\n%s", i, n, want)
		}
		delete(got, want)
	}
	for m := range got {
		t.Errorf("nobody sent\n%s", m)
	}
}

// text writes a message so that two are the same if their texts are.
func (s *site) text(m sink.Message) string {
	if !s.Keyed {
		m.Key = nil
	}
	byName := func(a, b sink.Pair) int { return strings.Compare(a.Name, b.Name) }
	return fmt.Sprintf("topic %s, key %q, %s, %q, %q, %s", m.Topic, m.Key, m.ContentType,
		slices.SortedFunc(slices.Values(m.Attributes), byName), slices.SortedFunc(slices.Values(m.Headers), byName), m.Value)
}

// watched returns a context whose outputs can be read.
func watched(t *testing.T) (context.Context, *client.Outputs) {
	outputs := new(client.Outputs)
	return context.WithValue(t.Context(), client.OutputKey, outputs), outputs
}
