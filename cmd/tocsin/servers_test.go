package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// halfDown gives a site whose database 1 is on a server that is down.
func halfDown(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.write("tocsin.yaml", strings.Replace(s.yaml(s.layout, devtest.DSN(t)), "etcd:", "    databases: [0]\n"+
		"  - name: db2\n    dsn: toc:hunter2@tcp(127.0.0.1:1)/\n    databases: [1]\netcd:", 1))
	return s
}

// bizIDIn gives a biz_id whose tasks are in the database.
func (s *site) bizIDIn(database int) string {
	for n := uint64(1); ; n++ {
		if s.layout.DatabaseOf(s.layout.TableOf(n)) == database {
			return fmt.Sprint(n)
		}
	}
}

func TestWithOneServerDownTheOtherStillServes(t *testing.T) {
	t.Parallel()
	s := halfDown(t)
	add := func(database int) result {
		return s.run("task", "add", "--type", "order.close", "--in", "1h", "--biz-id", s.bizIDIn(database))
	}
	add(0).says(t, "pending")
	add(1).refused(t, exitFailed, "db2", "unreachable", "refused")
	s.run("task", "list", "--biz-id", s.bizIDIn(0)).says(t, "pending")
	s.run("biz", "list").says(t, "order.close")
	if n := s.rows(); n != 1 {
		t.Errorf("%d tasks are stored, want 1", n)
	}
}

func TestBizApplyWritesTheServersThatAnswerAndNamesTheOther(t *testing.T) {
	t.Parallel()
	s := halfDown(t)
	s.write("biz.yaml", strings.Replace(bizYAML, "attempts: 3", "attempts: 5", 1))
	r := s.run("biz", "apply", "biz.yaml", "--json")
	r.refused(t, exitFailed, "db2", "refused")
	if got := decodeText[appliedBiz](t, r.stdout); got.Databases != 1 {
		t.Errorf("got %+v", got)
	}
	if strings.Contains(r.stderr, "hunter2") {
		t.Errorf("tells the password: %s", r.stderr)
	}
	s.run("biz", "show", "order.close").says(t, "attempts: 5")
}
