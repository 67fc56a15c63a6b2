package node_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
)

// ill is one way to make the second database of a place wrong, and right again. {db}
// stands for its name.
type ill struct {
	wrong, right []string
	says         string
}

var ills = map[string]ill{
	"its layout row is gone": {
		[]string{"CREATE TABLE {db}.kept AS SELECT * FROM {db}.layout", "DELETE FROM {db}.layout"},
		[]string{"INSERT INTO {db}.layout SELECT * FROM {db}.kept"}, "has no layout row",
	},
	"its layout table is gone": {
		[]string{"RENAME TABLE {db}.layout TO {db}.away"}, []string{"RENAME TABLE {db}.away TO {db}.layout"}, "has no layout table",
	},
	"it is of another cluster": {
		[]string{"UPDATE {db}.layout SET cluster_id = CONCAT(cluster_id, 'x')"},
		[]string{"UPDATE {db}.layout SET cluster_id = LEFT(cluster_id, LENGTH(cluster_id) - 1)"}, "cluster of the config is",
	},
	"it says that it is another database": {
		[]string{"UPDATE {db}.layout SET database_no = 7"}, []string{"UPDATE {db}.layout SET database_no = 1"}, "says that it is database 7",
	},
	"it has another grace of sweeps": {
		[]string{"UPDATE {db}.layout SET sweep_grace_ms = 20000"}, []string{"UPDATE {db}.layout SET sweep_grace_ms = 60000"},
		"grace of sweeps of this process is 1m0s, that of",
	},
	"it has moved": {
		[]string{"UPDATE {db}.layout SET state = 'retired'"}, []string{"UPDATE {db}.layout SET state = 'active'"}, "is retired",
	},
}

// do runs statements on the second database.
func (p place) do(t *testing.T, db *sql.DB, statements []string) {
	t.Helper()
	for _, s := range statements {
		execute(t, db, strings.ReplaceAll(s, "{db}", p.cfg.Layout.Database(1)))
	}
}

// bizIDIn returns the n-th biz_id whose table is in a database.
func (p place) bizIDIn(database, n int) uint64 {
	for id := uint64(1); ; id++ {
		if p.cfg.Layout.DatabaseOf(p.cfg.Layout.TableOf(id)) == database {
			if n--; n < 0 {
				return id
			}
		}
	}
}

// reportIs waits until the node reports this about its second database.
func reportIs(t *testing.T, n *node.Node, what string, ok func(sick []store.Database) bool) {
	t.Helper()
	until(t, "the node says "+what, func() bool {
		report, _ := n.Report()
		return ok(report.Databases)
	})
}

func saysWrong(part string) func([]store.Database) bool {
	return func(sick []store.Database) bool {
		return len(sick) == 1 && sick[0].Number == 1 && sick[0].Is == store.Wrong && strings.Contains(sick[0].Why, part)
	}
}

func saysNothing(sick []store.Database) bool { return len(sick) == 0 }

// rowState is what a delivery changes of a row.
type rowState struct {
	status    tocsin.Status
	claimedBy string
}

// raw reads a row past the client, which refuses the database.
func raw(t *testing.T, p place, db *sql.DB, id tocsin.JobID) (is rowState) {
	t.Helper()
	query := "SELECT status, claimed_by FROM " + p.cfg.Layout.Table(id.Table()) + " WHERE job_id = ?"
	if err := db.QueryRow(query, uint64(id)).Scan(&is.status, &is.claimedBy); err != nil {
		t.Fatal(err)
	}
	return is
}

// The other ills are played as a node starts, where nothing has to be waited for.
func TestOneWrongDatabaseStopsItsOwnTasksOnly(t *testing.T) {
	t.Parallel()
	ill := ills["its layout table is gone"]
	p := newPlace(t, closePolicy())
	db := openDB(t, p.cfg.Servers[0].DSN)
	started, release := make(chan uint64, 100), make(chan struct{})
	slow := p.bizIDIn(1, 0)
	h := closing(func(ctx context.Context, task *tocsin.Task[order]) error {
		started <- task.BizID
		if task.BizID == slow {
			<-release
		}
		return nil
	})
	n, _ := run(t, p.config("orders"), h)
	inHand := add(t, p, orderClose.New(slow, order{1}, tocsin.In(0)))
	receive(t, started, "the task that is in hand when its database becomes wrong")
	begun := raw(t, p, db, inHand) // claimed, if the node came to it late
	waits := add(t, p, orderClose.New(p.bizIDIn(1, 1), order{2}, tocsin.In(time.Hour)))

	p.do(t, db, ill.wrong)
	reportIs(t, n, "that the database is wrong", saysWrong(ill.says))
	execute(t, db, "UPDATE "+p.cfg.Layout.Table(waits.Table())+" SET action_time = UTC_TIMESTAMP(3), due_time = action_time WHERE job_id = ?", uint64(waits))
	close(release)
	for i := range 4 { // one a second, so that the tables are looked at after the one that waits was due
		id := add(t, p, orderClose.New(p.bizIDIn(0, i), order{3}, tocsin.In(time.Duration(i)*time.Second)))
		await(t, p, id, "a task beside it", withStatus(tocsin.Done))
	}
	if is := raw(t, p, db, inHand); is != begun {
		t.Errorf("the task that was in hand is %v, was %v, in a database that must not be written", is, begun)
	}
	if is := raw(t, p, db, waits); is != (rowState{status: tocsin.Pending}) {
		t.Errorf("the task that was due is %v, in a database that must not be written", is)
	}

	p.do(t, db, ill.right)
	reportIs(t, n, "that all is well", saysNothing)
	await(t, p, inHand, "the outcome that waited", withStatus(tocsin.Done))
	await(t, p, waits, "the task that waited", withStatus(tocsin.Done))
}

