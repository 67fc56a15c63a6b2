package main

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

// ownEtcd is one site's own etcd, which can be wiped.
type ownEtcd struct {
	*devserver.Etcd
	s   *site
	cfg devserver.EtcdConfig
}

// ownEtcd starts an etcd and names it in the site's config.
func (s *site) ownEtcd() *ownEtcd {
	s.t.Helper()
	e := &ownEtcd{s: s}
	e.start()
	_, port, _ := net.SplitHostPort(e.Endpoint())
	e.cfg.ClientPort, _ = strconv.Atoi(port)
	s.write("tocsin.yaml", strings.Replace(s.yaml(s.layout, s.dsn()), devtest.Etcd(s.t), e.Endpoint(), 1))
	return e
}

func (e *ownEtcd) start() {
	e.s.t.Helper()
	var err error
	if e.Etcd, err = devserver.StartEtcd(e.s.t.Context(), e.cfg); err != nil {
		e.s.t.Fatal(err)
	}
	e.s.t.Cleanup(func() { _ = e.Stop() })
}

// wipe replaces the etcd by an empty one.
func (e *ownEtcd) wipe() {
	e.s.t.Helper()
	if err := e.Stop(); err != nil {
		e.s.t.Fatal(err)
	}
	e.start()
}

// lastOwners reads the nodes that the owner rows name, by name without incarnation.
func (s *site) lastOwners() (names []string) {
	s.t.Helper()
	for db := range s.layout.Databases {
		rows, err := s.db.Query("SELECT node FROM " + s.layout.Database(db) + ".owner WHERE group_name = 'callback'")
		if err != nil {
			s.t.Fatal(err)
		}
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				s.t.Fatal(err)
			}
			names = append(names, id[:strings.LastIndex(id, "-")])
		}
		if err := rows.Err(); err != nil {
			s.t.Fatal(err)
		}
	}
	return names
}

// A node is cut off from etcd and goes on in claim mode, etcd is wiped, and another node takes the tables. When etcd is
// away next, the other node's claims count and the first one's don't.
func TestAfterEtcdWasWipedTheNewOwnerIsTheOneWhoClaims(t *testing.T) {
	t.Parallel()
	const tasks = 40
	s, c := callbackSite(t)
	etcd := s.ownEtcd()
	way, oldPage := cutOffFrom(s, "old", etcd.Endpoint())
	s.ownedBy(map[string]int{"old": 8})
	way.Cut()
	s.waitFor("the old node is in claim mode", func() bool { return s.mode(oldPage) == "claim" })
	etcd.wipe()
	page := devtest.FreeAddress()
	s.serve("new", "--listen", page)
	s.ownedBy(map[string]int{"new": 8})
	s.waitFor("the owner rows name the new node", func() bool { return slices.Equal(s.lastOwners(), slices.Repeat([]string{"new"}, 8)) })
	if err := etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	s.waitFor("the new node is in claim mode", func() bool { return s.mode(page) == "claim" })
	s.fill(tasks, 0)
	s.waitFor("all are done", func() bool { return s.notDone() == 0 })
	if seen, again, early := c.counts(); seen != tasks || again+early != 0 {
		t.Errorf("%d of %d tasks seen, %d more than once, %d early", seen, tasks, again, early)
	}
	for db := range s.layout.Databases {
		for table := range s.layout.Tables {
			name := s.layout.Table(db*s.layout.Tables + table)
			var others int
			if err := s.db.QueryRow("SELECT COUNT(*) FROM " + name + " WHERE claimed_by NOT LIKE 'new-%'").Scan(&others); err != nil || others != 0 {
				t.Errorf("%s: %d tasks are claimed by another than the new node, %v", name, others, err)
			}
		}
	}
}

// mode reads a node's mode from its status page; "" if it does not answer.
func (s *site) mode(page string) string {
	r, err := s.report(page)
	if err != nil {
		return ""
	}
	return string(r.Mode)
}

// report reads a node's status page.
func (s *site) report(page string) (*node.Report, error) {
	return cluster.Asker{Client: http.DefaultClient, Scheme: "http"}.Ask(s.t.Context(), page)
}

// etcd is lost with all its data under load, and starts empty.
func TestEtcdIsRebuiltFromNothing(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	etcd := s.ownEtcd()
	s.serve("a")
	s.serve("b")
	s.ownedBy(map[string]int{"a": 4, "b": 4})
	l := s.startLoad(s.client())
	s.othersGoOn(c, 40)
	before, _, _ := c.counts()
	lost := time.Now()
	gap := c.longestGap(func() {
		etcd.wipe()
		s.ownedBy(map[string]int{"a": 4, "b": 4})
		s.othersGoOn(c, 40)
	})
	whole := time.Since(lost)
	during, _, _ := c.counts()
	l.end()
	s.waitFor("all are done", func() bool { return s.notDone() == 0 })
	seen, again, early := c.counts()
	added, refused := l.counts()
	t.Logf("etcd was wiped and the tables owned again within %.1f s, in which %d tasks were delivered; the longest time without a delivery was %.2f s; of %d tasks stored %d were delivered, %d more than once, %d early",
		whole.Seconds(), during-before, gap.Seconds(), added, seen, again, early)
	if seen != added || refused != 0 || early != 0 {
		t.Errorf("%d stored, %d refused, %d delivered, %d early", added, refused, seen, early)
	}
	s.run("cluster", "nodes").says(t, "ownership")
}

// longestGap returns the longest time without a new delivery while work runs, to within some milliseconds.
func (c *callbacks) longestGap(work func()) (gap time.Duration) {
	stop, ended := make(chan struct{}), make(chan time.Duration)
	go func() {
		last, since, longest := 0, time.Now(), time.Duration(0)
		for {
			select {
			case <-stop:
				ended <- max(longest, time.Since(since))
				return
			case <-time.After(2 * time.Millisecond):
			}
			if seen, _, _ := c.counts(); seen != last {
				longest = max(longest, time.Since(since))
				last, since = seen, time.Now()
			}
		}
	}()
	work()
	close(stop)
	return <-ended
}
