package tocsin

import (
	"context"
	"database/sql"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// markerKey is what decides how a marker is read.
type markerKey struct {
	layout  Layout
	cluster string
}

// marker tells the addresses of one server apart by their layout rows: its cluster and identity, or
// "" if none of the databases there is the config's. A database that is held is the config's: a
// promoted replica that lags too far is used, and refused with that reason.
func (c Config) marker(spec mysql.Spec) mysql.Marker {
	want := layoutrow.Want{Databases: c.Layout.Databases, Tables: c.Layout.Tables, Cluster: c.Cluster}
	read := func(ctx context.Context, conn *sql.Conn) (string, error) {
		s := server{Server: &mysql.Server{Name: spec.Name, Databases: spec.Databases}, layout: c.Layout}
		rows, _, err := s.layouts(ctx, conn)
		if err != nil {
			return "", err
		}
		var found layoutrow.Identities
		cluster := ""
		for _, row := range rows {
			if row.State == layoutrow.Held {
				row.State = layoutrow.Active
			}
			if want.Refuse(row.Row, "") == "" {
				found.Put(row.Asked, row.Identity)
				cluster = row.Cluster
			}
		}
		if cluster == "" {
			return "", nil
		}
		return cluster + "/" + found.Agreed(), nil
	}
	return mysql.Marker{Key: markerKey{c.Layout, c.Cluster}, Read: read}
}
