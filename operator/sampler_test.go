package operator

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/upkeep"
)

// sampled is a cluster with a node whose page counts its requests.
type sampled struct {
	t     *testing.T
	view  View
	db    *sql.DB
	asked atomic.Int64 // the page
}

func newSampled(t *testing.T, dsn string, tables int) *sampled {
	t.Helper()
	cfg := tocsin.Config{
		Layout: tocsin.Layout{Databases: 2, Tables: tables, Prefix: devtest.Prefix(t)}, Cluster: "sampled", Servers: []tocsin.Server{{Name: "db1", DSN: dsn}},
	}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: cfg.Cluster, Ownership: node.ByRows}); err != nil {
		t.Fatal(err)
	}
	if _, err := biztype.Apply(t.Context(), cfg, []biztype.Policy{{Name: "order.close", Number: 1, Group: "orders"}}); err != nil {
		t.Fatal(err)
	}
	s := &sampled{t: t}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.asked.Add(1)
		fmt.Fprint(w, "# TYPE tocsin_node_mode gauge\ntocsin_node_mode{mode=\"rows\"} 1\n# TYPE tocsin_dispatcher_lane_limit gauge\ntocsin_dispatcher_lane_limit{biz_type=\"order.close\"} 64\n")
	}))
	t.Cleanup(page.Close)
	s.view = View{Tables: cfg, ByRows: true, Pages: Asker{Client: page.Client(), Scheme: "http"}}
	s.attend(page)
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s.db = db
	return s
}

// attend lists the node with a page, instead of the one before.
func (s *sampled) attend(page *httptest.Server) {
	s.t.Helper()
	tables, err := store.Open(s.view.Tables)
	if err != nil {
		s.t.Fatal(err)
	}
	defer tables.Close()
	for database := range s.view.Tables.Layout.Databases {
		one := store.Session{Database: database, ID: fmt.Sprint("aaaaaaaaaaa", database), Group: "orders", Node: "n-1", Incarnation: "aaaaaaaaaaaa", Seat: true, Schema: 3}
		one.AboutNo, one.About = 1, `{"types": ["order.close"], "listen": "`+strings.TrimPrefix(page.URL, "http://")+`"}`
		if err := errors.Join(tables.CloseSession(s.t.Context(), database, one.ID), tables.OpenSession(s.t.Context(), one)); err != nil { // of the page before
			s.t.Fatal(err)
		}
	}
}

