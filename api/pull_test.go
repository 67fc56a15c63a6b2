package api_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/tocsintest"
)

var pick = tocsin.Define[string]("order.pick")

// patient is for a machine that has other things to do as well.
const patient = time.Minute

// pulling is an API of a node, with a token of scope work for order.*.
func pulling(t *testing.T, change func(*api.Config)) *served {
	t.Helper()
	c := tocsintest.StartWith(t,
		biztype.Policy{Name: pick.Name(), Number: 1, Group: tocsintest.Group, Pull: &biztype.Pull{Lease: biztype.Duration(time.Minute)}, History: true},
		biztype.Policy{Name: "coupon.print", Number: 2, Group: tocsintest.Group, Pull: &biztype.Pull{}},
		biztype.Policy{Name: closing.Name(), Number: 3},
		biztype.Policy{Name: "order.far", Number: 4, Group: "far", Pull: &biztype.Pull{}})
	if _, err := ddl.SetOwnership(t.Context(), c.Config, node.ByRows, false); err != nil {
		t.Fatal(err)
	}
	n, err := node.New(node.Config{Tables: c.Config, Ownership: node.ByRows, Group: tocsintest.Group, Name: "pull"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	work, token, err := apitoken.New(apitoken.Token{Name: "work", Scope: apitoken.Work, BizTypes: []string{"order.*"}})
	if err != nil {
		t.Fatal(err)
	}
	s := over(t, c, func(cfg *api.Config) {
		set, err := apitoken.NewSet([]apitoken.Token{token})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Pull, cfg.Tokens = n.Pull(), func() apitoken.Set { return set }
		if change != nil {
			change(cfg)
		}
	})
	s.tokens = map[string]string{"work": work}
	for end := time.Now().Add(patient); s.do(post("/pull:extend", `{"leases":["1.0.00000000000000000000000000"]}`).by("work")).status == http.StatusServiceUnavailable; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the node does not run")
		}
	}
	return s
}

// reserve asks until there are n tasks.
func (s *served) reserve(n int) (tasks []api.ReservedTask) {
	s.t.Helper()
	for end := time.Now().Add(patient); len(tasks) < n; {
		body := fmt.Sprintf(`{"biz_types":["order.pick"],"max":%d,"wait_ms":2000,"worker":"w-1"}`, n-len(tasks))
		tasks = append(tasks, want[api.Reserved](s, http.StatusOK, post("/pull:reserve", body).by("work")).Tasks...)
		if time.Now().After(end) {
			s.t.Fatalf("%d of %d tasks", len(tasks), n)
		}
	}
	return tasks
}

// settle ends leases, and returns the results.
func (s *served) settle(items ...string) (results []string) {
	s.t.Helper()
	for _, r := range want[api.Settled](s, http.StatusOK, post("/pull:settle", `{"settle":[`+strings.Join(items, ",")+`]}`).by("work")).Results {
		if r.Problem != nil {
			r.Result = r.Problem.Code
		}
		results = append(results, r.Result)
	}
	return results
}

func end(lease, do string) string { return fmt.Sprintf(`{"lease":%q,"do":%q}`, lease, do) }

