package assign

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Holder is the node's side: who peeks and delivers. Its methods are called at the same time for tables of different servers,
// and for different tables of one; for one table they are called one after the other, and return before the step in etcd
// that follows.
type Holder interface {
	// Take starts on tables whose keys this node now holds. It writes the owner rows with their revisions (by table,
	// each higher than any before), then starts to peek. After a *Refused, the node does not have the tables that it
	// names; after any other error it has none of these tables. Refused tables go through Drop, their keys are given
	// back, and they are tried again at growing intervals. An *Overtaken in the error means that an owner row had a
	// higher revision; such a table must not be started. ctx ends after 5 s, and with the lease.
	Take(ctx context.Context, revisions map[int]int64) error

	// Drop gives tables up: stop peeking, drop what is queued, finish or claim what is in delivery, settle. It returns
	// when their keys may be deleted. Tables that the node does not have are no error. After a *Refused the keys of the
	// tables that it names stay, after any other error all of them, and Drop is called again for these; but not of tables
	// that this node misses and others reach: they deliver again what it could not settle. ctx ends after 50 ms, so that tables
	// which have nothing in delivery wait for no others, and in the next call, for the rest, after 5 s.
	Drop(ctx context.Context, tables []int) error

	// Loosen is called when the lease of an owner, an ID of this node, can't be proven any more, while its tables stay:
	// claim what is in delivery, start nothing more on ownership, but go on in claim mode behind the owner rows. It may be
	// called at the same time as the others. ctx ends after 5 s.
	Loosen(ctx context.Context, owner string) error
}

// Refused is an error of Take or Drop that concerns some of its tables only, those of a sick database say.
type Refused struct {
	Tables []int
	Err    error
}

// Error tells how many tables, and why.
func (r *Refused) Error() string { return fmt.Sprintf("%d tables: %v", len(r.Tables), r.Err) }

// Unwrap gives the reason.
func (r *Refused) Unwrap() error { return r.Err }

// Assign is a node's membership of its group. Its methods are safe for concurrent use.
type Assign struct {
	cfg        Config
	holder     Holder
	metrics    *metrics
	trust      *trust
	id         atomic.Pointer[string]
	loose      map[int]bool // tables of former incarnations that the holder has in claim mode; belongs to Run's goroutine
	draining   bool         // last value seen; belongs to Run's goroutine
	owned      atomic.Int64
	wanted     atomic.Int64
	peers      atomic.Int64
	unowned    atomic.Int64
	missing    atomic.Pointer[[]int]           // see Miss
	unfit      atomic.Pointer[Refused]         // see Refuse; nil: the session has heard it
	nudge      chan struct{}                   // 1 slot: see look
	limit      loop.LogLimit                   // on lines that would repeat while a fault lasts
	foreign    atomic.Int64                    // live nodes of the group with other databases
	identified atomic.Pointer[Identity]        // last known
	told       atomic.Pointer[Told]            // see Tell; nil: Config.Info is complete
	others     atomic.Pointer[map[string]bool] // types that other nodes deliver
	newest     atomic.Pointer[map[string]int]  // versions of payloads that other nodes deliver
	claiming   atomic.Pointer[time.Time]       // start of claim mode; nil: not in claim mode
	reserved   atomic.Int64                    // owner revision of the epoch that this node reserved last; 0: none
}

// New makes the node's membership; nothing is asked of etcd before Run.
func New(cfg Config, h Holder) (*Assign, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if h == nil {
		return nil, errors.New("assign: no holder")
	}
	cfg = cfg.withDefaults()
	a := &Assign{cfg: cfg, holder: h, metrics: newMetrics(), trust: newTrust(cfg.Jumped), loose: make(map[int]bool), nudge: make(chan struct{}, 1)}
	a.missing.Store(new([]int))
	a.rename()
	return a, a.metrics.register(cfg.Registerer, a)
}

// ID gives the node's id with its incarnation, "host-k3j2h4ax", at most 64 bytes. It changes when a lease is lost. Tables that
// were taken before stay under the former id until they are taken again, or dropped.
func (a *Assign) ID() string { return *a.id.Load() }

// rename begins a new incarnation.
func (a *Assign) rename() {
	id := name.NewID(a.cfg.Node)
	a.id.Store(&id)
}

