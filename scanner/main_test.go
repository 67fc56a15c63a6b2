package scanner

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of devtest.DSN

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// patience of the tests with events that are sure to come.
const eventTimeout = 3 * time.Minute

var (
	closing  = tocsin.Define[string]("order.close")
	reminder = tocsin.Define[string]("coupon.remind")
)

const (
	closeNumber  = 1
	remindNumber = 2
)

const clusterTables = 8

// cluster is a store, a client and a pool on two databases of four tables. With
// two servers each database is on a server of its own, though it is the same
// process behind both.
type cluster struct {
	*store.Store
	tb     testing.TB
	client *tocsin.Client
	db     *sql.DB
}

func newCluster(tb testing.TB, servers int) *cluster {
	tb.Helper()
	cfg := tocsin.Config{Layout: tocsin.Layout{Databases: 2, Tables: 4, Prefix: devtest.Prefix(tb)}}
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: devtest.DSN(tb)}}
	if servers == 2 {
		cfg.Servers[0].Databases = []int{0}
		cfg.Servers = append(cfg.Servers, tocsin.Server{Name: "db2", DSN: devtest.DSN(tb), Databases: []int{1}})
	}
	_, err := ddl.Apply(tb.Context(), cfg, ddl.Options{Cluster: "test"})
	must(tb, err)
	_, err = biztype.Apply(tb.Context(), cfg, []biztype.Policy{
		{Name: closing.Name(), Number: closeNumber, Group: "orders"},
		{Name: reminder.Name(), Number: remindNumber, Group: "orders"},
	})
	must(tb, err)
	c := &cluster{tb: tb}
	c.Store, err = store.Open(cfg)
	must(tb, err)
	c.client, err = tocsin.Open(tb.Context(), cfg)
	must(tb, err)
	c.db, err = sql.Open("mysql", cfg.Servers[0].DSN)
	must(tb, err)
	tb.Cleanup(func() {
		must(tb, c.Store.Close())
		must(tb, c.client.Close())
		must(tb, c.db.Close())
	})
	for server := range cfg.Servers {
		_, err := c.Measure(tb.Context(), server)
		must(tb, err)
	}
	return c
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// deaf is a cluster whose doorbell is never heard: what is found was peeked.
type deaf struct{ *cluster }

func (deaf) Bells(context.Context, int, map[int]store.Unheard, int) (map[int][]store.Bell, error) {
	return nil, nil
}

func (deaf) LastBell(context.Context, int) (map[int]uint64, error) { return nil, nil }

// add adds tasks due after d for the biz_ids and returns their ids.
func (c *cluster) add(b tocsin.BizType[string], d time.Duration, bizIDs ...uint64) []tocsin.JobID {
	c.tb.Helper()
	tasks := make([]tocsin.NewTask, len(bizIDs))
	for i, bizID := range bizIDs {
		tasks[i] = b.New(bizID, "", tocsin.In(d))
	}
	added, err := c.client.AddMany(c.tb.Context(), tasks)
	must(c.tb, err)
	ids := make([]tocsin.JobID, len(added))
	for i, a := range added {
		must(c.tb, a.Err)
		ids[i] = a.JobID
	}
	return ids
}

// in gives n biz_ids whose rows are in the table.
func (c *cluster) in(table, n int) []uint64 {
	var ids []uint64
	for id := uint64(1); len(ids) < n; id++ {
		if c.Layout().TableOf(id) == table {
			ids = append(ids, id)
		}
	}
	return ids
}

// exec runs a statement as an operator would.
func (c *cluster) exec(query string) {
	c.tb.Helper()
	_, err := c.db.ExecContext(c.tb.Context(), query)
	must(c.tb, err)
}

// known reports whether all of the ids were offered.
func (in *lanes) known(ids []tocsin.JobID) bool {
	return !slices.ContainsFunc(ids, func(id tocsin.JobID) bool { return !in.seen[id] })
}

// await waits until all of the ids were offered.
func (in *lanes) await(tb testing.TB, ids []tocsin.JobID) {
	tb.Helper()
	late := time.AfterFunc(eventTimeout, in.came.Broadcast)
	defer late.Stop()
	end := time.Now().Add(eventTimeout)
	in.mu.Lock()
	defer in.mu.Unlock()
	for !in.known(ids) {
		if time.Now().After(end) {
			tb.Fatalf("of %d tasks %d were offered in %s", len(ids), len(in.seen), eventTimeout)
		}
		in.came.Wait()
	}
}

// never fails if one of the ids was offered.
func (in *lanes) never(tb testing.TB, ids []tocsin.JobID) {
	tb.Helper()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, id := range ids {
		if in.seen[id] {
			tb.Errorf("job_id %s was offered", id)
		}
	}
}

// settle completes what is due in the store and returns how many that were.
func (in *lanes) settle(ctx context.Context, c *cluster, limit int) (int, error) {
	in.mu.Lock()
	due := in.started
	in.started = nil
	for _, q := range in.queues {
		due = q.Pop(c.Now(0), limit, due)
	}
	in.mu.Unlock()
	outcomes := make([]store.Outcome, len(due))
	for i, e := range due {
		outcomes[i] = store.Outcome{JobID: e.JobID, Verb: tocsin.Completed}
	}
	if len(due) > 0 {
		if _, err := c.Settle(ctx, 0, outcomes); err != nil {
			return 0, err
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, e := range due {
		in.queues[e.Type].Done(e.JobID)
	}
	return len(due), nil
}

// ownedBy returns the tables that are looked at, ascending.
func ownedBy(s *Scanner) (all []int) {
	for _, sv := range s.servers {
		sv.offering.RLock()
		all = slices.AppendSeq(all, maps.Keys(sv.owned))
		sv.offering.RUnlock()
	}
	slices.Sort(all)
	return all
}