func TestWorkersTakeAndSettleTasksOverHTTP(t *testing.T) {
	t.Parallel()
	s := pulling(t, nil)
	for i := range uint64(3) {
		s.add(pick.New(i+1, "p", tocsin.In(0)))
	}
	other := s.add(closing.New(9, "", tocsin.In(time.Hour)))
	tasks := s.reserve(3)
	a, b, c := tasks[0].Lease, tasks[1].Lease, tasks[2].Lease
	forged := other + ".0." + a[strings.LastIndex(a, ".")+1:]
	got := s.settle(end(a, "complete"), end(b, "bury"), end(c, "release"), end(a, "complete"), end(b, "complete"), end(forged, "complete"), end("1"+a, "retry"))
	if want := []string{"done", "done", "done", "already", "done", "lost", "lost"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	many := make([]string, 500)
	for i := range many {
		many[i] = fmt.Sprintf(`{"lease":"%d.0.00000000000000000000000000","do":"retry","delay_ms":5,"output":"o","error":"e"}`, i+1)
	}
	if got := s.settle(many...); len(got) != len(many) {
		t.Errorf("%d results of %d", len(got), len(many))
	}
	again := s.reserve(1)[0]
	if again.JobID != tasks[2].JobID || again.Attempts != 0 || again.Lease == c {
		t.Errorf("%+v", again)
	}
	extended := want[api.Extended](s, http.StatusOK, post("/pull:extend", fmt.Sprintf(`{"leases":[%q,%q,%q]}`, c, again.Lease, a)).by("work"))
	for i, want := range []string{"lost", "ok", "lost"} {
		if extended.Results[i].Result != want {
			t.Errorf("extend: %+v, want %s", extended.Results[i], want)
		}
	}
	for body, status := range map[string]int{
		`{"biz_types":[]}`: 422, `{"biz_types":null}`: 422, `{}`: 422, `{"biz_types":["order.pick","order.pick"]}`: 422, `{"biz_types":["order.pick"],"max":101}`: 422,
		`{"biz_types":["order.pick"],"max":-1}`: 422, `{"biz_types":["order.pick"],"wait_ms":25001}`: 422, `{"biz_types":["coupon.print"]}`: 404, `{"biz_types":["order.none"]}`: 404,
		`{"biz_types":["order.close"]}`: 422, `{"biz_types":["order.far"]}`: 422,
	} {
		if got := s.do(post("/pull:reserve", body).by("work")); got.status != status {
			t.Errorf("%s: %d, want %d: %s", body, got.status, status, got.text)
		}
	}
	for _, lease := range []string{"", "1.0.", "1.0." + strings.Repeat(`\n`, 26), strings.Repeat(".", 90), strings.Repeat("x", 101)} {
		for _, r := range []request{post("/pull:settle", `{"settle":[{"do":"complete","lease":"`+lease+`"}]}`), post("/pull:extend", `{"leases":["`+lease+`"]}`)} {
			if got := s.do(r.by("work")); got.status != http.StatusUnprocessableEntity {
				t.Errorf("%s %q: %d %s", r.path, lease, got.status, got.text)
			}
		}
	}
}

func TestATokenOfScopeWorkDoesNothingElse(t *testing.T) {
	t.Parallel()
	s := pulling(t, nil)
	doc, err := openapi3.NewLoader().LoadFromFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	for path, of := range doc.Paths.Map() {
		for method := range of.Operations() {
			r := request{method: method, path: strings.NewReplacer("{", "", "}", "").Replace(path), as: "work"}
			if method != http.MethodGet {
				r.body = "{}"
			}
			if got := s.do(r); (got.status == http.StatusForbidden) == strings.HasPrefix(path, "/v1/pull") {
				t.Errorf("%s %s: %d %s", method, path, got.status, got.text)
			}
		}
	}
}

func TestWorkersAreNotCountedInTheRateOfTheirToken(t *testing.T) {
	t.Parallel()
	s := pulling(t, func(c *api.Config) { c.Rate = .001 })
	for range 5 {
		if got := s.do(post("/pull:settle", `{"settle":[]}`).by("work")); got.status != http.StatusUnprocessableEntity {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
	if got := s.do(get("/pull/nodes").by("work")); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.text)
	}
	if got := s.do(get("/pull/nodes").by("work")); got.status != http.StatusTooManyRequests {
		t.Errorf("%d %s", got.status, got.text)
	}
}

func TestAWorkerMayWaitForLongerThanTheTimeoutOfTheAPI(t *testing.T) {
	t.Parallel()
	s := pulling(t, func(c *api.Config) { c.Timeout = time.Second })
	body := `{"biz_types":["order.pick"],"wait_ms":3000}`
	if got := s.do(post("/pull:reserve", body).by("work")); got.status != http.StatusOK || got.text != `{"tasks":[]}`+"\n" {
		t.Errorf("%d %s", got.status, got.text)
	}
}

func TestARowThatIsHeldFailsNoOtherLease(t *testing.T) {
	t.Parallel()
	s := pulling(t, nil)
	for i := range uint64(20) {
		s.add(pick.New(i+1, "p", tocsin.In(0)))
	}
	tasks := s.reserve(20)
	id, err := tocsin.ParseJobID(string(tasks[3].JobID))
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback()
	if _, err := held.Exec("SELECT 1 FROM "+s.Config.Layout.Table(id.Table())+" WHERE job_id = ? FOR UPDATE", uint64(id)); err != nil {
		t.Fatal(err)
	}
	var leases, items []string
	for _, task := range tasks {
		leases, items = append(leases, fmt.Sprintf("%q", task.Lease)), append(items, end(task.Lease, "complete"))
	}
	for i, r := range want[api.Extended](s, http.StatusOK, post("/pull:extend", `{"leases":[`+strings.Join(leases, ",")+`]}`).by("work")).Results {
		if (r.Problem != nil) != (i == 3) || i != 3 && r.Result != "ok" {
			t.Errorf("extend %d: %+v", i, r)
		}
	}
	for i, got := range s.settle(items...) {
		if (got == "done") != (i != 3) {
			t.Errorf("settle %d: %s", i, got)
		}
	}
	_ = held.Rollback()
	if got := s.settle(items[3]); got[0] != "done" {
		t.Error(got)
	}
}

// dial sends a reserve request over a connection of its own.
func (s *served) dial(body string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "POST /v1/pull:reserve HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", s.tokens["work"], len(body), body)
	return conn
}

func TestAWorkerThatGoesWhileItWaitsTakesNothing(t *testing.T) {
	t.Parallel()
	s := pulling(t, nil)
	for range 30 {
		_ = s.dial(`{"biz_types":["order.pick"],"max":1}`).Close()
	}
	id := s.add(pick.New(1, "p", tocsin.In(0)))
	if task := s.reserve(1)[0]; string(task.JobID) != id || task.Attempts != 0 {
		t.Errorf("%+v", task)
	}
	if text := s.log.String(); strings.Contains(text, "reserve_tasks") {
		t.Error(text)
	}
}

// broken is an answer that can't be written.
type broken struct{ header http.Header }

func (b broken) Header() http.Header           { return b.header }
func (broken) WriteHeader(int)                 {}
func (broken) Write([]byte) (int, error)       { return 0, errors.New("the connection is broken") }
func (broken) SetReadDeadline(time.Time) error { return nil }

func TestTasksWhoseAnswerCannotBeWrittenAreDueAgainAtOnce(t *testing.T) {
	t.Parallel()
	s := pulling(t, nil)
	s.add(pick.New(1, "p", tocsin.In(0)))
	first := s.reserve(1)[0]
	s.settle(end(first.Lease, "release"))
	for end := time.Now().Add(patient); ; {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/pull:reserve", strings.NewReader(`{"biz_types":["order.pick"]}`))
		if err != nil || time.Now().After(end) {
			t.Fatal("it never got the task", err)
		}
		r.Header.Set("Authorization", "Bearer "+s.tokens["work"])
		r.Header.Set("Content-Type", "application/json")
		w := broken{http.Header{}}
		s.api.ServeHTTP(w, r)
		if strings.Contains(s.log.String(), "panic") {
			break
		}
	}
	if task := s.reserve(1)[0]; task.JobID != first.JobID || task.Attempts != 0 {
		t.Errorf("%+v", task)
	}
}
