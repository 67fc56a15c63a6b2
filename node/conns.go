package node

import (
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// A node opens to each server the connections of its store, and beside them one
// that probes tables and one that reads the policies. All of them together are
// what Server.MaxConns says.
const (
	besideStore   = 2
	leastForStore = 2
)

// forStore leaves room in each server's MaxConns for the connections beside the
// store's.
func forStore(cfg tocsin.Config) tocsin.Config {
	cfg.Servers = slices.Clone(cfg.Servers)
	for i := range cfg.Servers {
		most := cfg.Servers[i].MaxConns
		if most <= 0 {
			most = mysql.DefaultMaxConns
		}
		cfg.Servers[i].MaxConns = max(most-besideStore, leastForStore)
	}
	return cfg
}
