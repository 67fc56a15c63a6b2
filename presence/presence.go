package presence

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/store"
)

// Defaults of a Config.
const (
	DefaultEvery = 5 * time.Second
	misses       = 3 // intervals without a sign, after which a node counts as gone
)

// Within is how young the row of a node that is there is, by default.
const Within = misses * DefaultEvery

const (
	roundTimeout = 3 * time.Second // of one server's statements
	maxAbout     = 8192            // characters of the column about
)

// Tables is the part of the store that a Presence needs.
type Tables interface {
	Attend(ctx context.Context, server int, group, node, about string) error
	Attending(ctx context.Context, server int, within time.Duration) ([]store.Attendee, error)
	Depart(ctx context.Context, server int, group, node string) error
	Servers() []string
}

// About is what a node says of itself in its rows, as JSON.
type About struct {
	Weight  int               `json:"weight"`
	Version string            `json:"version,omitempty"`
	Listen  string            `json:"listen,omitempty"` // address of its status page
	Started time.Time         `json:"started"`
	Types   []string          `json:"types"` // names of the biz types it delivers; null: there are too many to name
	Lacks   map[string]string `json:"lacks"` // biz types of its group that it can't deliver -> why

	Versions map[string]int `json:"versions,omitempty"`       // of the payloads of its types
	Newer    map[string]int `json:"newer_payloads,omitempty"` // biz type -> newest payload version of the tasks that the node cannot read and leaves alone
}

// Told is what a node says about its biz types.
type Told struct {
	Types []string          // the ones it delivers
	Lacks map[string]string // types of its group that it does not deliver -> why

	Versions map[string]int // of the payloads of its types; without those that have none
	Newer    map[string]int // biz type -> newest payload version of the tasks that the node cannot read and leaves alone
}

// Config says whose presence to keep.
type Config struct {
	Tables     Tables
	Layout     tocsin.Layout
	Group      string
	Node       string // name of this node, to which a random end is added
	About      About  // Types and Lacks are set by Tell
	Every      time.Duration
	Changed    func(first []int)     // called when the tables that this node looks at first have changed; one call at a time
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Presence is a node's place in its group. Its methods are safe for concurrent use.
type Presence struct {
	cfg     Config
	id      string
	limit   loglimit.Limit
	metrics *metrics
	nudges  []chan struct{} // by server, 1 slot each: write the row now

	telling sync.Mutex // held while Changed is called

	mu    sync.Mutex
	about About
	lists map[int][]member // by database; missing: never read
	peers map[int][]string // ids, by server
	types map[string]bool  // that other nodes deliver

	newest map[int]map[string]int // versions of payloads that other nodes deliver, by server
	first  []int
}

// New makes a Presence. Nothing is written before Run.
func New(cfg Config) (*Presence, error) {
	if cfg.Tables == nil || cfg.Changed == nil || cfg.Group == "" || cfg.Node == "" {
		return nil, errors.New("presence: Tables, Changed, Group and Node are needed")
	}
	cfg.Logger = loglimit.Or(cfg.Logger)
	if cfg.Every <= 0 {
		cfg.Every = DefaultEvery
	}
	p := &Presence{cfg: cfg, id: name.NewID(cfg.Node), about: cfg.About, lists: map[int][]member{}, peers: map[int][]string{}, newest: map[int]map[string]int{}}
	p.metrics = newMetrics(cfg.Registerer)
	for range cfg.Tables.Servers() {
		p.nudges = append(p.nudges, make(chan struct{}, 1))
	}
	return p, nil
}

// ID returns the node's id, at most 64 bytes.
func (p *Presence) ID() string { return p.id }

// Run writes the node's rows and reads the others' until ctx ends. Then it removes the node's rows, where that can be done
// soon, and returns nil.
func (p *Presence) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for server := range p.nudges {
		all.Go(func() { p.serve(ctx, server) })
	}
	all.Wait()
	return nil
}

// serve keeps the rows on one server. Its first rounds follow each other sooner, as nodes are often started together.
func (p *Presence) serve(ctx context.Context, server int) {
	for wait := p.cfg.Every / 10; ; wait = min(wait+p.cfg.Every/10, p.cfg.Every) {
		p.round(ctx, server)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			p.depart(ctx, server)
			return
		case <-timer.C:
		case <-p.nudges[server]:
			timer.Stop()
		}
	}
}

// round writes the node's rows on a server, and reads those of all nodes.
func (p *Presence) round(ctx context.Context, server int) {
	ctx, cancel := context.WithTimeout(ctx, min(roundTimeout, p.cfg.Every))
	defer cancel()
	failed := p.cfg.Tables.Attend(ctx, server, p.cfg.Group, p.id, p.text())
	found, err := p.cfg.Tables.Attending(ctx, server, misses*p.cfg.Every)
	p.note(server, found)
	if err = errors.Join(failed, err); err != nil && ctx.Err() == nil {
		where := p.cfg.Tables.Servers()[server]
		p.metrics.failures.WithLabelValues(where).Inc()
		p.limit.Of(p.cfg.Logger, where).Warn("the nodes of the group can't be written and read: going on with who was there last",
			"error", err, "server", where)
	}
}

