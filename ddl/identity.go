package ddl

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// identity is the layout row of one database: what it is part of.
type identity struct {
	Cluster   string `db:"cluster_id"`
	Number    int    `db:"database_no"`
	Databases int    `db:"databases_total"`
	Tables    int    `db:"tables_per_database"`
	Hash      string `db:"hash"`
	HorizonMS int64  `db:"doorbell_horizon_ms"`
	Version   int    `db:"schema_version"`
	WorksWith int    `db:"works_with"`
	State     string `db:"state"`
}

// newIdentity gives the row that Apply writes into database number db.
func newIdentity(layout tocsin.Layout, db int, cluster string, horizon time.Duration) identity {
	return identity{
		Cluster: cluster, Number: db, Databases: layout.Databases, Tables: layout.Tables, Hash: Hash,
		HorizonMS: horizon.Milliseconds(), Version: tocsin.SchemaVersion, WorksWith: tocsin.SchemaVersion, State: Active,
	}
}

// insert renders the statement that writes the row.
func (id identity) insert(database string) string {
	return strings.NewReplacer(
		"{database}", database,
		"{cluster}", id.Cluster,
		"{number}", strconv.Itoa(id.Number),
		"{databases}", strconv.Itoa(id.Databases),
		"{tables}", strconv.Itoa(id.Tables),
		"{hash}", id.Hash,
		"{horizon}", strconv.FormatInt(id.HorizonMS, 10),
		"{version}", strconv.Itoa(id.Version),
		"{state}", id.State,
	).Replace(insertLayout)
}

// conflict says in what a stored row refuses the wanted one, naming both; place
// is the database and its server. An empty wanted cluster takes any, and a
// different horizon or state is nothing to refuse.
func (id identity) conflict(stored identity, place string) error {
	mine, theirs := shape(id), shape(stored)
	switch {
	case mine != theirs:
		return fmt.Errorf("layout of the config is %s, that of %s is %s: the layout is fixed for the life of a cluster", mine, place, theirs)
	case id.Number != stored.Number:
		return fmt.Errorf("%s is number %d by the config, number %d by its layout row", place, id.Number, stored.Number)
	case id.Hash != stored.Hash:
		return fmt.Errorf("%s is divided by %s, this program divides by %s", place, stored.Hash, id.Hash)
	case id.Cluster != "" && id.Cluster != stored.Cluster:
		return fmt.Errorf("cluster is %q, but %s belongs to cluster %q", id.Cluster, place, stored.Cluster)
	case stored.WorksWith > id.Version:
		return fmt.Errorf("%s has schema version %d, this program knows %d: use a newer tocsin", place, stored.Version, id.Version)
	}
	return nil
}

func shape(id identity) tocsin.Layout {
	return tocsin.Layout{Databases: id.Databases, Tables: id.Tables}
}

// newCluster makes a cluster id that no other cluster has, "toc-k3v9x0q2mz".
func newCluster(layout tocsin.Layout) string {
	prefix, _, _ := strings.Cut(layout.Database(0), "_0")
	return prefix + "-" + strings.ToLower(rand.Text()[:10])
}
