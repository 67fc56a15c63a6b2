package biztype

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// pollTimeout bounds one question to one server: a server that hangs costs no
// more than that before the next is asked.
const pollTimeout = time.Second

// meetTimeout bounds the wait for the first server that answers.
const meetTimeout = 5 * time.Second

// stamp tells whether a biz_type table changed.
type stamp struct {
	Revisions uint64 `db:"revisions"`
	Types     int    `db:"types"`
	Ours      int    `db:"ours"`
}

// follower is the state of one Run; it belongs to that goroutine.
type follower struct {
	*Watcher
	turn      []database       // in the order in which they are asked
	next      int              // index in turn
	latest    map[uint64]row   // the newest seen of each type
	stamps    map[string]stamp // by database, as last read in full
	published bool
	blind     bool // the last round reached no server
	limit     loop.LogLimit

	identities layoutrow.Identities // as the databases that were read in full say
}

// meet finds out which identity most databases have: the first that is polled may
// be of another cluster with the same id.
func (f *follower) meet(ctx context.Context, servers []*mysql.Server) {
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()
	found, _ := readAll(ctx, f.cfg.Cluster, servers, stragglers) // polls say what can't be read
	for _, d := range found {
		f.identities.Note(d.want, d.layout)
	}
}

// turns orders the databases so that neighbours stand on different servers.
func turns(cfg tocsin.Config, servers []*mysql.Server) []database {
	var turn []database
	for i := 0; ; i++ {
		before := len(turn)
		for _, s := range servers {
			if i < len(s.Databases) {
				turn = append(turn, database{server: s, want: want(cfg), number: s.Databases[i], name: cfg.Layout.Database(s.Databases[i])})
			}
		}
		if len(turn) == before {
			return turn
		}
	}
}

// round asks the databases in turn until one answers. Of a server that does not answer
// it asks only one.
func (f *follower) round(ctx context.Context) {
	w := f.Watcher
	var errs []error
	away := map[*mysql.Server]bool{}
	for range f.turn {
		d := f.turn[f.next]
		f.next = (f.next + 1) % len(f.turn)
		if away[d.server] {
			continue
		}
		err := f.poll(ctx, d)
		if ctx.Err() != nil {
			return
		}
		w.metrics.poll(err)
		if err == nil {
			f.recovered()
			return
		}
		away[d.server] = mysql.Unanswered(err)
		errs = append(errs, err)
	}
	f.unreachable(errors.Join(errs...))
}

// poll asks one database and publishes what is new there.
func (f *follower) poll(ctx context.Context, d database) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	var now stamp
	cluster := d.want.Cluster
	if err := d.server.DB.GetContext(ctx, &now, d.sql(selectStamp), cluster, cluster, d.number); err != nil {
		return d.explain("poll", err)
	}
	if now.Ours == 0 {
		if _, err := d.judge(ctx, d.server.DB); err != nil {
			return err
		}
	}
	if f.stamps[d.name] == now && f.published {
		return nil
	}
	rows, err := d.read(ctx)
	if err != nil {
		return err
	}
	f.identities.Note(d.want, d.layout)
	d.want.Identity = f.identities.Agreed()
	if text := d.want.Refuse(d.layout, d.where()); text != "" {
		return &foreign{layoutrow.Problem{Why: text, Differs: true}}
	}
	f.stamps[d.name] = now
	if changed := merge(f.latest, rows); changed || !f.published {
		f.publish()
	}
	return nil
}

func (f *follower) publish() {
	policies, err := decodeAll(f.latest)
	if err != nil {
		f.cfg.Logger.Error("a stored policy cannot be read; its biz type is left out", "error", err)
	}
	f.published = true
	revision := uint64(0)
	for _, r := range f.latest {
		revision = max(revision, r.Revision)
	}
	f.metrics.publish(revision)
	f.cfg.Logger.Info("biz types read", "revision", revision, "biz_types", len(policies))
	f.cfg.Changed(slices.Clip(policies))
}

func (f *follower) unreachable(err error) {
	f.limit.Of(f.cfg.Logger, "blind").Warn("no server tells the biz types; going on with those last read", "error", err)
	f.blind = true
}

func (f *follower) recovered() {
	if f.blind {
		f.limit.Of(f.cfg.Logger, "sees").Info("biz types can be read again")
	}
	f.blind = false
}
