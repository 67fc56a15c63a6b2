package tocsinkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/sink"
)

// Times of an entrance.
const (
	sessionTimeout = 10 * time.Second // without a heartbeat of this process, before its partitions go to others
	heartbeatEvery = 2 * time.Second
	handOver       = 30 * time.Second // to end what is under way when a partition goes to another process
	commitEvery    = time.Second
	answerWithin   = 10 * time.Second // one request
	leaveWithin    = 3 * time.Second
	typePatience   = time.Minute // before a command of an unknown biz type is refused
)

// mostOpen is how many commands of a partition may be read and not done. Beyond it no new ones are read, until some are done.
const mostOpen = 100_000

// Entrance is outbox.Config.Driver for a topic of commands, whose name is the Table: each partition is an outbox (docs/operations.md#entrances).
type Entrance struct {
	Brokers    sink.Config // its Addresses, Username, Password, Mechanism, TLS and Logger
	Group      string      // of consumers: all processes that relay the topic for one cluster have the same
	DeadLetter string      // topic of the commands that are refused; "": that of the commands with ".dlt"
	RequireKey bool        // a command is refused unless the record's key is its biz_id or biz_key

	patience, session time.Duration // 0: typePatience, sessionTimeout
	most              int           // 0: mostOpen
}

// Check returns the first mistake in a config. It connects to nothing.
func (e Entrance) Check(cfg outbox.Config) error {
	_, err := e.options(cfg)
	return err
}

// options are those of the client.
func (e Entrance) options(cfg outbox.Config) ([]kgo.Opt, error) {
	what := "entrance " + cfg.Name
	for _, pair := range [][2]string{{"topic", cfg.Table}, {"dead_letter", e.deadLetter(cfg.Table)}} {
		if err := fits(pair[1]); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", what, pair[0], err)
		}
	}
	switch {
	case e.deadLetter(cfg.Table) == cfg.Table:
		return nil, fmt.Errorf("%s: dead_letter is the topic of the commands: name another", what)
	case e.Group == "":
		return nil, fmt.Errorf("%s has no group", what)
	case len(e.Brokers.Addresses) == 0:
		return nil, fmt.Errorf("%s has no addresses: give host:port of a broker", what)
	case e.Brokers.Username == "" && (e.Brokers.Password != "" || e.Brokers.Mechanism != ""):
		return nil, fmt.Errorf("%s has a password or mechanism, and no username", what)
	}
	opts, err := connecting(what, e.Brokers)
	return append(opts,
		kgo.ConsumerGroup(e.Group), kgo.ConsumeTopics(cfg.Table), kgo.DisableAutoCommit(), kgo.SessionTimeout(cmp.Or(e.session, sessionTimeout)),
		kgo.HeartbeatInterval(heartbeatEvery), kgo.RebalanceTimeout(handOver),
	), err
}

// Ping asks the brokers for the topics of an entrance, and whether the user may read, write and commit. It joins no group. One line
// says what is wrong, and what to do.
func (e Entrance) Ping(ctx context.Context, cfg outbox.Config) error {
	if err := e.Check(cfg); err != nil {
		return err
	}
	opts, _ := connecting("", e.Brokers) // Check has seen its error
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	e.DeadLetter = e.deadLetter(cfg.Table)
	of, dead := &topic{Entrance: e, name: cfg.Name, topic: cfg.Table}, &topic{Entrance: e, name: cfg.Name, topic: e.DeadLetter}
	if err := look(ctx, client, kmsg.ACLOperationRead, of.topic); err != nil {
		return of.wrap("read", err)
	}
	if err := look(ctx, client, kmsg.ACLOperationWrite, dead.topic); err != nil {
		return dead.wrap("write to", err)
	}
	req, group := kmsg.NewPtrOffsetFetchRequest(), kmsg.NewOffsetFetchRequestGroup()
	group.Group = e.Group
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, client)
	if err == nil && len(resp.Groups) == 1 {
		err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
	}
	if errors.Is(err, kerr.GroupIDNotFound) { // nobody has joined it yet
		err = nil
	}
	return of.wrap("ask for the offsets of group "+e.Group+" in", err)
}

// Identities asks the brokers for those of the topic's partitions, by number. It joins no group.
func (e Entrance) Identities(ctx context.Context, cfg outbox.Config) (all []string, err error) {
	if err := e.Check(cfg); err != nil {
		return nil, err
	}
	opts, _ := connecting("", e.Brokers) // Check has seen its error
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	f, err := (&topic{Entrance: e, name: cfg.Name, topic: cfg.Table}).find(ctx, client)
	for n := range f.partitions {
		all = append(all, identity(f.id, n))
	}
	return all, err
}

func (e Entrance) deadLetter(topic string) string { return cmp.Or(e.DeadLetter, topic+".dlt") }

