package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/contrib/tocsinnats"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/contrib/tocsinrabbitmq"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/sink"
	"github.com/tocsinhq/tocsin/webhook"
)

// sinkKinds make the sinks of a config file, by the kinds that package config knows.
var sinkKinds = map[string]func(sink.Config) (sink.Maker, error){
	"kafka":    func(cfg sink.Config) (sink.Maker, error) { return tocsinkafka.New(cfg) },
	"rabbitmq": func(cfg sink.Config) (sink.Maker, error) { return tocsinrabbitmq.New(cfg) },
	"nats":     func(cfg sink.Config) (sink.Maker, error) { return tocsinnats.New(cfg) },
}

const (
	sinkWithin  = 10 * time.Second // for one record of `sink test`, and the answer of a broker
	closeWithin = 5 * time.Second  // for deliveries under way
)

// makers are the sinks of a config file, by name.
type makers map[string]sink.Maker

// sinks makes those of the config. It connects to nothing.
func (a *app) sinks(file config.File) (makers, error) {
	made := makers{}
	for _, name := range slices.Sorted(maps.Keys(file.Sinks)) {
		cfg := file.Sink(name)
		cfg.Logger = a.logger(file.Log.Level, file.Log.Format)
		var err error
		if made[name], err = sinkKinds[file.Sinks[name].Kind](cfg); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// relayed returns the outboxes and entrances of a config file, with their drivers.
func (a *app) relayed(file config.File) []outbox.Config {
	all := tocsinpg.Drive(file.Relayed())
	for _, name := range slices.Sorted(maps.Keys(file.Entrances)) {
		brokers, e := file.Entrance(name)
		brokers.Logger = a.logger(file.Log.Level, file.Log.Format)
		driver := tocsinkafka.Entrance{Brokers: brokers, Group: e.Group, DeadLetter: e.DeadLetter, RequireKey: e.RequireKey}
		all = append(all, outbox.Config{Name: name, Table: e.Topic, Driver: driver})
	}
	return all
}

// close ends the connections, after what is under way.
func (m makers) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		_ = m[name].Close(ctx) // what it could not send comes again
	}
}

// of returns the sink that a policy names.
func (m makers) of(p biztype.Policy) (sink.Maker, error) {
	maker, ok := m[p.Sink.Name]
	switch {
	case ok:
		return maker, nil
	case len(m) == 0:
		return nil, fmt.Errorf("biz type %s: the config has no sinks, and so none named %s", p.Name, p.Sink.Name)
	}
	return nil, fmt.Errorf("biz type %s: no sink is named %s: the config has %s", p.Name, p.Sink.Name, strings.Join(slices.Sorted(maps.Keys(m)), ", "))
}

// ping asks the broker of a policy for its topic.
func (m makers) ping(ctx context.Context, p biztype.Policy) error {
	maker, err := m.of(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sinkWithin)
	defer cancel()
	return maker.Ping(ctx, p)
}

// warnForbidden names callbacks to addresses that are not dialled.
func (a *app) warnForbidden(policies []biztype.Policy) {
	for _, p := range policies {
		for _, way := range biztype.Links(p) {
			if way.Webhook == nil {
				continue
			}
			if err := webhook.Forbidden(*way.Webhook); err != nil {
				fmt.Fprintf(a.err, "warning: biz type %s: no callback will reach %s: %s\n", p.Name, way.Webhook.URL, operator.OneLine(err))
			}
		}
	}
}

// checkSinks refuses policies whose tasks a sink of the config can never take. It connects to no broker: whether one answers, doctor says.
func (a *app) checkSinks(ctx context.Context, file config.File, policies []biztype.Policy) error {
	m, err := a.sinks(file)
	if err != nil {
		return err
	}
	defer m.close(ctx)
	var wrong []error
	for _, p := range policies {
		for _, way := range biztype.Links(p) {
			if way.Sink == nil {
				continue
			}
			maker, err := m.of(way)
			if err == nil {
				_, err = maker.Sink(way)
			}
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

func newSink(a *app) *cobra.Command {
	var topic, key string
	test := &cobra.Command{
		Use: "test NAME", Short: "Send one record through a sink of the config, and say where it lies", Args: exactArgs("NAME"),
		Long: `Sends one record through a sink of the config, as a due task would go: a CloudEvent of the type
tocsin.test. It says where the broker has stored it. No task is made, and MySQL is not asked.`,
		Example: "  tocsin sink test orders-kafka --topic orders.test",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.testSink(cmd.Context(), args[0], topic, key) },
	}
	test.Flags().StringVar(&topic, "topic", "", "topic to send it to (default: the first topic of the sink that is no pattern)")
	test.Flags().StringVar(&key, "key", "tocsin.test", "business key of the record")
	return group("sink", "Try the message brokers of the config", test)
}

// testedSink is the JSON of `sink test`.
type testedSink struct {
	Sink  string `json:"sink"`
	Kind  string `json:"kind"`
	Topic string `json:"topic"`
	ID    string `json:"id"`
	At    string `json:"at"`
	Took  string `json:"took"`
}

func (a *app) testSink(ctx context.Context, name, topic, key string) error {
	file, err := a.load()
	if err != nil {
		return err
	}
	if _, ok := file.Sinks[name]; !ok {
		return usage("no sink is named %q: the config has %s", name, strings.Join(slices.Sorted(maps.Keys(file.Sinks)), ", "))
	}
	if topic == "" {
		i := slices.IndexFunc(file.Sinks[name].Topics, func(t string) bool { return !strings.ContainsAny(t, `*?[\`) })
		if i < 0 {
			return usage("all topics of sink %s are patterns: name one with --topic", name)
		}
		topic = file.Sinks[name].Topics[i]
	}
	m, err := a.sinks(file)
	if err != nil {
		return err
	}
	defer m.close(ctx)
	p := tocsin.Policy{Name: "tocsin.test", Sink: &tocsin.Sink{Name: name, Topic: topic}}
	to, err := m[name].Sink(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sinkWithin)
	defer cancel()
	var outputs client.Outputs
	began := time.Now()
	id := tocsin.JobID(began.UnixMicro())
	task := tocsin.Info{JobID: id, BizKey: key, BizType: p.Name, Version: 1, Payload: `{"test":true}`, ActionTime: began, DueTime: began, Created: began}
	if err := to.Deliver(context.WithValue(ctx, client.OutputKey, &outputs), []tocsin.Info{task})[0]; err != nil {
		return err
	}
	done := testedSink{name, file.Sinks[name].Kind, topic, task.Key(), outputs.Of(uint64(id)), time.Since(began).Round(100 * time.Microsecond).String()}
	return a.print(done, func(w io.Writer) {
		fmt.Fprintf(w, "%s: stored record %s at %s in %s\n", done.Sink, done.ID, oneCell(done.At), done.Took)
	})
}
