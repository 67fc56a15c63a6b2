package main

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/assign"
)

// Two sites have the same cluster id and etcd, as when a staging config is a copy of production's with other databases.
func TestTheCommandsTellTwoClustersWithOneIDApart(t *testing.T) {
	t.Parallel()
	production, staging := newSite(t), bareSite(t)
	staging.write("tocsin.yaml", strings.Replace(staging.yaml(staging.layout, staging.dsn()), "cluster: "+staging.prefix, "cluster: "+production.prefix, 1))
	staging.run("cluster", "adopt").refused(t, exitFailed, "run `tocsin ddl apply`")
	staging.applyDDL()
	production.run("cluster", "adopt").says(t, "etcd knows the cluster by "+production.prefix+"_0 to "+production.prefix+"_1 on db1 (identity ", "before: nothing")
	production.run("cluster", "adopt").says(t, "already")
	production.run("cluster", "nodes").says(t, noNodes)
	if d := decodeText[examined](t, production.run("doctor", "--json").stdout); strings.Contains(d.failures(), "etcd") {
		t.Errorf("doctor of production: %s", d.failures())
	}

	foreign := []string{"etcd knows the cluster by other databases", production.prefix + "_0", staging.prefix + "_0", "give one of the two clusters another id"}
	staging.run("cluster", "nodes").refused(t, exitFailed, foreign...)
	if r := staging.run("serve", "--listen", "off"); r.code != exitFailed || !strings.Contains(r.stderr, "tocsin: group: "+foreign[0]+`: "`+production.prefix) {
		t.Errorf("exit code %d, stderr %s", r.code, r.stderr)
	}
	if d := decodeText[examined](t, staging.run("doctor", "--json").stdout); !strings.Contains(d.failures(), "etcd: identity") {
		t.Errorf("doctor of staging: %s", d.failures())
	}

	was := decode[adopted](t, staging.run("cluster", "adopt", "--json"))
	if was.Before.ID == "" || was.Now.ID == "" || was.Before.ID == was.Now.ID || !strings.HasPrefix(was.Now.Databases, staging.prefix) {
		t.Errorf("adopted %+v", was)
	}
	production.run("cluster", "nodes").refused(t, exitFailed, "etcd knows the cluster by other databases")
	production.run("cluster", "adopt").ok(t)
	production.nodeIn(assign.Identity{ID: was.Before.ID, Databases: "toc_0 on db1"}, "orders", "host-a")
	staging.run("cluster", "adopt").refused(t, exitFailed, "nodes with other databases are registered: stop host-a-", "toc_0 on db1")
}

// nodeIn registers a node whose databases have an identity.
func (s *site) nodeIn(i assign.Identity, group, name string) string {
	s.t.Helper()
	s.identity = i
	return s.node(group, name, s.layout.Total())
}