// Open makes what is needed to reach the topic. It connects to nothing.
func (e Entrance) Open(cfg outbox.Config) (outbox.Server, error) {
	opts, err := e.options(cfg)
	if err != nil {
		return nil, err
	}
	e.DeadLetter, e.patience = e.deadLetter(cfg.Table), cmp.Or(e.patience, typePatience)
	e.most = cmp.Or(e.most, mostOpen)
	t := &topic{Entrance: e, name: cfg.Name, topic: cfg.Table, opts: opts, log: loop.Logger(e.Brokers.Logger), commits: make(chan struct{}, 1)}
	t.records.deadLetter = e.DeadLetter
	return t, nil
}

// records are those of a topic, as operators find them: with tools of Kafka.
type records struct{ deadLetter string }

var errRecords = errors.New("records of Kafka are not rows: read them with tools of Kafka; refused ones are in topic")

// List refuses.
func (r records) List(context.Context, uint64, int, bool) ([]outbox.Row, error) {
	return nil, fmt.Errorf("%w %s", errRecords, r.deadLetter)
}

// Retry refuses.
func (r records) Retry(context.Context, []uint64, bool) (int, error) {
	return 0, fmt.Errorf("%w %s", errRecords, r.deadLetter)
}

// Drop refuses.
func (r records) Drop(context.Context, []uint64, bool) (int, error) {
	return 0, fmt.Errorf("%w %s", errRecords, r.deadLetter)
}

// topic is the outbox.Parted of an entrance. Its client is a member of the group, and reads what the partitions are asked for.
type topic struct {
	Entrance
	records
	name  string // of the entrance
	topic string
	opts  []kgo.Opt
	log   *slog.Logger
	limit loop.LogLimit

	commits chan struct{} // has room for one: of a commit under way
	keeping sync.WaitGroup

	mu      sync.Mutex         // guards the following
	client  *kgo.Client        // nil: the group is not joined
	writer  *kgo.Client        // to the dead-letter topic; nil: nothing was written, or writing has failed
	id      [16]byte           // of the topic, as the client knows it; 0: nobody has looked
	stop    context.CancelFunc // ends the commits
	parts   []*partition       // by number
	leaving bool               // a former client has not ended
	closed  bool
}

// String names the topic in errors.
func (t *topic) String() string { return "topic " + t.topic }

// Session refuses: partitions have sessions.
func (t *topic) Session(context.Context) (*outbox.Session, error) {
	return nil, fmt.Errorf("%s is no outbox, its partitions are", t)
}

// found is what the brokers say of a topic.
type found struct {
	id         [16]byte
	partitions int
}

// look asks the brokers for the topic.
func (t *topic) look(ctx context.Context) (f found, err error) {
	client, err := t.open()
	if err != nil {
		return f, err
	}
	if f, err = t.find(ctx, client); err == nil {
		t.knows(client, f.id)
	}
	return f, err
}

func (t *topic) find(ctx context.Context, client *kgo.Client) (f found, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	req, asked := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
	asked.Topic = kmsg.StringPtr(t.topic)
	req.Topics = append(req.Topics, asked)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return f, t.wrap("look for", err)
	}
	for _, topic := range resp.Topics {
		f = found{topic.TopicID, len(topic.Partitions)}
		err = kerr.ErrorForCode(topic.ErrorCode)
	}
	if err == nil && f.id == [16]byte{} {
		err = errors.New("its brokers know no ids of topics: Kafka 2.8 is the first version that does")
	}
	return f, t.wrap("look for", err)
}

// wrap says what was tried, and what to do about it.
func (t *topic) wrap(tried string, err error) error {
	switch {
	case err == nil, errors.Is(err, outbox.ErrNotLeading):
		return err
	case isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID):
		return fmt.Errorf("%s %s: it is missing, or was created anew: Tocsin creates no topic", tried, t)
	case isAny(err, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed):
		return fmt.Errorf("%s %s: the user may not: grant READ on the topic and on group %s, and WRITE on topic %s", tried, t, t.Group, t.DeadLetter)
	}
	return fmt.Errorf("%s %s on %s: %s", tried, t, strings.Join(t.Brokers.Addresses, ", "), unanswered("entrance "+t.name, err))
}

// Parts returns the partitions.
func (t *topic) Parts(ctx context.Context) ([]*outbox.Outbox, error) {
	f, err := t.look(ctx)
	if err != nil {
		return nil, err
	}
	var all []*outbox.Outbox
	for n := range f.partitions {
		all = append(all, &outbox.Outbox{Name: fmt.Sprintf("%s/%d", t.name, n), Server: t.part(int32(n))})
	}
	return all, nil
}

// part returns a partition.
func (t *topic) part(number int32) *partition {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := int32(len(t.parts)); n <= number; n++ {
		t.parts = append(t.parts, &partition{records: t.records, of: t, number: n, changed: make(chan struct{})})
	}
	return t.parts[number]
}

// all returns what the group has given to this process.
func (t *topic) all() (all []*assignment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.parts {
		if a := p.now(); a != nil {
			all = append(all, a)
		}
	}
	return all
}