// LeaseOK reports whether the node may act on its ownership now: a renewal succeeded that began less than the TTL minus a
// margin ago, by this process's monotonic clock and by its wall clock, and after Config.Jumped.
func (a *Assign) LeaseOK() bool { return a.trust.left() > 0 }

// MayAct reports whether the node may act now on tables that it took as that owner: it is the present incarnation, and
// its lease is proven. Else rows of these tables are to be claimed, behind the owner rows.
func (a *Assign) MayAct(owner string) bool { return owner == a.ID() && a.LeaseOK() }

// Owned gives how many tables the holder has been given and has not refused.
func (a *Assign) Owned() int { return int(a.owned.Load()) }

// Wanted gives how many tables this node should own by its last plan.
func (a *Assign) Wanted() int { return int(a.wanted.Load()) }

// Peers gives how many live nodes the group has, this one included; at least 1.
func (a *Assign) Peers() int { return max(int(a.peers.Load()), 1) }

// Run registers the node and keeps it to its share of the tables until ctx ends. Then it leaves: it drops all tables
// while the lease is still renewed, revokes the lease, and returns nil. It returns an error in two cases: ErrForeign,
// at once; or the holder could not drop its tables, whose keys then stay until the lease runs out. Run may be called
// once.
//
// Without etcd, Run keeps trying and the holder keeps its tables in claim mode. After a lost lease the node registers
// as a new incarnation, which takes its former tables again unless another node has taken them.
func (a *Assign) Run(ctx context.Context) error {
	outage := false // until a first registration succeeds without trouble
	member := false // whether it has been registered
	early := 0      // attempts while other nodes began an epoch
	for {
		s, err := a.open(ctx, outage)
		switch {
		case err == nil:
			member, early = true, 0
			s.pause = time.Now().Add(s.cfg.ReplanDelay) // others may be registering too
			err = s.run(ctx)
			switch {
			case ctx.Err() != nil && errors.Is(err, errLost): // before it was told to stop: it went on in claim mode
				return a.dropLoose(ctx)
			case ctx.Err() != nil:
				return err
			}
			a.metrics.leasesLost.Inc()
			a.limit.Of(a.cfg.Logger, "lost").Warn("lost the lease, registering anew", "error", err, "node", s.id)
		case ctx.Err() != nil:
			return a.dropLoose(ctx)
		case !member && errors.Is(err, ErrForeign):
			return err
		case errors.Is(err, ErrForeign):
			a.tellForeign(err, "going on without etcd")
			_ = loop.Wait(ctx, failurePause)
		case errors.Is(err, errEpoch) && early < epochTries: // normal when the nodes of a new group start together
			early++
			a.cfg.Logger.Debug("could not register yet, trying again", "error", err, "node", a.ID())
			_ = loop.Wait(ctx, epochPause)
		default:
			a.limit.Of(a.cfg.Logger, "register").Warn("could not register, trying again", "error", err, "node", a.ID())
			_ = loop.Wait(ctx, failurePause)
		}
		outage = outage || !errors.Is(err, errTaken) && !errors.Is(err, errEpoch)
		a.rename()
	}
}

// dropLoose ends claim mode, when the node stops without a lease.
func (a *Assign) dropLoose(ctx context.Context) error {
	if len(a.loose) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	if err := a.holder.Drop(ctx, sortedKeys(a.loose)); err != nil {
		return fmt.Errorf("leave the group %s without etcd: %w", a.cfg.Group, err)
	}
	return nil
}

// open begins an incarnation: a lease and the node's key under it. outage reports whether etcd was away before.
func (a *Assign) open(ctx context.Context, outage bool) (*session, error) {
	var rows store.OwnerRevisions
	var err error
	if a.cfg.OwnerRows != nil {
		if rows, err = a.cfg.OwnerRows.Read(ctx); err != nil {
			return nil, fmt.Errorf("read owner rows: %w", err)
		}
	}
	l, err := grantLease(ctx, a.cfg.Client, a.cfg.TTL, a.trust)
	if err != nil {
		return nil, err
	}
	s := newSession(a, l, outage)
	if err := s.registerKept(ctx, rows); err != nil {
		a.trust.end()
		s.revoke(ctx)
		return nil, err
	}
	a.cfg.Logger.Info("registered", "node", s.id, "group", a.cfg.Group, "lease", leaseText(l.id))
	return s, nil
}
