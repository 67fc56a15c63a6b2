package tocsinnats

import (
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
	"github.com/tocsinhq/tocsin/sink/sinktest"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "authorization: {user: shop, password: secret}")
	cfg := b.config()
	cfg.Username, cfg.Password = "shop", "secret"
	do := func(tb testing.TB, topic string, ask func(js jetstream.JetStream, name string)) {
		tb.Helper()
		js := b.admin(tb, nats.UserInfo(cfg.Username, cfg.Password))
		defer js.Conn().Close()
		ask(js, strings.ReplaceAll(topic, ".", "_"))
	}
	target := sinktest.Target{
		Config: cfg,
		New:    func(cfg sink.Config) (sink.Maker, error) { return New(cfg) },
		Make: func(tb testing.TB, topic string) {
			do(tb, topic, func(js jetstream.JetStream, name string) {
				create(tb, js, jetstream.StreamConfig{Name: name, Subjects: []string{topic}})
			})
		},
		Read: func(tb testing.TB, topic string, least int) (all []sink.Message) {
			do(tb, topic, func(js jetstream.JetStream, name string) {
				s, err := js.Stream(tb.Context(), name)
				if err != nil {
					tb.Fatal(err)
				}
				for _, m := range messages(tb, s, least) {
					all = append(all, decoded(tb, m))
				}
			})
			return all
		},
		Kill: b.kill, Start: func(tb testing.TB) { b.start(tb) }, Freeze: b.freeze, Thaw: b.thaw,
	}
	target.Refused = func(tb testing.TB, topic string) (tocsin.Sink, tocsin.Info) {
		do(tb, topic, func(js jetstream.JetStream, name string) {
			create(tb, js, jetstream.StreamConfig{Name: name, Subjects: []string{topic}, MaxMsgSize: 2000})
		})
		return tocsin.Sink{Topic: topic}, tocsin.Info{BizID: 1, BizType: "order.close", Version: 1, Payload: strings.Repeat("x", 2000)}
	}
	sinktest.Run(t, target)
}

// decoded is a message as the NATS binding of CloudEvents says.
func decoded(tb testing.TB, m jetstream.Msg) sink.Message {
	tb.Helper()
	read := sink.Message{Topic: m.Subject(), Value: m.Data()}
	for name, texts := range m.Headers() {
		attribute, is := strings.CutPrefix(name, "ce-")
		text, err := url.PathUnescape(texts[0])
		switch {
		case name == "content-type":
			read.ContentType = texts[0]
		case name == jetstream.MsgIDHeader:
			read.ID = texts[0]
		case !is:
			read.Headers = append(read.Headers, sink.Pair{Name: name, Text: texts[0]})
		case err != nil:
			tb.Fatal(err)
		case attribute != "datacontenttype":
			read.Attributes = append(read.Attributes, sink.Pair{Name: attribute, Text: text})
		case text != m.Headers().Get("content-type"):
			tb.Errorf("ce-datacontenttype %q, content-type %q", text, m.Headers().Get("content-type"))
		}
	}
	return read
}
