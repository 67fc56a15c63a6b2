package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestATaskIsExplained(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.add(closing.New(42, "payload", tocsin.In(time.Hour)))
	got := want[api.Explanation](s, http.StatusOK, get("/tasks/"+id+"/why"))
	if got.State != "not_due" || got.Says == "" || got.When == nil || got.Task == nil || got.Task.Payload != "payload" || got.Task.BizType != "order.close" || got.Table == "" {
		t.Errorf("%+v", got)
	}
	for path, status := range map[string]int{"/tasks/1/why": 404, "/tasks/9223372036854775807/why": 404, "/tasks/x/why": 422} {
		got := s.do(get(path))
		if got.status != status {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
		s.isProblem(path, got)
	}
}

func TestNodesAndTablesAreListed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	about := `{"version": "v1", "weight": 1, "types": ["order.close"], "newer_payloads": {"order.close": 3}, "started": "2026-11-22T10:00:00Z"}`
	attend(t, s.Config, "orders", "host-1-4mzkq7ta", about)
	s.add(closing.New(42, "", tocsin.In(time.Hour)))
	nodes := want[api.Nodes](s, http.StatusOK, get("/cluster/nodes?group=orders").by("all"))
	if len(nodes.Groups) != 1 || len(nodes.Groups[0].Nodes) != 1 || nodes.Incomplete {
		t.Fatalf("%+v", nodes)
	}
	if n := nodes.Groups[0].Nodes[0]; n.ID != "host-1-4mzkq7ta" || n.Tables != 8 || n.Version != "v1" || n.LeaseMS <= 0 || n.NewerPayloads["order.close"] != 3 {
		t.Errorf("%+v", n)
	}
	tables := want[api.Tables](s, http.StatusOK, get("/cluster/tables?counts=true").by("all"))
	pending := 0
	for _, g := range tables.Groups {
		for _, share := range g.Shares {
			pending += share.Pending
		}
	}
	if len(tables.Groups) != 2 || pending != 1 || tables.Incomplete {
		t.Errorf("%+v", tables)
	}
}

// One table can't be read: the rest is answered, and the server is named.
func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	layout := s.Client.Layout()
	lost := layout.Table(layout.TableOf(42))
	kept := uint64(43)
	for layout.Table(layout.TableOf(kept)) == lost {
		kept++
	}
	id := s.add(closing.New(kept, "", tocsin.In(time.Hour)))
	if _, err := s.DB.ExecContext(t.Context(), "DROP TABLE "+lost); err != nil {
		t.Fatal(err)
	}
	page := want[api.Tasks](s, http.StatusOK, get("/tasks?status=pending"))
	if len(page.Tasks) != 1 || string(page.Tasks[0].JobID) != id || len(page.Incomplete) != 1 || page.Incomplete[0] != "test" {
		t.Errorf("%+v", page)
	}
	if stats := want[api.Stats](s, http.StatusOK, get("/stats")); len(stats.Incomplete) != 1 {
		t.Errorf("%+v", stats)
	}
	if got := s.do(get("/tasks?status=dead")); got.status != http.StatusServiceUnavailable || got.Code != "unavailable" {
		t.Errorf("%d %s", got.status, got.text)
	}
	if log := s.log.String(); !strings.Contains(log, "an API answer is incomplete") || !strings.Contains(log, lost) {
		t.Errorf("the log does not name %s:\n%s", lost, log)
	}
}

// attend opens a session of a node in each database.
func attend(t *testing.T, cfg tocsin.Config, group, node, about string) {
	t.Helper()
	db, err := store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for database := range cfg.Layout.Databases {
		one := store.Session{Database: database, ID: fmt.Sprint("aaaaaaaaaaa", database), Group: group, Node: node, Incarnation: "aaaaaaaaaaaa", Seat: true, Schema: 3}
		one.AboutNo, one.About = 1, about
		if err := db.OpenSession(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
}