func TestANodeStartsBesideAWrongDatabase(t *testing.T) {
	t.Parallel()
	for name, ill := range ills {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, closePolicy())
			db := openDB(t, p.cfg.Servers[0].DSN)
			waits := add(t, p, orderClose.New(p.bizIDIn(1, 0), order{1}, tocsin.In(0)))
			p.do(t, db, ill.wrong)
			h := closing(closes)
			n, _ := run(t, p.config("orders"), h)
			reportIs(t, n, "that the database is wrong", saysWrong(ill.says))
			id := add(t, p, orderClose.New(p.bizIDIn(0, 0), order{2}, tocsin.In(0)))
			await(t, p, id, "a task beside it", withStatus(tocsin.Done))
			p.do(t, db, ill.right)
			await(t, p, waits, "the task that waited", withStatus(tocsin.Done))
		})
	}
}

// If a table other than the task tables is gone, only its own database is affected,
// and the report names it.
func TestALostOwnerTableKeepsItsOwnDatabasesTablesOnly(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	db := openDB(t, p.cfg.Servers[0].DSN)
	p.do(t, db, []string{"RENAME TABLE {db}.owner TO {db}.away"})
	h := closing(closes)
	n, _ := run(t, p.config("orders"), h)
	ownersAre(t, p, "the node has all tables of the other database", func(owners []string) bool { return all(owners[:4], "test") })
	reportIs(t, n, "which table is gone", func(sick []store.Database) bool {
		return len(sick) == 1 && sick[0].Number == 1 && sick[0].Is == store.Usable && strings.Contains(sick[0].Why, ".owner' doesn't exist")
	})
	id := add(t, p, orderClose.New(p.bizIDIn(0, 0), order{1}, tocsin.In(0)))
	await(t, p, id, "a task beside it", withStatus(tocsin.Done))
	p.do(t, db, []string{"RENAME TABLE {db}.away TO {db}.owner"})
	ownersAre(t, p, "the node has all tables", func(owners []string) bool { return all(owners, "test") })
	reportIs(t, n, "that all is well", saysNothing)
}

// So it is after etcd was wiped twice while one server was away each time.
func TestTablesWhoseOwnerRowsAreAheadWhenTheirDatabaseIsBackAreTakenAnew(t *testing.T) {
	t.Parallel()
	p, log := newPlace(t, closePolicy()), new(devtest.Log)
	db := openDB(t, p.cfg.Servers[0].DSN)
	cfg := p.config("orders")
	cfg.Logger = log.Logger()
	n, _ := run(t, cfg, closing(closes))
	awaitOwned(t, n, 8)
	waits := add(t, p, orderClose.New(p.bizIDIn(1, 0), order{1}, tocsin.In(time.Hour)))
	ill := ills["its layout table is gone"]
	p.do(t, db, ill.wrong)
	reportIs(t, n, "that the database is wrong", saysWrong(ill.says))
	p.do(t, db, []string{"UPDATE {db}.owner SET node = 'past-1', revision = revision + (1 << 39) WHERE group_name = 'orders'"})
	execute(t, db, "UPDATE "+p.cfg.Layout.Table(waits.Table())+" SET action_time = UTC_TIMESTAMP(3), due_time = action_time WHERE job_id = ?", uint64(waits))
	p.do(t, db, ill.right)
	await(t, p, waits, "the task that waited", withStatus(tocsin.Done))
	if lines := log.Lines("etcd does not know the owner rows of this group: it was wiped or restored, or no node kept epochs before; a new epoch begins"); len(lines) != 1 {
		t.Errorf("%d epochs have begun: %v", len(lines), lines)
	}
}

