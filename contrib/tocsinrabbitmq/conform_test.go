package tocsinrabbitmq_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinrabbitmq"
	"github.com/tocsinhq/tocsin/sink"
	"github.com/tocsinhq/tocsin/sink/sinktest"
)

func TestItConforms(t *testing.T) {
	t.Parallel()
	b := start(t)
	runs := true
	sinktest.Run(t, sinktest.Target{
		Config: b.config(),
		New:    func(cfg sink.Config) (sink.Maker, error) { return tocsinrabbitmq.New(cfg) },
		Make:   func(tb testing.TB, topic string) { b.queue(tb, topic, nil) },
		Read: func(tb testing.TB, topic string, least int) (all []sink.Message) {
			for _, d := range b.read(tb, topic, least) {
				m := sink.Message{ID: d.MessageId, Topic: d.RoutingKey, ContentType: d.ContentType, Value: d.Body}
				for name, text := range d.Headers {
					pair := sink.Pair{Name: name, Text: text.(string)}
					if attribute, is := strings.CutPrefix(name, prefix); is {
						pair.Name = attribute
						m.Attributes = append(m.Attributes, pair)
					} else {
						m.Headers = append(m.Headers, pair)
					}
				}
				all = append(all, m)
			}
			return all
		},
		Refused: func(tb testing.TB, topic string) (tocsin.Sink, tocsin.Info) {
			b.queue(tb, topic, nil)
			return tocsin.Sink{Topic: topic}, task(strings.Repeat("x", largest+1), "")
		},
		Vague: true,
		Kill: func(tb testing.TB) {
			runs = false
			// What was declared is on the disk only seconds later.
			if err := b.Control(context.Background(), "mnesia:sync_log()"); err != nil {
				tb.Fatal(err)
			}
			if err := b.Kill(); err != nil {
				tb.Fatal(err)
			}
		},
		Start: func(tb testing.TB) {
			if runs {
				return
			}
			runs = true
			ctx, cancel := context.WithTimeout(context.Background(), startWithin)
			defer cancel()
			if err := b.Restart(ctx); err != nil {
				tb.Fatal(err)
			}
		},
		Freeze: b.freeze,
		Thaw:   b.thaw,
	})
}
