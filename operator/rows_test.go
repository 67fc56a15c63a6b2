package operator_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator"
)

// attended is a cluster of two servers whose tables nobody owns, with a node that writes into both, and a view of it. The second
// server is reached through the proxy.
func attended(t *testing.T) (operator.View, *devtest.Proxy) {
	t.Helper()
	proxy, second := devtest.NewProxy(t, devtest.DSN(t))
	layout := tocsin.Layout{Databases: 2, Tables: 1, Prefix: devtest.Prefix(t)}
	cfg := tocsin.Config{Layout: layout, Cluster: layout.Prefix, Servers: []tocsin.Server{
		{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}}, {Name: "db2", DSN: second, Databases: []int{1}},
	}}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: cfg.Cluster, Ownership: node.ByRows}); err != nil {
		t.Fatal(err)
	}
	if _, err := biztype.Apply(t.Context(), cfg, []biztype.Policy{{Name: closing.Name(), Number: 1, Group: "orders"}}); err != nil {
		t.Fatal(err)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(node.Report{Node: "n-1", Group: "orders", Lanes: []dispatcher.LaneReport{{BizType: closing.Name(), Limit: 4}}})
	}))
	t.Cleanup(page.Close)
	about := `{"types": ["order.close"], "lacks": {}, "weight": 1, "listen": "` + strings.TrimPrefix(page.URL, "http://") + `"}`
	db, err := store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for database := range cfg.Layout.Databases {
		attend(t, db, database, about)
	}
	return operator.View{Tables: cfg, ByRows: true, Grace: time.Minute, Pages: operator.Asker{Client: page.Client(), Scheme: "http"}}, proxy
}

// sessionOf is the id of the node's session in a database.
func sessionOf(database int) string { return fmt.Sprint("aaaaaaaaaaa", database) }

// attend opens a session of node n-1 in a database.
func attend(t *testing.T, db *store.Store, database int, about string) {
	t.Helper()
	one := store.Session{Database: database, ID: sessionOf(database), Group: "orders", Node: "n-1", Incarnation: "aaaaaaaaaaaa", Seat: true, Schema: 3}
	one.AboutNo, one.About = 1, about
	if err := db.OpenSession(t.Context(), one); err != nil {
		t.Fatal(err)
	}
}

// Each node has a session in every database, so what the other servers say of the nodes is shown while one is away.
func TestAServerThatIsAwayHidesNoNodes(t *testing.T) {
	t.Parallel()
	v, proxy := attended(t)
	client, err := tocsin.Open(t.Context(), v.Tables)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	bizID := uint64(1)
	for client.Layout().TableOf(bizID) != 0 {
		bizID++
	}
	added, err := client.Add(t.Context(), closing.New(bizID, "", tocsin.In(0)))
	if err != nil {
		t.Fatal(err)
	}
	proxy.SetDown(true)
	answer, err := v.Why(t.Context(), added.JobID, nil, nil)
	if err != nil || answer.Owner != "n-1" || len(answer.Unasked) != 1 || !strings.HasPrefix(answer.Unasked[0], "the session tables: ") {
		t.Errorf("why: %+v, %v", answer, err)
	}
	tables, err := v.Owned(t.Context(), "", false)
	if err == nil || !strings.Contains(err.Error(), "db2") || len(tables) != 1 || tables[0].Owned != 1 || !slices.Equal(tables[0].Owners, []string{"n-1", ""}) {
		t.Errorf("tables: %+v, %v", tables, err)
	}
	lanes, err := v.Lanes(t.Context(), "orders", closing.Name())
	if err == nil || len(lanes) != 1 || lanes[0].Lane == nil || lanes[0].Lane.Limit != 4 {
		t.Errorf("lanes: %+v, %v", lanes, err)
	}
	checks, err := v.Examine(t.Context(), operator.Examination{})
	if err != nil || !slices.ContainsFunc(checks, func(c operator.Check) bool { return c.Name == "delivered" && c.Level == operator.OK }) {
		t.Errorf("doctor: %+v, %v", checks, err)
	}
	db, err := store.Open(v.Tables)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.TellSession(t.Context(), 0, sessionOf(0), store.SessionState{AboutNo: 2, About: `{"lacks": {"order.close": "no handler"}}`}); err != nil {
		t.Fatal(err)
	}
	if answer, err = v.Why(t.Context(), added.JobID, nil, nil); err != nil || answer.State != operator.StateNoHandler {
		t.Errorf("why, without a handler: %+v, %v", answer, err)
	}
	if err := db.CloseSession(t.Context(), 0, sessionOf(0)); err != nil {
		t.Fatal(err)
	}
	if answer, err = v.Why(t.Context(), added.JobID, nil, nil); err != nil || answer.State != operator.StateNoOwner {
		t.Errorf("why, without a node: %+v, %v", answer, err)
	}
}

// While a server and a node's page are away, an overview names both, and shows what is overdue on the other server.
func TestAnOverviewNamesWhatIsAway(t *testing.T) {
	t.Parallel()
	v, proxy := attended(t)
	db, err := sql.Open("mysql", devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	table := v.Tables.Layout.Table(0)
	if _, err := db.ExecContext(t.Context(), "INSERT INTO "+table+" (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)"+
		" VALUES (1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 1, 1, 0, UTC_TIMESTAMP(3) - INTERVAL 200 SECOND, UTC_TIMESTAMP(3), '')"); err != nil {
		t.Fatal(err)
	}
	proxy.SetDown(true)
	s := operator.NewSampler(v)
	defer s.Close()
	var now operator.Overview
	for ok := false; !ok; time.Sleep(10 * time.Millisecond) {
		if now, err = s.Overview(t.Context()); err != nil {
			t.Fatal(err)
		}
		ok = !now.Servers[0].Measured.IsZero() && now.Servers[1].Err != nil && len(now.Types) == 1 && now.Types[0].Overdue != nil
	}
	if late := now.Types[0]; *late.Overdue != 1 || !late.AtLeast || late.Age < 200 || late.State != operator.Unknown || late.Measured.IsZero() {
		t.Errorf("%+v", late)
	}
	var told []string
	for _, trouble := range now.Troubles(nil) {
		told = append(told, trouble.Section)
	}
	if !slices.Equal(told, []string{"TocsinServerDown", "TocsinNodeOutOfOrder", "TocsinNoMetrics", "TocsinTaskOverdue"}) {
		t.Errorf("%v of %+v", told, now.Troubles(nil))
	}
}