// depart removes the node's rows, so that others have its tables at once.
func (p *Presence) depart(ctx context.Context, server int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), roundTimeout)
	defer cancel()
	if err := p.cfg.Tables.Depart(ctx, server, p.cfg.Group, p.id); err != nil {
		p.cfg.Logger.Warn("the node's rows can't be removed: others look at its tables first when they are old",
			"error", err, "server", p.cfg.Tables.Servers()[server])
	}
}

// note takes in the nodes of a server's databases that could be read.
func (p *Presence) note(server int, found []store.Attendee) {
	p.telling.Lock()
	defer p.telling.Unlock()
	p.mu.Lock()
	read := map[int][]member{}
	var ids []string
	types, newest := map[string]bool{}, map[string]int{}
	for _, a := range found {
		if a.Group != p.cfg.Group {
			continue
		}
		about := Read(a.About)
		read[a.Database] = append(read[a.Database], member{a.Node, about.Weight, len(about.Lacks) > 0})
		if !slices.Contains(ids, a.Node) {
			ids = append(ids, a.Node)
		}
		for _, name := range about.Types {
			types[name] = types[name] || a.Node != p.id
			if a.Node != p.id {
				newest[name] = max(newest[name], about.Versions[name])
			}
		}
	}
	for database, members := range read {
		p.lists[database] = members
	}
	if len(ids) > 0 {
		p.peers[server], p.types, p.newest[server] = ids, types, newest
	}
	now := p.firsts()
	changed := !slices.Equal(now, p.first)
	p.first = now
	p.metrics.nodes.Set(float64(p.count()))
	p.metrics.first.Set(float64(len(now)))
	p.mu.Unlock()
	if changed {
		p.cfg.Changed(now)
	}
}

// firsts returns the tables that this node looks at first. Called under mu.
func (p *Presence) firsts() (all []int) {
	for database := range p.cfg.Layout.Databases {
		all = append(all, first(p.id, p.lists[database], tablesOf(p.cfg.Layout, database))...)
	}
	return all
}

// count returns how many nodes are there. Called under mu.
func (p *Presence) count() int {
	all := map[string]bool{p.id: true}
	for _, ids := range p.peers {
		for _, id := range ids {
			all[id] = true
		}
	}
	return len(all)
}

// Peers returns how many nodes of the group are there, this one included.
func (p *Presence) Peers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count()
}

// First returns how many tables this node looks at first.
func (p *Presence) First() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.first)
}

// Tell has the node's rows say which biz types it delivers, and which it lacks. The maps and slices must not change
// afterwards.
func (p *Presence) Tell(t Told) {
	p.mu.Lock()
	p.about.Types, p.about.Lacks, p.about.Versions, p.about.Newer = t.Types, t.Lacks, t.Versions, t.Newer
	p.mu.Unlock()
	for _, nudge := range p.nudges {
		select {
		case nudge <- struct{}{}:
		default:
		}
	}
}

// Elsewhere reports whether another node of the group delivers the biz type; known is false before any node was read.
func (p *Presence) Elsewhere(bizType string) (delivered, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.types[bizType], p.types != nil
}

// Newest returns the newest version of a biz type's payload that other nodes of the group deliver on each server; 0: none is
// known, or a server has none.
func (p *Presence) Newest(bizType string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	least := 0
	for server := range p.nudges {
		if n := p.newest[server][bizType]; server == 0 || n < least {
			least = n
		}
	}
	return least
}

// Delivered reads the biz types that nodes of the group deliver. It does not need Run. The error names what could not be
// read.
func (p *Presence) Delivered(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	types := map[string]bool{}
	var errs []error
	for server := range p.nudges {
		found, err := p.cfg.Tables.Attending(ctx, server, misses*p.cfg.Every)
		errs = append(errs, err)
		for _, a := range found {
			if a.Group != p.cfg.Group || a.Node == p.id {
				continue
			}
			for _, name := range Read(a.About).Types {
				types[name] = true
			}
		}
	}
	return types, errors.Join(errs...)
}

// text is the node's description of itself, without its types if they are too many for the column.
func (p *Presence) text() string {
	p.mu.Lock()
	about := p.about
	p.mu.Unlock()
	text, err := json.Marshal(about)
	if len(text) > maxAbout {
		about.Types, about.Versions, about.Newer = nil, nil, nil
		if len(about.Lacks) > 0 {
			about.Lacks = map[string]string{"": "too many to name"}
		}
		text, err = json.Marshal(about)
	}
	if err != nil {
		panic("presence: encode a node: " + err.Error()) // ours always have a JSON
	}
	return string(text)
}

// Read returns what a node says of itself; a node whose row can't be read has weight 1.
func Read(text string) About {
	about := About{Weight: 1}
	_ = json.Unmarshal([]byte(text), &about) // a newer program may say it in other ways
	return about
}
