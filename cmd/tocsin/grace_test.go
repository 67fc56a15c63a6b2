package main

import (
	"strings"
	"testing"
)

// Nodes claim what is nearly as late as the grace, so a sweep with a shorter one would deliver beside them.
func TestAProcessWithAnotherGraceOfSweepsIsRefused(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	s.write("twenty.yaml", s.text("tocsin.yaml")+"sweep: {grace: 20s}\n")
	differs := []string{"grace of sweeps of this process is 20s, that of", "is 1m0s", "sweep.grace", "tocsin ddl grace 20s"}
	n := s.serve("one")
	s.ownedBy(map[string]int{"one": s.layout.Total()})
	s.fill(20, 0)
	s.waitFor("all tasks are done", func() bool { return s.notDone() == 0 })

	for _, args := range [][]string{
		{"sweep", "--config", "twenty.yaml"}, {"sweep", "--grace", "20s"}, {"sweep", "--cron", "@every 1s", "--config", "twenty.yaml"},
		{"serve", "--listen", "off", "--config", "twenty.yaml"},
	} {
		s.run(args...).refused(t, exitFailed, differs...)
	}
	withAPI := s.run("serve", "--listen", "off", "--api", "127.0.0.1:0", "--config", "twenty.yaml") // it logs that the API listens, and ends all the same
	if withAPI.code != exitFailed || !strings.Contains(withAPI.stderr, differs[0]) {
		t.Errorf("serve with the API: exit code %d\n%s", withAPI.code, withAPI.stderr)
	}
	s.run("ddl", "apply", "--config", "twenty.yaml").refused(t, exitFailed, "sweep.grace of the config is 20s", "is 1m0s", "tocsin ddl grace 20s")
	if r := s.run("doctor", "--config", "twenty.yaml"); r.code != exitFailed || !strings.Contains(r.stdout, differs[0]) {
		t.Errorf("doctor: exit code %d\n%s", r.code, r.stdout)
	}
	s.run("sweep").says(t, "0 overdue")
	s.run("sweep", "--grace", "20s", "--dry-run").says(t, "0 overdue")

	s.run("sweep", "--grace", "0s").refused(t, exitFailed, "would deliver beside live nodes", "node one-", "--force")
	s.run("sweep", "--grace", "0s", "--cron", "@every 1s").refused(t, exitUsage, "nodes that start later", "--once")
	s.run("ddl", "grace", "20s").refused(t, exitFailed, "node one-", "stop all nodes")
	s.run("ddl", "grace", "soon").refused(t, exitUsage, `grace "soon": want 1s to 24h0m0s`)
	n.end(t)

	s.fill(20, 0)
	s.run("sweep", "--grace", "0s").says(t, "20 overdue, 20 delivered")
	s.write("alone.yaml", s.yaml(s.layout, s.dsn())[:strings.Index(s.yaml(s.layout, s.dsn()), "etcd:")])
	s.run("sweep", "--grace", "0s", "--config", "alone.yaml").refused(t, exitFailed, "no etcd to ask", "--force")
	s.run("sweep", "--grace", "0s", "--config", "alone.yaml", "--force").says(t, "0 overdue")

	s.run("ddl", "grace", "20s").says(t, "grace of sweeps is 20s: 2 databases were changed", "sweep.grace: 20s")
	s.run("ddl", "grace", "20s").says(t, "grace of sweeps is 20s already")
	s.run("ddl", "verify").ok(t)
	s.run("serve", "--listen", "off").refused(t, exitFailed, "grace of sweeps of this process is 1m0s", "is 20s")
	s.run("sweep").refused(t, exitFailed, "grace of sweeps of this process is 1m0s", "is 20s")
	s.serve("two", "--config", "twenty.yaml")
	s.ownedBy(map[string]int{"two": s.layout.Total()})
	s.fill(20, 0)
	s.waitFor("all tasks are done", func() bool { return s.notDone() == 0 })
	s.run("sweep", "--config", "twenty.yaml").says(t, "0 overdue")
	if seen, again, _ := c.counts(); seen != 60 || again != 0 {
		t.Errorf("%d tasks were delivered, %d of them more than once", seen, again)
	}
}