// statements returns how many the server was sent, without those that ask for it.
func (s *sampled) statements() (n int64) {
	s.t.Helper()
	var name string
	if err := s.db.QueryRow("SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// walked asks until the first walk has ended.
func (s *sampled) walked(from *Sampler) Overview {
	s.t.Helper()
	for {
		o, err := from.Overview(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		if len(o.Types) == 1 && !o.Types[0].Measured.IsZero() {
			return o
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// The server is the test's own, and counts its statements.
func TestAHundredCallersCostWhatOneCosts(t *testing.T) {
	t.Parallel()
	server, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	s := newSampled(t, server.DSN(), 64)
	from := NewSampler(s.view)
	defer from.Close()
	before, began := s.statements(), time.Now()
	if o := s.walked(from); o.Types[0].State != "open" || *o.Types[0].Overdue != 0 || o.Types[0].Limit != 64 || len(o.Nodes) != 1 || o.Nodes[0].Mode != "rows" || len(o.Troubles(nil)) != 0 {
		t.Errorf("%+v, %+v", o, o.Troubles(nil))
	}
	one, looks := s.statements()-before, int64(time.Since(began)/nodesEvery)+1
	if asked := s.asked.Load(); asked > looks {
		t.Errorf("one caller: %d requests in %d looks", asked, looks)
	}
	before, began = s.statements(), time.Now()
	asked := s.asked.Load()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for range 20 {
				if _, err := from.Overview(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	hundred, looks := s.statements()-before, int64(time.Since(began)/nodesEvery)+1
	asked = s.asked.Load() - asked
	t.Logf("one caller: %d statements until the first walk has ended; 100 callers, 2000 calls in %s: %d statements, %d requests", one, time.Since(began), hundred, asked)
	if asked > looks || hundred > one*looks {
		t.Errorf("100 callers: %d statements and %d requests in %d looks, and one caller %d statements in the first", hundred, asked, looks, one)
	}
}

func TestASamplerThatNobodyAsksEnds(t *testing.T) {
	t.Parallel()
	s := newSampled(t, devtest.DSN(t), 2)
	from := NewSampler(s.view)
	from.rest = 0
	for range 2 { // it begins again
		if o, err := from.Overview(t.Context()); err != nil || len(o.Nodes) != 1 {
			t.Errorf("%+v, %v", o, err)
		}
		from.all.Wait()
		from.mu.Lock()
		if from.now != nil {
			t.Error("it goes on")
		}
		from.mu.Unlock()
	}
	if n := s.asked.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
	from.Close()
}

// A biz type without a handler has no lane: the node says otherwise that it lacks it. That is a failure, told once, unless another
// node of the group can deliver it, or does not answer. One that is paused waits for that first.
func TestABizTypeThatANodeLacksIsInTrouble(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE tocsin_node_mode gauge\ntocsin_node_mode{mode=\"rows\"} 1\n# TYPE tocsin_node_biz_type_lacking gauge\ntocsin_node_biz_type_lacking{biz_type=\"order.close\"} 1\n")
	}))
	defer page.Close()
	s := newSampled(t, devtest.DSN(t), 2)
	s.attend(page)
	for paused, want := range map[bool]string{false: "lacking", true: "paused"} {
		if _, err := biztype.Apply(t.Context(), s.view.Tables, []biztype.Policy{{Name: "order.close", Number: 1, Group: "orders", Paused: paused}}); err != nil {
			t.Fatal(err)
		}
		from := NewSampler(s.view)
		o := s.walked(from)
		if troubles := o.Troubles(nil); o.Types[0].State != want || paused != (len(troubles) == 0) || !paused && (troubles[0].Section != "TocsinHandlerMissing" || troubles[0].Level != Fail || len(troubles) != 1) {
			t.Errorf("%s, want %s: %+v", o.Types[0].State, want, troubles)
		}
		from.Close()
	}
}

// The oldest overdue task grows older between two walks.
func TestAnAgeGoesOnBetweenTwoWalks(t *testing.T) {
	t.Parallel()
	now := sampling{policies: []biztype.Policy{{Name: "order.close", Number: 1, Group: "orders"}}}
	walked := map[uint64]upkeep.OverdueTasks{1: {Tasks: 2, Oldest: 3 * time.Minute, Due: time.Now().Add(-3*time.Minute - 40*time.Second)}}
	got := now.types(walked)["order.close"]
	if got.Age != 180 || got.Oldest() < 3*time.Minute+40*time.Second || !strings.HasPrefix(got.waiting().Text, "2 overdue tasks, the oldest for 3m4") {
		t.Errorf("%v, %s, %s", got.Age, got.Oldest(), got.waiting())
	}
}

// Only if all nodes of the group say so, no node can deliver a biz type.
func TestABizTypeThatANodeCanDeliverIsNotAFailure(t *testing.T) {
	t.Parallel()
	lacks, able := sample("a", 0, 0, func(t *typeSample) { t.Lacks, t.Limit = true, 0 }), sample("b", 0, 0)
	silent := nodeSample{Node: "c", Group: "orders", Address: "c:1", Err: errors.New("refused")}
	for want, nodes := range map[Level][]nodeSample{Fail: {lacks}, Warn: {lacks, able}, OK: {}} {
		for _, also := range [][]nodeSample{nil, {silent}} {
			now := sampling{nodes: between(nil, samples(append(also, nodes...)...), at), policies: []biztype.Policy{{Name: "order.close", Group: "orders"}}}
			got := now.types(nil)["order.close"].nobody
			if got != (want == Fail && also == nil) {
				t.Errorf("%v, and silent ones %v: %t", want, also, got)
			}
		}
	}
}

// One sentence tells that no worker asks for a pull type, and none that another node's workers do.
func TestAPullTypeWithoutWorkersIsInTrouble(t *testing.T) {
	t.Parallel()
	unasked := sample("a", 0, 0, func(t *typeSample) { t.Waiters, t.State, t.Limit = new(int), 3, 0 })
	asked := sample("b", 0, 0, func(t *typeSample) { t.Waiters = new(int) })
	for want, c := range map[string]struct {
		nodes  []nodeSample
		paused bool
		age    time.Duration
	}{
		"": {nodes: []nodeSample{unasked, asked}},
		"warn order.close has no worker that asks for its tasks":                                                 {nodes: []nodeSample{unasked}},
		"fail order.close has no worker that asks for its tasks: at least 2 overdue tasks, the oldest for 20m0s": {nodes: []nodeSample{unasked}, age: 20 * time.Minute},
		"warn order.close is paused, with at least 2 overdue tasks, the oldest for 20m0s":                        {nodes: []nodeSample{unasked}, age: 20 * time.Minute, paused: true},
	} {
		now := sampling{nodes: between(nil, samples(c.nodes...), at), policies: []biztype.Policy{{Name: "order.close", Number: 1, Group: "orders", Pull: &biztype.Pull{}, Paused: c.paused}}}
		walked := map[uint64]upkeep.OverdueTasks{}
		if c.age > 0 {
			walked[1] = upkeep.OverdueTasks{Tasks: 2, Oldest: c.age, AtLeast: true, Drain: math.NaN()}
		}
		got := ""
		for _, trouble := range now.types(walked)["order.close"].troubles(0) {
			got += trouble.Level.String() + " " + trouble.Is
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestASamplerThatIsClosedKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	page := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	defer page.Close()
	s := newSampled(t, devtest.DSN(t), 2)
	s.attend(page)
	from := NewSampler(s.view)
	waits := make(chan error)
	go func() {
		_, err := from.Overview(t.Context())
		waits <- err
	}()
	<-asked
	from.Close()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := from.Overview(t.Context()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What is kept of each biz type is bounded, and what was handed out stays as it is.
func TestASamplerKeepsFiveMinutes(t *testing.T) {
	t.Parallel()
	now := &sampling{}
	now.note(Activity{Types: []TypeActivity{{Name: "order.close"}}}) // the first look has no rates
	var first []Sample
	for i := range 3 * samplesKept {
		late := float64(i)
		now.note(Activity{Seconds: 5, Types: []TypeActivity{{Name: "order.close", Rates: Rates{Delivered: late, Failed: 1}, Late99: &late}}})
		if i == samplesKept-1 {
			first = now.past["order.close"]
		}
	}
	past := now.past["order.close"]
	if len(past) != samplesKept || past[0].Delivered != 2*samplesKept || *past[samplesKept-1].Late99 != 3*samplesKept-1 || past[0].Failed != 1 {
		t.Errorf("%d samples, from %+v on", len(past), past[0])
	}
	if len(first) != samplesKept || first[0].Delivered != 0 || first[samplesKept-1].Delivered != samplesKept-1 {
		t.Errorf("what was handed out has changed: %+v", first[0])
	}
	if now.note(Activity{Seconds: 5}); len(now.past) != 0 {
		t.Errorf("biz types that no node delivers stay: %d", len(now.past))
	}
}
