package chaos

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// TestABrokerIsKilledAndFrozen: the broker, a node and both. A consumer's journal has each task, at its time.
func TestABrokerIsKilledAndFrozen(t *testing.T) {
	for _, kind := range pick([]string{"kafka"}, []string{"kafka", "rabbitmq", "nats"}) {
		t.Run(kind, func(t *testing.T) {
			o := small
			o.Broker = kind
			s := begin(t, o)
			s.playUnder(Load{Rate: pick(60, 300), Changes: 0.12, Types: []string{"hook"}}, 2*time.Second, pick(time.Second, 5*time.Second),
				Step{Fault: KillBroker, Length: time.Second}, Step{Fault: KillBoth, Length: time.Second, Node: 1},
				Step{Fault: FreezeBroker, Length: time.Second})
			s.verdict()
		})
	}
}

// backlogOfBroker is what waits for the broker; mostPutBack is how many rows nodes may have loaded in vain.
const (
	backlogOfBroker = 100_000
	mostPutBack     = 2000
)

// TestABrokerIsAwayBesideABacklog: for a minute, from half a second after 100,000 tasks have fallen due for it. Those of another type
// must not be late.
func TestABrokerIsAwayBesideABacklog(t *testing.T) {
	onlyLong(t)
	for _, kind := range []string{"kafka", "rabbitmq", "nats"} {
		t.Run(kind, func(t *testing.T) {
			s := beginAlone(t, Options{Nodes: 2, Broker: kind, HookTimeout: 30 * time.Second, Timing: asShipped})
			var calm, away span
			var sent int
			var back float64
			s.under(Load{Rate: 200, Types: []string{"plain"}, Near: time.Second, Far: 2 * time.Second}, func(ctx context.Context) error {
				due := time.Now().Add(90 * time.Second)
				s.fill(backlogOfBroker, due, 0, brief, "hook")
				calm = span{time.Now(), due}
				s.pause(time.Until(due.Add(500 * time.Millisecond)))
				sent, back, away.from = s.sent(), s.putBack(), time.Now()
				defer func() { away.to = time.Now() }()
				return s.Do(ctx, Step{Fault: KillBroker, Length: time.Minute})
			})
			report := s.verdict()
			back = s.putBack() - back
			others := func(d delivery) bool { return !d.Callback }
			f := &figures{run: kind + " away beside a backlog"}
			f.add("sent_before", sent)
			f.add("lost", report.Lost())
			f.add("early", report.Early)
			f.add("attempts_used", report.Counts[lineAttempts][hook.Name()])
			f.add("second_deliveries", report.Seconds())
			f.add("rows_put_back", back)
			f.seconds("drained", report.Drained)
			f.late("others_before", s.lateness(calm, others))
			f.late("others_meanwhile", s.lateness(away, others))
			f.print(t)
			s.compare("another type", s.lateness(calm, others), s.lateness(away, others))
			if n := report.Counts[lineAttempts][hook.Name()]; n > 0 || back > mostPutBack || sent == backlogOfBroker {
				t.Errorf("%d attempts used, %.0f rows put back, %d of %d sent before", n, back, sent, backlogOfBroker)
			}
		})
	}
}

// sent counts the messages that the consumer has read.
func (s *scenario) sent() (n int) {
	s.t.Helper()
	for _, d := range s.all() {
		if d.Offset != "" {
			n++
		}
	}
	return n
}

// putBack counts the rows that the nodes have loaded and not started, as they told last.
func (s *scenario) putBack() (n float64) {
	for _, at := range s.seats {
		n += at.counters()[backTold]
	}
	return n
}

// TestASecondLinkDelivers: the broker is away for a minute, and the receiver takes its place after half of it.
func TestASecondLinkDelivers(t *testing.T) {
	onlyLong(t)
	for _, kind := range []string{"kafka", "rabbitmq", "nats"} {
		t.Run(kind, func(t *testing.T) {
			s := beginAlone(t, Options{Nodes: 2, Broker: kind, HookTimeout: 30 * time.Second, Timing: asShipped})
			const after = 30 * time.Second
			p := policies(s.receiver.url())[2]
			p.Fallback = &tocsin.Fallback{After: biztype.Duration(after), Webhook: p.Webhook}
			p.Webhook, p.Sink, p.Concurrency, p.Timeout = nil, toBroker, 0, 0
			if _, err := biztype.Apply(t.Context(), s.tables(s.harness), []biztype.Policy{p}); err != nil {
				t.Fatal(err)
			}
			var away span
			begin := time.Now()
			s.under(Load{Rate: 200, Types: []string{"hook"}, Near: time.Second, Far: 2 * time.Second}, func(ctx context.Context) error {
				s.pause(20 * time.Second)
				away.from = time.Now()
				err := s.Do(ctx, Step{Fault: KillBroker, Length: time.Minute})
				away.to = time.Now()
				s.pause(40 * time.Second)
				return err
			})
			report := s.verdict()
			first := func(d delivery) bool { return d.Offset != "" }
			second := func(d delivery) bool { return d.Offset == "" }
			all := func(delivery) bool { return true }
			f := &figures{run: kind + " away, and a fallback"}
			f.add("lost", report.Lost())
			f.add("attempts_used", report.Counts[lineAttempts][hook.Name()])
			f.add("second_deliveries", report.Seconds())
			f.late("before", s.lateness(span{begin, away.from}, first))
			stands := away.from.Add(after)
			if i := slices.IndexFunc(s.all(), second); i >= 0 {
				stands = s.all()[i].At
			}
			f.seconds("second_link_after", stands.Sub(away.from))
			f.late("waited_for_it", s.lateness(span{away.from, stands}, all))
			f.late("second_link", s.lateness(span{stands.Add(5 * time.Second), away.to}, second))
			f.late("by_first_then", s.lateness(span{stands.Add(5 * time.Second), away.to}, first))
			f.late("after_it", s.lateness(span{away.to.Add(30 * time.Second), time.Now()}, first))
			f.print(t)
			if late := s.lateness(span{stands.Add(5 * time.Second), away.to}, second); len(late) < 1000 || late.Quantile(0.99) > time.Second {
				t.Errorf("the second link: %s", late)
			}
		})
	}
}
