package sinktest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

func arrives(t *testing.T, s *site) {
	s.Make(t, s.topic)
	sent := tasks(4)
	sent[1].BizKey, sent[1].Payload, sent[1].Headers = "ord_01J8Z3", "not JSON", ""
	sent[2].PayloadVersion, sent[2].Schedule, sent[2].FireTime = 2, "nightly", sent[2].DueTime
	sent[3].Payload = ""
	p := s.policy()
	s.taken(t, s.sink(t, s.maker, p), sent)
	s.read(t, p, false, sent)
	for _, key := range []string{"job_id", "none", "header.X-Tenant"} {
		p.Sink.Key = key
		more := tasks(1)
		s.taken(t, s.sink(t, s.maker, p), more)
		s.topicHas(t, p, more[0])
	}
}

// topicHas wants a message of the task among those of the topic.
func (s *site) topicHas(t *testing.T, p tocsin.Policy, task tocsin.Info) {
	t.Helper()
	route, err := sink.NewRoute(s.Config, p, anyTopic)
	if err != nil {
		t.Fatal(err)
	}
	want, err := route.Message(task)
	if err != nil {
		t.Fatal(err)
	}
	all := s.Read(t, s.topic, 1)
	if !slices.ContainsFunc(all, func(m sink.Message) bool { return s.text(m) == s.text(want) }) {
		t.Errorf("no message is\n%s", s.text(want))
	}
}

func callback(t *testing.T, s *site) {
	s.Make(t, s.topic)
	p := s.policy()
	p.Sink.Format = tocsin.FormatWebhook
	sent := tasks(1)
	s.taken(t, s.sink(t, s.maker, p), sent)
	all := s.Read(t, s.topic, 1)
	if len(all) != 1 {
		t.Fatalf("%d messages", len(all))
	}
	var body struct {
		Type string
		Data struct {
			JobID     tocsin.JobID `json:"job_id"`
			Attribute string
		}
	}
	m := all[0]
	if err := json.Unmarshal(m.Value, &body); err != nil || body.Type != "order.close" || body.Data.JobID != sent[0].JobID || body.Data.Attribute != sent[0].Payload {
		t.Errorf("%v: %s", err, m.Value)
	}
	if m.ContentType != "application/json" || len(m.Attributes) != 0 || len(m.Headers) != 2 {
		t.Errorf("content type %q, attributes %v, headers %v", m.ContentType, m.Attributes, m.Headers)
	}
}

func batch(t *testing.T, s *site) {
	to := s.ready(t)
	if errs := to.Deliver(t.Context(), nil); len(errs) != 0 {
		t.Errorf("%v for no tasks", errs)
	}
	sent := tasks(500)
	ctx, outputs := watched(t)
	for i, err := range to.Deliver(ctx, sent) {
		if err != nil {
			t.Fatalf("task %d: %v", i, err)
		}
	}
	places := map[string]bool{}
	for _, task := range sent {
		places[outputs.Of(uint64(task.JobID))] = true
	}
	if places[""] || !s.Vague && len(places) != len(sent) {
		t.Errorf("%d tasks lie at %d places, %q for instance", len(sent), len(places), outputs.Of(uint64(sent[0].JobID)))
	}
	s.read(t, s.policy(), false, sent)
}

func refused(t *testing.T, s *site) {
	p := s.policy()
	target, bad := s.Refused(t, s.topic)
	target.Name = s.Config.Name
	p.Sink = &target
	to := s.sink(t, s.maker, p)
	sent := tasks(9)
	bad.JobID = tasks(1)[0].JobID
	ctx, outputs := watched(t)
	errs := to.Deliver(ctx, slices.Insert(slices.Clone(sent), 4, bad))
	if len(errs) != 10 {
		t.Fatalf("%d results for 10 tasks", len(errs))
	}
	for i, err := range errs {
		s.plain(t, err)
		verb, _, _ := tocsin.AsOutcome(err)
		if want := map[bool]tocsin.Verb{true: tocsin.Buried, false: tocsin.Completed}[i == 4]; verb != want {
			t.Errorf("task %d: %v", i, err)
		}
	}
	if place := outputs.Of(uint64(bad.JobID)); place != "" {
		t.Errorf("the refused task lies at %s", place)
	}
	if verb, _, _ := tocsin.AsOutcome(s.deliver(t, to, soon, []tocsin.Info{bad})[0]); verb != tocsin.Buried {
		t.Errorf("alone: %s", verb)
	}
	s.read(t, p, false, sent)
}

