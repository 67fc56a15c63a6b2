package operator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/upkeep"
)

// How often a Sampler asks, and for how long after the last call of Overview.
const (
	nodesEvery  = 5 * time.Second
	typesEvery  = time.Minute // the policies
	askedWithin = 30 * time.Second
)

// Sampler keeps an Overview current while somebody asks for it. A hundred callers cost a cluster what one costs:
//
//	Overview --> sampling --+-- each 5 s: the nodes (Watch)
//	                        +-- each 60 s: what is overdue, a walk over all tables (upkeep.Backlog)
//	                        +-- each 60 s: the policies
//	                        +-- in memory: what the nodes said for 5 minutes
//
// A sampling begins with a call of Overview, and ends with its connections 30 s after the last one.
//
// On failure: an Overview names the nodes and servers that could not be asked, and has the age of what is known. Make one with NewSampler, and
// close it. Safe for concurrent use.
type Sampler struct {
	view View
	rest time.Duration // askedWithin; tests have less

	life context.Context // until Close
	end  context.CancelFunc
	all  sync.WaitGroup // samplings

	mu    sync.Mutex
	asked time.Time // when Overview was called last
	now   *sampling // nil: nobody asks
}

// sampling is what is known while somebody asks. Sampler.mu guards the fields behind first.
type sampling struct {
	tables  *store.Store
	backlog *upkeep.Backlog
	first   chan struct{} // closed when the nodes were asked once

	nodes    Activity
	unlisted error            // why the nodes could not be listed
	policies []biztype.Policy // nil: not read yet
	unread   error            // why a policy could not be read

	past map[string][]Sample // of the biz types that the nodes deliver
}

// samplesKept of each biz type are 5 minutes.
const samplesKept = 60

// NewSampler makes a Sampler. It connects to nothing before the first call of Overview.
func NewSampler(v View) *Sampler {
	s := &Sampler{view: v, rest: askedWithin}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Close ends what goes on, and waits for it. Calls of Overview that wait fail.
func (s *Sampler) Close() {
	s.mu.Lock()
	s.end() // under mu: no sampling begins after it
	s.mu.Unlock()
	s.all.Wait()
}

// Overview returns what is known. The first call for a while waits until the nodes were asked; what is overdue follows in later ones.
func (s *Sampler) Overview(ctx context.Context) (Overview, error) {
	now, err := s.sampling()
	if err != nil {
		return Overview{}, err
	}
	select {
	case <-now.first:
	case <-ctx.Done():
		return Overview{}, ctx.Err()
	case <-s.life.Done():
		return Overview{}, s.life.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.overview(), nil
}

// sampling returns the present one, or begins one.
func (s *Sampler) sampling() (*sampling, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.life.Err(); err != nil {
		return nil, err
	}
	s.asked = time.Now()
	if s.now == nil {
		tables, err := store.Open(s.view.Tables)
		if err != nil {
			return nil, err
		}
		backlog := upkeep.NewBacklog(upkeep.BacklogConfig{ // an Overview names what can't be measured: no log does
			Store: tables, Leads: func() bool { return true }, Logger: slog.New(slog.DiscardHandler), OverdueAlone: true,
		})
		now := &sampling{tables: tables, backlog: backlog, first: make(chan struct{})}
		s.now = now
		s.all.Go(func() { s.sample(now) })
	}
	return s.now, nil
}

// sample goes on until nobody asks.
func (s *Sampler) sample(now *sampling) {
	ctx, end := context.WithCancel(s.life)
	var beside sync.WaitGroup
	beside.Go(func() { now.backlog.Run(ctx) })
	beside.Go(func() { s.readTypes(ctx, now) })
	s.askNodes(ctx, now)
	end()
	beside.Wait()
	_ = now.tables.Close() // nothing was written
}

// askNodes asks the nodes again and again.
func (s *Sampler) askNodes(ctx context.Context, now *sampling) {
	w := Watch{View: s.view, Interval: nodesEvery}
	for {
		began := time.Now()
		nodes := w.Look(ctx)
		if ctx.Err() != nil || !s.keep(now, nodes, w.Failed) || loop.Wait(ctx, nodesEvery-time.Since(began)) != nil {
			return
		}
	}
}

// keep notes what the nodes answered, and reports whether somebody asks. If nobody does, the next call of Overview begins anew.
func (s *Sampler) keep(now *sampling, nodes Activity, unlisted error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.nodes.At.IsZero() {
		close(now.first)
	}
	now.nodes, now.unlisted = nodes, unlisted
	now.note(nodes)
	if time.Since(s.asked) < s.rest {
		return true
	}
	s.now = nil
	return false
}

// note keeps what the nodes say of each biz type. Who has an Overview has the slices, too: they are only appended to.
func (now *sampling) note(nodes Activity) {
	if nodes.Seconds == 0 {
		return
	}
	past := map[string][]Sample{}
	for _, t := range nodes.Types {
		before := now.past[t.Name]
		before = before[max(0, len(before)-samplesKept+1):]
		past[t.Name] = append(before, Sample{Late99: t.Late99, Delivered: t.Delivered, Failed: t.Failed})
	}
	now.past = past
}

// readTypes reads the policies again and again, sooner while there are none.
func (s *Sampler) readTypes(ctx context.Context, now *sampling) {
	for ctx.Err() == nil {
		policies, err := Policies(ctx, s.view.Tables)
		wait := nodesEvery
		s.mu.Lock()
		if now.unread = err; policies != nil {
			now.policies, wait = policies, typesEvery
		}
		s.mu.Unlock()
		_ = loop.Wait(ctx, wait) // the loop ends with ctx
	}
}
