package ddl

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// layoutRow is the layout row of one database.
type layoutRow struct {
	Cluster   string `db:"cluster_id"`
	Identity  string `db:"identity"` // "": it could not be written yet
	Number    int    `db:"database_no"`
	Databases int    `db:"databases_total"`
	Tables    int    `db:"tables_per_database"`
	Hash      string `db:"hash"`
	HorizonMS int64  `db:"doorbell_horizon_ms"`
	Version   int    `db:"schema_version"`
	WorksWith int    `db:"works_with"`
	State     string `db:"state"`
	Ownership string `db:"ownership"`
	Mark      int64  `db:"mark"`           // 0: never marked
	GraceMS   int64  `db:"sweep_grace_ms"` // 0: not written yet
}

// newRow returns the row that Apply writes into database number db.
func newRow(layout tocsin.Layout, db int, opt Options) layoutRow {
	return layoutRow{
		Cluster: opt.Cluster, Identity: opt.Identity, Number: db, Databases: layout.Databases, Tables: layout.Tables, Hash: layoutrow.Hash,
		Ownership: opt.Ownership, HorizonMS: opt.DoorbellHorizon.Milliseconds(), GraceMS: opt.SweepGrace.Milliseconds(), Version: layoutrow.SchemaVersion, WorksWith: cmp.Or(opt.worksWith, layoutrow.SchemaVersion), State: layoutrow.Active,
	}
}

// insert renders the statement that writes the row.
func (r layoutRow) insert(database string) string {
	return fill(insertLayout, slots{
		"database": database, "cluster": r.Cluster, "identity": r.Identity, "number": r.Number, "databases": r.Databases, "tables": r.Tables,
		"hash": r.Hash, "horizon": r.HorizonMS, "version": r.Version, "works_with": r.WorksWith, "state": r.State,
		"ownership": cmp.Or(r.Ownership, ByEtcd), "grace": r.graceMS(),
	})
}

// graceMS returns the grace of sweeps to store.
func (r layoutRow) graceMS() int64 { return cmp.Or(r.GraceMS, DefaultSweepGrace.Milliseconds()) }

// grace renders the statement that writes the grace of sweeps where there is none.
func (r layoutRow) grace(database string) string {
	return fill(writeGrace, slots{"database": database, "grace": r.graceMS()})
}

// mark renders the statement that writes the identity if there is none.
func (r layoutRow) mark(database string) string {
	return fill(markLayout, slots{"database": database, "identity": r.Identity})
}

// conflict returns how a stored row contradicts the wanted one, naming both; place is
// the database and its server. An empty cluster matches any, as does an empty
// identity or grace of sweeps on either side, and an empty ownership; a different horizon or state is no
// conflict.
func (r layoutRow) conflict(stored layoutRow, place string) error {
	mine, theirs := shape(r), shape(stored)
	switch {
	case mine != theirs:
		return fmt.Errorf("layout of the config is %s, that of %s is %s: the layout is fixed for the life of a cluster", mine, place, theirs)
	case r.Number != stored.Number:
		return fmt.Errorf("%s is number %d by the config, number %d by its layout row", place, r.Number, stored.Number)
	case r.Hash != stored.Hash:
		return fmt.Errorf("%s is divided by %s, this program divides by %s", place, stored.Hash, r.Hash)
	case r.Cluster != "" && r.Cluster != stored.Cluster:
		return fmt.Errorf("cluster is %q, but %s belongs to cluster %q", r.Cluster, place, stored.Cluster)
	case r.Identity != "" && stored.Identity != "" && r.Identity != stored.Identity:
		return fmt.Errorf("identity is %s, but %s has %s: it is of another cluster with the same id, correct the servers of the config",
			r.Identity, place, stored.Identity)
	case r.Ownership != "" && r.Ownership != stored.Ownership:
		return fmt.Errorf("ownership of the config is %q, that of %s is %q: set layout.ownership of the config, or stop all nodes and run `tocsin ddl ownership %s`",
			r.Ownership, place, stored.Ownership, r.Ownership)
	case r.GraceMS != 0 && stored.GraceMS != 0 && r.GraceMS != stored.GraceMS:
		return fmt.Errorf("sweep.grace of the config is %s, that of %s is %s: set sweep.grace of the config, or stop all nodes and sweeps and run `tocsin ddl grace %s`",
			millis(r.GraceMS), place, millis(stored.GraceMS), millis(r.GraceMS))
	case stored.Version < layoutrow.OldestSchema:
		return fmt.Errorf("%s %s", place, layoutrow.TooOld(stored.Version))
	case max(stored.Version, stored.WorksWith) > r.Version:
		return fmt.Errorf("%s has schema version %d, this program is for %d: use the tocsin that migrated it, or a newer one", place, stored.Version, r.Version)
	}
	return nil
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func shape(r layoutRow) tocsin.Layout {
	return tocsin.Layout{Databases: r.Databases, Tables: r.Tables}
}

// newCluster makes a cluster id that no other cluster has, "toc-k3v9x0q2mz".
func newCluster(layout tocsin.Layout) string {
	prefix, _, _ := strings.Cut(layout.Database(0), "_0")
	return prefix + "-" + strings.ToLower(rand.Text()[:10])
}

// newIdentity makes a random identity, which tells a cluster from every other with
// the same id.
func newIdentity() string { return strings.ToLower(rand.Text()) }

// plannedIdentity returns the identity that a plan gives to a cluster. It is derived
// from the config, without chance, so that the same plan can be made again.
func plannedIdentity(cfg tocsin.Config, cluster string) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q", cluster, named(cfg.Layout))
	for _, spec := range client.Specs(cfg) {
		fmt.Fprintf(hash, " %q %q %v", spec.Name, mysql.Address(spec.DSN), spec.Databases)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(hash.Sum(nil))[:26])
}

// identityOf returns the identity that most of the databases have; "" if none has
// one.
func identityOf(rows map[int]layoutRow) string {
	var all layoutrow.Identities
	for db, row := range rows {
		all.Put(db, row.Identity)
	}
	return all.Agreed()
}

// mark writes the identity into a layout row that has none, and returns the row as
// stored. If the user lacks the right, or a transaction is in the way, that is only a
// warning: all works without an identity.
func (a *application) mark(ctx context.Context, s *site, db int, row layoutRow) (layoutRow, error) {
	if a.opt.Identity == "" {
		return row, nil
	}
	_, err := s.exec(ctx, a.row(db).mark(s.layout.Database(db)))
	switch mysql.ClassOf(err) {
	case mysql.OK:
		return s.readLayout(ctx, db)
	case mysql.Denied:
		a.warn(fmt.Sprintf("%s has no identity, and the user may not give it one: let an administrator run this again (%v)", s.place(db), err))
		return row, nil
	case mysql.Contended:
		a.warn(fmt.Sprintf("%s has no identity, as an open transaction of somebody holds its layout table: run this again", s.place(db)))
		return row, nil
	}
	return row, fmt.Errorf("write the identity of %s: %w", s.place(db), err)
}

func (a *application) warn(text string) {
	a.count(func(r *Result) {
		if r.Warning != "" {
			text = "; " + text
		}
		r.Warning += text
	})
}