func concurrent(t *testing.T, s *site) {
	to := s.ready(t)
	sent := tasks(16 * 20)
	var group sync.WaitGroup
	for part := range slices.Chunk(sent, 20) {
		group.Go(func() { s.taken(t, to, part) })
	}
	group.Wait()
	s.read(t, s.policy(), false, sent)
}

func missing(t *testing.T, s *site) {
	p := s.policy()
	to := s.sink(t, s.maker, p)
	sent := tasks(3)
	s.unavailable(t, s.deliver(t, to, soon, sent))
	err := s.maker.Ping(t.Context(), p)
	if s.plain(t, err); err == nil {
		t.Error("Ping does not find that the topic is missing")
	}
	s.Make(t, s.topic)
	s.eventually(t, to, sent)
	if err := s.maker.Ping(t.Context(), p); err != nil {
		t.Errorf("Ping: %v", err)
	}
	s.read(t, p, false, sent)
}

// away is about a maker that has delivered, and one that has not, as the broker goes.
func away(t *testing.T, s *site) {
	to := s.ready(t)
	before, during, first := tasks(3), tasks(3), tasks(3)
	s.taken(t, to, before)
	s.Kill(t)
	t.Cleanup(func() { s.Start(t) })
	for range 2 {
		s.unavailable(t, s.deliver(t, to, soon, during))
	}
	s.noPing(t)
	never := *s
	never.maker = s.new(t)
	s.close(t, s.new(t)) // unused
	fresh := s.sink(t, never.maker, s.policy())
	s.unavailable(t, s.deliver(t, fresh, soon, first))
	never.noPing(t)
	s.Start(t)
	s.eventually(t, fresh, first)
	s.eventually(t, to, during)
	s.read(t, s.policy(), true, slices.Concat(before, during, first))
}

// noPing wants Ping to say that the broker is away, in time.
func (s *site) noPing(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err := s.maker.Ping(ctx, s.policy())
	if s.plain(t, err); err == nil {
		t.Error("Ping finds a broker that is away")
	}
}

func repeat(t *testing.T, s *site) {
	to := s.ready(t)
	s.taken(t, to, tasks(1))
	sent := tasks(3)
	s.frozen(t, func() { s.unavailable(t, s.deliver(t, to, hasty, sent)) })
	s.eventually(t, to, sent)
	for _, task := range sent {
		s.topicHas(t, s.policy(), task)
	}
	names := map[string]bool{}
	for _, m := range s.Read(t, s.topic, 4) {
		names[m.ID] = true
	}
	if len(names) != 4 {
		t.Errorf("%d ids of 4 tasks", len(names))
	}
}

// frozen runs do while the broker does not answer.
func (s *site) frozen(t *testing.T, do func()) {
	t.Helper()
	s.Freeze(t)
	defer s.Thaw(t)
	do()
}

func cancelled(t *testing.T, s *site) {
	to := s.ready(t)
	s.taken(t, to, tasks(1))
	s.frozen(t, func() {
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan []error)
		go func() { results <- to.Deliver(ctx, tasks(2)) }()
		cancel()
		s.unavailable(t, <-results)
	})
	s.eventually(t, to, tasks(1))
}

func closed(t *testing.T, s *site) {
	to := s.ready(t)
	s.taken(t, to, tasks(1))
	s.frozen(t, func() {
		began, results := make(chan struct{}), make(chan []error)
		for range 8 {
			go func() {
				began <- struct{}{}
				results <- to.Deliver(t.Context(), tasks(2))
			}()
		}
		for range 8 {
			<-began
		}
		s.close(t, s.maker)
		for range 8 {
			s.unavailable(t, <-results)
		}
	})
	s.unavailable(t, s.deliver(t, to, soon, tasks(1)))
	if err := s.maker.Ping(t.Context(), s.policy()); err == nil {
		t.Error("Ping answers after Close")
	}
}
