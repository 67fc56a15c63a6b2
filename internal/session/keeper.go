package session

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// TrustFor is how long a process trusts its session after the beginning of a successful beat.
const TrustFor = 3 * time.Second

const (
	every       = 500 * time.Millisecond // between two beats, and two reads
	readTimeout = time.Second            // of one round of reads
)

// Config says whose sessions to keep. Callbacks may be nil. None may call back into the Keeper's Run; all other methods may be called.
type Config struct {
	Store  *store.Store
	Group  string
	Node   string // id of the process, as others show it; at most 64 characters
	Seat   bool   // whether it looks at tables; a sweep does not
	About  string // what the process says of itself, JSON, at most 8192 characters; Tell changes it
	Schema int    // schema version that its program is for

	// Ended is called when this process's session in a database was ended by others: once for each, before a new one is opened there. Calls for
	// different databases may overlap.
	Ended func(database int, id string)
	// Changed is called when sessions came, went, changed what they say, fell silent or were heard again in databases; one call at a time.
	Changed func(databases []int)
	// Gone is called once for sessions that this process saw vanish, or ended itself. A claim under one may still commit: look for them now, in 2 s and in
	// 10 s. One call at a time.
	Gone func(database int, ids []string)
	// Moved is called when beats show another server than before: at another address, or at the same. What is held of these databases may be
	// outdated. One call at a time.
	Moved func(databases []int)

	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Member is a session as this process sees it.
type Member struct {
	store.Session
	Self     bool          // it is this process's current one
	Silent   bool          // no beat for SilentAfter, while this process beat: to be passed over
	StoodFor time.Duration // since this process first read its beat, by its own clock
}

// Keeper keeps the sessions of one process. Its methods are safe for concurrent use.
type Keeper struct {
	cfg         Config
	incarnation string
	limit       loop.LogLimit
	metrics     *metrics
	places      []*place // by database
	nudges      []chan struct{}
	notices     chan struct{} // 1 slot: there is something to tell

	withhold atomic.Bool // by tests: nothing is beaten

	mu       sync.Mutex // guards what follows, and the places
	about    string
	draining bool
	pending  notices
	news     chan struct{} // closed after each round of beats, and when a session may have become trusted or has told something
}

// place is this process in one database. Its fields but trust are guarded by Keeper.mu.
type place struct {
	database, server int

	trust atomic.Pointer[trust] // nil: nothing is trusted

	id      string // of the session; "": there is none
	ended   string // of one that others ended, until Ended was told
	aboutNo uint64 // of what the session says
	unable  bool   // see SetUnable
	untold  bool   // the session does not say yet what it should

	beatApart, readApart           bool // until that succeeds
	busy, reading, telling, ending bool // a goroutine opens or beats apart, reads apart, tells, ends others

	term, readTerm int64  // of the server at the last beat and the last read
	behind         string // what tells the server of the last beat from others; "": there was none
	jumped         time.Time
	watch          watch
}

// trust is the last successful beat of a session.
type trust struct {
	id    string
	began time.Time
	term  int64
}

// New makes a Keeper. It does nothing before Run.
func New(cfg Config) (*Keeper, error) {
	if cfg.Store == nil || cfg.Group == "" || cfg.Node == "" {
		return nil, errors.New("session: Store, Group and Node are needed")
	}
	cfg.Logger = loop.Logger(cfg.Logger)
	k := &Keeper{cfg: cfg, incarnation: newID(), about: cfg.About, notices: make(chan struct{}, 1), news: make(chan struct{})}
	k.places = make([]*place, cfg.Store.Layout().Databases)
	for server := range cfg.Store.Servers() {
		k.nudges = append(k.nudges, make(chan struct{}, 1))
		for _, database := range cfg.Store.DatabasesOf(server) {
			k.places[database] = &place{database: database, server: server}
		}
	}
	k.metrics = newMetrics(cfg.Registerer, k.trusted)
	return k, nil
}

// newID returns 12 random characters of base32.
func newID() string { return strings.ToLower(rand.Text()[:12]) }

// Incarnation returns what all sessions of this process have in common.
func (k *Keeper) Incarnation() string { return k.incarnation }

// Session returns the session to claim under in a database now; ok is false if none is trusted.
func (k *Keeper) Session(database int) (id string, ok bool) {
	t := k.places[database].trust.Load()
	if t == nil || !k.trusts(k.places[database], t) {
		return "", false
	}
	return t.id, true
}

// Trusts reports whether a row that was claimed under a session may start now. It takes no lock.
func (k *Keeper) Trusts(database int, id string) bool {
	t := k.places[database].trust.Load()
	return t != nil && t.id == id && k.trusts(k.places[database], t)
}

func (k *Keeper) trusts(p *place, t *trust) bool {
	now := time.Now()
	return now.Sub(t.began) < TrustFor && now.Round(0).Sub(t.began.Round(0)) < TrustFor &&
		!t.began.Before(k.cfg.Store.Jumped()) && t.term == k.cfg.Store.Term(p.server)
}

// trusted counts the databases in which a session is trusted.
func (k *Keeper) trusted() (n int) {
	for database := range k.places {
		if _, ok := k.Session(database); ok {
			n++
		}
	}
	return n
}

// Sessions returns the sessions of a database as last read, and when that was; zero: never.
func (k *Keeper) Sessions(database int) ([]Member, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.places[database]
	return p.watch.members(p.id, time.Now()), p.watch.readAt
}

// Tell changes what the process says of itself.
func (k *Keeper) Tell(about string) { k.change(func() { k.about = about }, k.places...) }

// Drain says that the process leaves, and returns when its sessions have that, or ctx ends. Others pass it over once they have read it,
// which takes them at most a second.
func (k *Keeper) Drain(ctx context.Context) {
	k.change(func() { k.draining = true }, k.places...)
	_ = k.await(ctx, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return !slices.ContainsFunc(k.places, func(p *place) bool { return p.id != "" && (p.untold || p.telling) })
	})
}

