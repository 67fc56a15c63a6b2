package config

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

const wholeFile = `cluster: shop
layout: {databases: 2, tables: 4, ownership: %s}
servers:
  - {name: db1, dsn: "toc@tcp(127.0.0.1:3306)/"}
outboxes:
  - {name: shop, dsn: "relay@tcp(127.0.0.1:3307)/", table: shop.tocsin_outbox}
etcd: {endpoints: ["127.0.0.1:2379"], username: toc}
node: {name: n1, weight: 3, payload_mib: 2, drain_timeout: 7s, listen: "127.0.0.1:1"}
scan: {interval: 1s, look_ahead: 9s}
sweep: {grace: 11s, timeout: 13s}
`

func TestNodeConfigHasAllThatTheFileSaysOfANode(t *testing.T) {
	t.Parallel()
	for _, ownership := range []string{node.ByEtcd, node.ByRows} {
		f := parsed(t, fmt.Appendf(nil, wholeFile, ownership))
		got, err := f.NodeConfig()
		if err != nil {
			t.Fatal(err)
		}
		if got.Tables.Cluster != "shop" || len(got.Tables.Servers) != 1 || got.Ownership != ownership || len(got.Outboxes) != 1 ||
			got.Outboxes[0].Name != "shop" || got.Name != "n1" || got.Weight != 3 || got.PayloadBytes != 2<<20 || got.DrainTimeout != 7*time.Second ||
			got.Listen != "" || got.ScanInterval != time.Second || got.LookAhead != 9*time.Second ||
			got.SweepGrace != 11*time.Second || got.SweepTimeout != 13*time.Second {
			t.Errorf("%s: %+v", ownership, got)
		}
		if asked := slices.Equal(got.Etcd.Endpoints, []string{"127.0.0.1:2379"}); asked != (ownership == node.ByEtcd) {
			t.Errorf("%s: etcd at %v", ownership, got.Etcd.Endpoints)
		}
		got.Group = "orders"
		if _, err := node.New(got, nil); err != nil {
			t.Errorf("%s: %v", ownership, err)
		}
	}
}

func TestMain(m *testing.M) { devtest.Main(m) }
