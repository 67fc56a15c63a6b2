package sink

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/webhook"
)

// Message is a task as a broker gets it.
type Message struct {
	ID          string // job_id.version: the same in every attempt
	Topic       string
	Key         []byte // decides the partition; nil: none
	ContentType string
	Attributes  []Pair // of CloudEvents 1.0, without the prefix that the broker's binding has; none in the form of callbacks
	Headers     []Pair // the task's own, by name
	Value       []byte // the payload, or the body of a callback
}

// Pair is a name with its text.
type Pair struct{ Name, Text string }

// Route makes the messages of a policy's tasks. Safe for concurrent use.
type Route struct {
	cfg  Config
	to   tocsin.Sink
	fits func(topic string) error
}

// placeholder is a part of a topic that is filled in.
var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// NewRoute checks the topic and the key of a policy, whose Sink is set. fits returns an error if the broker can't have a topic of that
// name, as far as its form shows. A topic that depends on headers is asked for with an x in their place, and again as it comes out.
func NewRoute(cfg Config, p tocsin.Policy, fits func(topic string) error) (*Route, error) {
	r := &Route{cfg, *p.WithDefaults().Sink, fits}
	r.to.Topic = strings.ReplaceAll(r.to.Topic, "{biz_type}", p.Name)
	if r.Fixed() && !cfg.Allows(r.to.Topic) {
		return nil, r.notAllowed(p.Name, r.to.Topic)
	}
	if err := fits(placeholder.ReplaceAllString(r.to.Topic, "x")); err != nil {
		return nil, fmt.Errorf("biz type %s: sink %s: %w", p.Name, cfg.Name, err)
	}
	return r, nil
}

// Fixed reports whether all tasks go to one topic, which is Topic.
func (r *Route) Fixed() bool { return !strings.Contains(r.to.Topic, "{") }

// Topic is the topic with the name of the biz type filled in.
func (r *Route) Topic() string { return r.to.Topic }

// Unserved returns the error of a task whose topic the broker does not serve now. All tasks of the policy wait for a topic that they
// share; one that the task's headers have made fails alone, else the others would wait for it.
func (r *Route) Unserved(err error) error {
	if r.Fixed() {
		return Unavailable(err)
	}
	return err
}

func (r *Route) notAllowed(bizType, topic string) error {
	return fmt.Errorf("biz type %s: sink %s does not allow topic %s: name another, or add it to the sink's topics in the config", bizType, r.cfg.Name, topic)
}

// Message makes the message of a task. Its errors are Unfit: a task without a header that topic or key need can never be sent.
func (r *Route) Message(task tocsin.Info) (Message, error) {
	headers, err := task.Headers.All()
	if err != nil {
		return Message{}, Unfit(err)
	}
	m := Message{ID: task.Key(), Value: []byte(task.Payload)}
	if m.Topic, err = r.topicOf(task, headers); err != nil {
		return Message{}, Unfit(err)
	}
	if m.Key, err = r.keyOf(task, headers); err != nil {
		return Message{}, Unfit(err)
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		m.Headers = append(m.Headers, Pair{name, headers[name]})
	}
	if r.to.Format == tocsin.FormatWebhook {
		m.ContentType = "application/json"
		m.Value = webhook.Body(task, time.Now())
		return m, nil
	}
	m.ContentType = "text/plain; charset=utf-8"
	if json.Valid(m.Value) {
		m.ContentType = "application/json"
	}
	m.Attributes = r.attributes(task, m)
	return m, nil
}

// topicOf fills in the headers.
func (r *Route) topicOf(task tocsin.Info, headers map[string]string) (string, error) {
	if r.Fixed() {
		return r.to.Topic, nil
	}
	missing := ""
	topic := placeholder.ReplaceAllStringFunc(r.to.Topic, func(found string) string {
		name := strings.TrimPrefix(strings.Trim(found, "{}"), "header.")
		if headers[name] == "" {
			missing = name
		}
		return headers[name]
	})
	switch {
	case missing != "":
		return "", fmt.Errorf("topic %s of sink %s: the task has no header %q", r.to.Topic, r.cfg.Name, missing)
	case !r.cfg.Allows(topic):
		return "", r.notAllowed(task.BizType, strconv.Quote(topic))
	}
	if err := r.fits(topic); err != nil {
		return "", r.cfg.Errorf("%w", err)
	}
	return topic, nil
}

// keyOf returns the key of a task's message.
func (r *Route) keyOf(task tocsin.Info, headers map[string]string) ([]byte, error) {
	name, ofHeader := strings.CutPrefix(r.to.Key, "header.")
	switch {
	case r.to.Key == "none":
		return nil, nil
	case r.to.Key == "job_id":
		return []byte(task.JobID.String()), nil
	case !ofHeader:
		return []byte(cmp.Or(task.BizKey, strconv.FormatUint(task.BizID, 10))), nil
	case headers[name] == "":
		return nil, fmt.Errorf("key %s of sink %s: the task has no header %q", r.to.Key, r.cfg.Name, name)
	}
	return []byte(headers[name]), nil
}

// attributes are those of CloudEvents 1.0. Names of extensions have only a-z and 0-9.
func (r *Route) attributes(task tocsin.Info, m Message) []Pair {
	all := []Pair{
		{"specversion", "1.0"}, {"id", m.ID}, {"source", "/tocsin/" + r.cfg.Cluster}, {"type", task.BizType},
		{"subject", cmp.Or(task.BizKey, strconv.FormatUint(task.BizID, 10))}, {"time", instant(task.DueTime)},
		{"tocsinjobid", task.JobID.String()}, {"tocsinattempt", strconv.Itoa(task.Attempts + 1)},
	}
	if m.Key != nil {
		all = append(all, Pair{"partitionkey", string(m.Key)})
	}
	if task.PayloadVersion > 0 {
		all = append(all, Pair{"tocsinpayloadversion", strconv.Itoa(task.PayloadVersion)})
	}
	if task.Schedule != "" {
		all = append(all, Pair{"tocsinschedule", task.Schedule})
	}
	if !task.FireTime.IsZero() {
		all = append(all, Pair{"tocsinfiretime", instant(task.FireTime)})
	}
	return all
}

// instant writes a time in UTC with milliseconds, which is all that a task's times have.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
