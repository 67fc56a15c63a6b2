package tocsinkafka

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// fate is what becomes of a task whose record was not taken.
type fate int

const (
	waits          fate = iota // Unavailable
	waitsOrAttempt             // Unavailable, unless the topic comes from a header: then other tasks go on, and this one has failed
	attempt                    // a failed attempt
	dead                       // buried
)

// answers are those of brokers that have words of their own. {topic}, {user} and {mechanism} are filled in. Of others, those
// that can be repeated are waits, and the rest is attempt: it may be due to the record, and must not stop the biz type.
var answers = []struct {
	err     *kerr.Error
	becomes fate
	says    string
}{
	{kerr.MessageTooLarge, dead, "topic {topic} takes no record of this size: raise its max.message.bytes, or send less"},
	{kerr.RecordListTooLarge, dead, "topic {topic} takes no record of this size: raise its segment.bytes, or send less"},
	{kerr.InvalidRecord, dead, "topic {topic} refuses the record: one with cleanup.policy=compact wants a key"},
	{kerr.CorruptMessage, attempt, "topic {topic} refuses the record as corrupt: one with cleanup.policy=compact wants a key"},
	{kerr.UnknownTopicOrPartition, waitsOrAttempt, "topic {topic} is missing: create it, as Tocsin never does"},
	{kerr.UnknownTopicID, waitsOrAttempt, "topic {topic} is missing, or was created anew: create it, as Tocsin never does"},
	{kerr.TopicAuthorizationFailed, waitsOrAttempt, "{user} may not write to topic {topic}: grant WRITE and DESCRIBE"},
	{kerr.ClusterAuthorizationFailed, waits, "{user} may not write idempotently: grant IDEMPOTENT_WRITE on the cluster"},
	{kerr.SaslAuthenticationFailed, waits, "the broker refuses {user}: check username and password"},
	{kerr.UnsupportedSaslMechanism, waits, "the broker does not have the mechanism {mechanism}: choose another"},
	{kerr.IllegalSaslState, waits, "the broker does not want {user} to sign in: check username and mechanism"},
	{kerr.InvalidTopicException, waitsOrAttempt, "topic {topic} can't be written to: choose another"},
	{kerr.InvalidTimestamp, waits, "topic {topic} refuses the time of the record: compare the clock of this machine with the broker's"},
	{kerr.NotEnoughReplicas, waitsOrAttempt, "topic {topic} has fewer replicas in sync than its min.insync.replicas"},
	{kerr.NotEnoughReplicasAfterAppend, waitsOrAttempt, "topic {topic} has fewer replicas in sync than its min.insync.replicas"},
}

// explain returns what becomes of a task, and the error of a client as a line that says what to do. An answer that is late is told
// by the last dial, if that failed.
func (m *Maker) explain(topic string, err error) (fate, error) {
	if last := m.dial.failed.Load(); last != nil && isLate(err) {
		_, told := m.tell(topic, *last)
		return waits, told
	}
	return m.tell(topic, err)
}

func (m *Maker) tell(topic string, err error) (fate, error) {
	for _, a := range answers {
		if errors.Is(err, a.err) {
			user := "a client without a user"
			if m.cfg.Username != "" {
				user = "user " + m.cfg.Username
			}
			says := strings.NewReplacer("{topic}", topic, "{user}", user, "{mechanism}", m.cfg.Mechanism).Replace(a.says)
			return a.becomes, m.cfg.Errorf("%s", says)
		}
	}
	where := strings.Join(m.cfg.Addresses, ", ")
	var refused noID
	switch {
	case errors.As(err, &refused):
		return waits, m.cfg.Errorf("%s gives its producer no id: %s", where, oneLine(err))
	case isFinal(err):
		return attempt, m.cfg.Errorf("topic %s: %s", topic, oneLine(err))
	case isLate(err) && loop.WayOf(err) == loop.WaySilent:
		return waits, m.cfg.Errorf("no answer from %s in time", where)
	case errors.Is(err, kgo.ErrClientClosed):
		return waits, m.cfg.Errorf("its connections are closed")
	}
	return waits, m.cfg.Errorf("no answer from %s: %s", where, unanswered("sink "+m.cfg.Name, err))
}

// unanswered says why the brokers of a part of the config do not answer, and what to do unless they have said something.
func unanswered(of string, err error) string {
	to := loop.Broker("Kafka", of)
	switch {
	case errors.As(err, new(*kerr.Error)):
		return oneLine(err)
	case errors.Is(err, io.EOF): // the client guesses at the reason
		return "the connection is closed: " + to.Do(loop.WayClosed)
	}
	return oneLine(err) + "; " + to.Advice(err)
}

// noID is the answer by which a producer was refused its id: none of its records was sent.
type noID struct{ error }

func (n noID) Unwrap() error { return n.error }

// isFinal reports whether the error is an answer that can't be repeated.
func isFinal(err error) bool {
	var answer *kerr.Error
	return errors.As(err, &answer) && !answer.Retriable
}

func isLate(err error) bool {
	return isAny(err, context.DeadlineExceeded, context.Canceled, kgo.ErrRecordTimeout, kgo.ErrRecordRetries)
}

// isAny reports whether the error is one of some.
func isAny(err error, some ...error) bool {
	for _, one := range some {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// oneLine returns the text of an error without line breaks.
func oneLine(err error) string {
	return cmp.Or(strings.Join(strings.Fields(err.Error()), " "), "unknown error")
}