// SetUnable says whether the process, though it beats, can't work in a database: others pass it over there.
func (k *Keeper) SetUnable(database int, unable bool) {
	p := k.places[database]
	k.mu.Lock()
	same := p.unable == unable
	k.mu.Unlock()
	if !same {
		k.change(func() { p.unable = unable }, p)
	}
}

// change has places write what their sessions say.
func (k *Keeper) change(do func(), places ...*place) {
	k.mu.Lock()
	do()
	for _, p := range places {
		p.untold = true
	}
	k.mu.Unlock()
	for _, p := range places {
		signal(k.nudges[p.server])
	}
}

// Opened waits until a session is trusted in one usable database, or with all in each of them, and returns ctx's error if that comes first.
func (k *Keeper) Opened(ctx context.Context, all bool) error {
	return k.await(ctx, func() bool {
		has, lacks := k.open()
		return has && !(all && lacks)
	})
}

// await waits until something is so that beats or their failures may change.
func (k *Keeper) await(ctx context.Context, so func() bool) error {
	for {
		k.mu.Lock()
		news := k.news
		k.mu.Unlock()
		if so() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

// open reports whether some usable database has a trusted session, and whether some lacks one.
func (k *Keeper) open() (has, lacks bool) {
	for server := range k.nudges {
		for _, database := range k.cfg.Store.Usable(server) {
			_, ok := k.Session(database)
			has, lacks = has || ok, lacks || !ok
		}
	}
	return has, lacks
}

// announce wakes those who wait in await. Called under mu.
func (k *Keeper) announce() {
	close(k.news)
	k.news = make(chan struct{})
}

// signal fills a channel of one slot.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run keeps the sessions until ctx ends. Then it removes them, where that can be done soon, and returns when everything that it started has
// ended.
func (k *Keeper) Run(ctx context.Context) {
	var teller, all sync.WaitGroup
	done := make(chan struct{})
	teller.Go(func() { k.tellOthers(done) })
	for server := range k.nudges {
		all.Go(func() { k.repeat(ctx, k.nudges[server], func(apart *sync.WaitGroup) { k.beat(ctx, server, apart) }) })
		all.Go(func() { k.repeat(ctx, nil, func(apart *sync.WaitGroup) { k.read(ctx, server, apart) }) })
	}
	all.Wait()
	k.leave(ctx)
	close(done)
	teller.Wait()
}

// repeat runs a round at intervals, and sooner after a nudge, until ctx ends and what the rounds have left apart has ended.
func (k *Keeper) repeat(ctx context.Context, nudge <-chan struct{}, round func(apart *sync.WaitGroup)) {
	var apart sync.WaitGroup
	defer apart.Wait()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		round(&apart)
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-nudge:
		}
	}
}

// leave removes the sessions. One that stays is ended by others.
func (k *Keeper) leave(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range k.places {
		k.mu.Lock()
		id := p.id
		p.id = ""
		p.trust.Store(nil)
		k.mu.Unlock()
		if id == "" {
			continue
		}
		all.Go(func() {
			if err := k.cfg.Store.CloseSession(context.WithoutCancel(ctx), p.database, id); err != nil {
				k.cfg.Logger.Warn("a session can't be removed: others end it when it has been silent", "error", err, "database", k.name(p))
			}
		})
	}
	all.Wait()
}

func (k *Keeper) name(p *place) string { return k.cfg.Store.Layout().Database(p.database) }