// strangers makes another cluster with databases of the same names on a server of its
// own, with overdue tasks of the same biz type that belong to others.
func strangers(t *testing.T, p place) (port int, digest func() string) {
	t.Helper()
	server := startServer(t)
	p.cfg.Cluster = "strangers"
	p.cfg.Servers = []tocsin.Server{{Name: "theirs", DSN: server.DSN()}}
	theirs := p.made(t, closePolicy())
	for n := range uint64(40) {
		add(t, theirs, orderClose.New(n+1, order{n}, tocsin.In(0)))
	}
	db := openDB(t, theirs.cfg.Servers[0].DSN)
	return server.Port(), func() string {
		var all strings.Builder
		for d := range p.cfg.Layout.Databases {
			for _, table := range []string{"task_0000", "task_0001", "task_0002", "task_0003", "owner", "layout", "biz_type", "doorbell"} {
				var name, sum string
				if err := db.QueryRow(fmt.Sprintf("CHECKSUM TABLE %s.%s", p.cfg.Layout.Database(d), table)).Scan(&name, &sum); err != nil {
					t.Fatal(err)
				}
				fmt.Fprintln(&all, name, sum)
			}
		}
		return all.String()
	}
}

// If another cluster's server replaces one behind its address, it is never written
// to, and its tasks are not delivered.
func TestAnotherClustersServerBehindAnAddressIsNeverWritten(t *testing.T) {
	t.Parallel()
	p := onTwoServers(t, closePolicy())
	their, digest := strangers(t, p)
	before := digest()
	apart, way := p.throughRelay(t)
	_, own, _ := strings.Cut(p.cfg.Servers[0].DSN, "(")
	own, _, _ = strings.Cut(own, ")")
	delivered := make(chan uint64, 1000)
	h := closing(func(_ context.Context, task *tocsin.Task[order]) error {
		delivered <- task.Payload.ID
		return nil
	})
	n, _ := run(t, apart.config("orders"), h)
	const mine = 1 << 40
	first := add(t, p, orderClose.New(p.bizIDIn(1, 0), order{mine}, tocsin.In(0)))
	await(t, p, first, "a task on the second server", withStatus(tocsin.Done))
	waits := add(t, p, orderClose.New(p.bizIDIn(1, 1), order{mine}, tocsin.In(3*time.Second)))

	way.LeadTo(t, fmt.Sprintf("127.0.0.1:%d", their))
	reportIs(t, n, "that the database is another cluster's", saysWrong("cluster of the config is"))
	for i := range 4 {
		id := add(t, p, orderClose.New(p.bizIDIn(0, i), order{mine}, tocsin.In(time.Duration(i)*1200*time.Millisecond)))
		await(t, p, id, "a task on the first server", withStatus(tocsin.Done))
	}
	if after := digest(); after != before {
		t.Errorf("the strangers' tables have changed:\n%s\nbefore:\n%s", after, before)
	}

	way.LeadTo(t, own)
	await(t, p, waits, "the task that waited", withStatus(tocsin.Done))
	reportIs(t, n, "that all is well", saysNothing)
	if after := digest(); after != before {
		t.Errorf("the strangers' tables have changed:\n%s\nbefore:\n%s", after, before)
	}
	for len(delivered) > 0 {
		if id := <-delivered; id != mine {
			t.Errorf("a stranger's task %d was delivered", id)
		}
	}
}

// awaitOwned waits until a node owns the given number of tables.
func awaitOwned(t *testing.T, n *node.Node, tables int) {
	t.Helper()
	until(t, fmt.Sprintf("it owns %d tables", tables), func() bool { return owned(n) == tables })
}

// The databases have no identity yet. Their node logs that, and publishes the identity once they have
// one.
func TestANodeTellsTheIdentityThatItsDatabasesAreGiven(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for db := range 2 {
		execute(t, openDB(t, devtest.DSN(t)), fmt.Sprintf("UPDATE %s.layout SET identity = ''", p.cfg.Layout.Database(db)))
	}
	var log devtest.Log
	cfg := p.config("g")
	cfg.Logger = log.Logger()
	n, _ := run(t, cfg, nil)
	log.Await(t, "the databases have no identity, so nodes of another cluster with the same id are not kept out: run `tocsin ddl apply`")
	awaitOwned(t, n, 8)
	res, err := ddl.Apply(t.Context(), p.cfg, ddl.Options{})
	if err != nil || res.Identity == "" {
		t.Fatalf("%+v, %v", res, err)
	}
	keys, err := assign.OpenRegistry(t.Context(), p.etcd, p.cfg.Cluster, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	until(t, "the node tells the identity", func() bool {
		bound, err := keys.Binding(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return bound.ID == res.Identity
	})
	awaitOwned(t, n, 8)
}
