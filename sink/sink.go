// Package sink says how the due tasks of a biz type go to a message broker: what a module for a broker implements, and what all of
// them have in common. A policy names a sink of the node's config, a topic and a key:
//
//	sink: {name: orders-kafka, topic: "orders.{biz_type}", key: biz_key}
//
// The modules are contrib/tocsinkafka, contrib/tocsinrabbitmq and contrib/tocsinnats. `tocsin serve` has them all; a program with
// a node sets node.Config.Sinks. docs/sinks.md is for users, and says how to write one's own.
package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
)

// Config says where a broker is, and what biz types may use of it. Addresses and Topics must be set.
type Config struct {
	Name      string       // by which policies refer to it, for messages
	Addresses []string     // host:port
	Username  string       // "": no authentication
	Password  string       // never part of an error
	Mechanism string       // of SASL, for brokers that have several; "": the module's default
	TLS       *tls.Config  // nil: plain text
	Topics    []string     // globs of path.Match: the topics that policies may name
	Exchange  string       // of RabbitMQ, to which all messages of the sink go; "": the default exchange, where a topic is the name of a queue
	Cluster   string       // of CloudEvents' source, /tocsin/CLUSTER
	Logger    *slog.Logger // nil: warnings and errors go to slog.Default()
}

// Errorf returns an error that begins with the name of the sink, as all of a module do.
func (c Config) Errorf(format string, args ...any) error {
	return fmt.Errorf("sink %s: %w", c.Name, fmt.Errorf(format, args...))
}

// Validate returns the first mistake. It connects to nothing.
func (c Config) Validate() error {
	switch {
	case len(c.Addresses) == 0:
		return fmt.Errorf("sink %s has no addresses: give host:port of a broker", c.Name)
	case len(c.Topics) == 0:
		return fmt.Errorf(`sink %s allows no topics: list them, "orders.*" for instance`, c.Name)
	case c.Username == "" && (c.Password != "" || c.Mechanism != ""):
		return fmt.Errorf("sink %s has a password or mechanism, and no username", c.Name)
	}
	for _, glob := range c.Topics {
		if _, err := path.Match(glob, ""); err != nil {
			return fmt.Errorf(`sink %s: topic %q is no pattern such as "orders.*"`, c.Name, glob)
		}
	}
	return nil
}

// Allows reports whether a topic is among those that policies may name.
func (c Config) Allows(topic string) bool {
	for _, glob := range c.Topics {
		if ok, _ := path.Match(glob, topic); ok {
			return true
		}
	}
	return false
}

// Maker makes the sinks of policies for one broker, which share its connections. Safe for concurrent use.
type Maker interface {
	// Ping asks the broker whether the policy's topic is there and may be written. One line says what is wrong, and what to do.
	// A topic that depends on headers is not asked for.
	Ping(ctx context.Context, p tocsin.Policy) error
	// Sink makes the sink of a policy, whose Sink is set. It returns one line if the broker can't take the policy's tasks. It connects to nothing.
	Sink(p tocsin.Policy) (Sink, error)
	// Close ends deliveries under way, and the connections. Sinks return Unavailable from then on.
	Close(ctx context.Context) error
}

// Sink delivers tasks to a topic. Safe for concurrent use.
type Sink interface {
	// Deliver sends the tasks and waits until the broker has stored them. It returns one error for each: nil, Unavailable, tocsin.Bury
	// for what the broker will never take, Unfit if that shows without asking it, or any other for a failed attempt. It returns before the deadline of ctx: see Within.
	// It must not keep the slice.
	Deliver(ctx context.Context, tasks []tocsin.Info) []error
}

// Unavailable returns the error of a task whose broker, or topic, can't be reached or used now. No attempt is counted; if no task of
// a delivery could be sent, the biz type's tasks wait in MySQL until a probe is taken. The task may have been stored by the broker all
// the same, when an answer was lost: it comes again with the same id.
func Unavailable(err error) error { return unavailable{client.OrUnknown(err)} }

// Unfit returns the error of a task that the broker could never take, found without asking it: the task is dead, and nothing is learnt
// of the broker.
func Unfit(err error) error { return tocsin.Bury(unfit{client.OrUnknown(err)}) }

// IsUnfit reports whether the error, or one that it wraps, was found without asking the target.
func IsUnfit(err error) bool {
	var own interface{ Unsent() bool }
	return errors.As(err, &own) && own.Unsent()
}

type unfit struct{ err error }

func (u unfit) Error() string { return u.err.Error() }
func (u unfit) Unwrap() error { return u.err }

// Unsent reports that the target was not asked.
func (u unfit) Unsent() bool { return true }

// IsUnavailable reports whether the error, or one that it wraps, says that nothing reached the target.
func IsUnavailable(err error) bool {
	var told interface{ NotReached() bool }
	return errors.As(err, &told) && told.NotReached()
}

type unavailable struct{ err error }

func (u unavailable) Error() string { return u.err.Error() }
func (u unavailable) Unwrap() error { return u.err }

// NotReached reports that no attempt was made.
func (u unavailable) NotReached() bool { return true }

// Away reports that the target is known to be away, so that the next delivery need not find out.
func (u unavailable) Away() bool { return true }

// FailureCause is the cause in metrics.
func (u unavailable) FailureCause() string { return "unreachable" }

// All returns one error for each of n tasks.
func All(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// Within returns a context that ends a little before ctx does, by a tenth of the time left: a sink that returns then has told
// that its broker did not answer, and that was no attempt.
func Within(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/10))
}
