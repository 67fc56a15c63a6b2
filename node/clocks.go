package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/store"
)

const (
	measureEvery = 2 * time.Second // between two looks at a server's clock
	offsetLimit  = time.Second     // a clock that is further from ours than this is worth a warning
)

// server is what the clocks ask of the store.
type server interface {
	Measure(ctx context.Context, server int) (store.Offset, error)
	Check(ctx context.Context, server int) error
	Servers() []string
}

// clocks follows the clock of every server. Due means due by the server's clock,
// however far from ours, so an offset delays nothing; it is exported, and logged
// beyond a second, since people compare times. It also sees servers go and come
// back, and refuses one that came back as another.
type clocks struct {
	servers server
	log     zerolog.Logger
	offset  *prometheus.GaugeVec
	up      *prometheus.GaugeVec
}

func newClocks(s server, log zerolog.Logger, r prometheus.Registerer) *clocks {
	f := promauto.With(r)
	gauge := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "node", Name: name, Help: help}, []string{"server"})
	}
	return &clocks{
		servers: s, log: log,
		offset: gauge("clock_offset_seconds", "The server's clock minus this process's, as last measured."),
		up:     gauge("server_up", "1 if the server answered when last asked for its clock, else 0."),
	}
}

// run measures until ctx ends. Its error is that of a server which is not part
// of this cluster any more.
func (c *clocks) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for server, name := range c.servers.Servers() {
		g.Go(func() error { return c.follow(ctx, server, name) })
	}
	return g.Wait()
}

// follow measures one server.
func (c *clocks) follow(ctx context.Context, server int, name string) error {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	log := c.log.With().Str("server", name).Logger()
	for was := unknown; ; {
		offset, err := c.servers.Measure(ctx, server)
		if ctx.Err() != nil {
			return nil
		}
		now := stateOf(offset, err)
		c.export(name, now, offset)
		if now != was {
			if err := c.changed(ctx, server, was, now, log.With().Err(err).Dur("offset", offset.Ahead).Logger()); err != nil {
				return err
			}
		}
		was = now
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// state of a server, as a look at its clock shows it.
type state int

const (
	unknown state = iota
	away
	near // its clock is within the limit
	far
)

func stateOf(o store.Offset, err error) state {
	switch {
	case err != nil:
		return away
	case o.Ahead.Abs()-o.RoundTrip > offsetLimit:
		return far
	}
	return near
}

func (c *clocks) export(name string, now state, o store.Offset) {
	if now == away {
		c.up.WithLabelValues(name).Set(0)
		return
	}
	c.up.WithLabelValues(name).Set(1)
	c.offset.WithLabelValues(name).Set(o.Ahead.Seconds())
}

// changed says what is new, and looks whether a server that was away is still
// the one that the config means.
func (c *clocks) changed(ctx context.Context, server int, was, now state, log zerolog.Logger) error {
	switch {
	case now == away:
		log.Warn().Msg("server does not answer")
		return nil
	case now == far:
		log.Warn().Msg("server's clock is far from this machine's: tasks are due by the server's")
	case was == far:
		log.Info().Msg("server's clock is near this machine's again")
	}
	if was != away {
		return nil
	}
	log.Info().Msg("server answers again")
	if err := c.servers.Check(ctx, server); err != nil && !mysql.ClassOf(err).Transient() && ctx.Err() == nil {
		return err
	}
	return nil
}
