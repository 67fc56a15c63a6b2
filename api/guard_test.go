package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/tocsintest"
)

func TestAnAPIWithoutTokensIsForProgramsOfThisHost(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.Tokens = nil; c.Origins = []string{"https://admin.example.com"} })
	add := post("/tasks", task(`"payload": ""`)).by("-")
	for name, b := range map[string]struct {
		request
		status int
		code   string
	}{
		"curl":                        {add, 201, ""},
		"localhost":                   {with(add, "Host", "localhost:8481"), 201, ""},
		"IPv6":                        {with(add, "Host", "[::1]:8481"), 201, ""},
		"an address of the network":   {with(add, "Host", "10.0.0.7:8481"), 403, "host"},
		"a name that was rebound":     {with(add, "Host", "evil.example.com"), 403, "host"},
		"a name like localhost":       {with(add, "Host", "localhost.evil.example.com:8481"), 403, "host"},
		"a web page":                  {with(add, "Origin", "https://evil.example.com"), 403, "origin"},
		"a sandboxed page":            {with(add, "Origin", "null"), 403, "origin"},
		"an image of a page":          {with(get("/tasks?biz_id=1").by("-"), "Sec-Fetch-Site", "cross-site"), 403, "origin"},
		"a page of another port":      {with(add, "Sec-Fetch-Site", "same-site"), 403, "origin"},
		"a link that somebody opens":  {with(get("/tasks?biz_id=1").by("-"), "Sec-Fetch-Site", "none"), 200, ""},
		"a page of the configuration": {with(add, "Origin", "https://admin.example.com"), 201, ""},
		"a form":                      {with(add, "Content-Type", "text/plain"), 415, "unsupported_media_type"},
	} {
		got := s.do(b.request)
		if got.status != b.status || got.Code != b.code {
			t.Errorf("%s: %d %s", name, got.status, got.text)
		}
		if b.code != "" {
			s.isProblem(name, got)
		}
	}
}

func TestPagesOfConfiguredOriginsMayCall(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.Origins = []string{"https://admin.example.com"} })
	ask := request{as: "-", method: "OPTIONS", path: "/v1/tasks", header: map[string]string{"Origin": "https://admin.example.com", "Access-Control-Request-Method": "POST"}}
	got := s.do(ask)
	if got.status != http.StatusNoContent || got.header.Get("Access-Control-Allow-Origin") != "https://admin.example.com" || !strings.Contains(got.header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("%d %v", got.status, got.header)
	}
	ask.header["Origin"] = "https://evil.example.com"
	if got := s.do(ask); got.status != http.StatusUnauthorized || got.header.Get("Access-Control-Allow-Origin") != "" || got.header.Get("Vary") != "Origin" {
		t.Errorf("%d %v", got.status, got.header)
	}
	if got := s.do(with(get("/tasks?biz_id=1"), "Origin", "https://admin.example.com")); got.status != 200 || got.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("%d %v", got.status, got.header)
	}
	without := over(t, s.Cluster, nil)
	if got := without.do(with(get("/tasks?biz_id=1"), "Origin", "https://admin.example.com")); got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", got.header)
	}
}

func TestATokenHasARate(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s := serve(t, func(c *api.Config) { c.Rate, c.Registerer = 0.5, registry })
	if got := s.do(get("/tasks/1")); got.status != http.StatusNotFound {
		t.Fatalf("%d %s", got.status, got.text)
	}
	got := s.do(get("/tasks/1"))
	if got.status != http.StatusTooManyRequests || got.Code != "rate" || got.header.Get("Retry-After") != "2" {
		t.Errorf("%d %s, retry after %s", got.status, got.text, got.header.Get("Retry-After"))
	}
	s.isProblem("rate", got)
	if measured, _ := values(t, registry); measured["refusals_total{reason=rate}"] != 1 {
		t.Errorf("%v", measured)
	}
	if got := s.do(get("/tasks/1").by("read")); got.status != http.StatusNotFound {
		t.Errorf("another token: %d %s", got.status, got.text)
	}
}

// Each write is a line in the log, with what it was about; one that is refused for its token too, with the token's id.
func TestEachWriteIsALineInTheLog(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	wrong := s.tokens["write"][:len(s.tokens["write"])-1]
	id, foreign := s.add(closing.New(5, "", tocsin.In(time.Hour))), s.add(remind.New(5, "", tocsin.In(time.Hour)))
	for _, r := range []request{
		post("/tasks", `{"biz_type": "order.close", "biz_id": "42", "delay_ms": 9, "dedup_key": "private", "payload": "`+secret+`"}`),
		post("/tasks", `{"biz_type": "coupon.remind", "biz_id": "43", "delay_ms": 9}`),
		post("/tasks/"+id+":cancel", ""),
		post("/tasks/"+id+":bury", "").by("write"),
		post("/tasks:redrive", `{"all": true}`).by("operate"),
		with(post("/tasks/"+id+":cancel", "").by("-"), "Authorization", "Bearer "+wrong),
		post("/tasks/"+id+":cancel", "").by("read"),
		post("/tasks/"+foreign+":cancel", ""),
		get("/tasks/" + id),
		get("/tasks/" + id).by("-"),
	} {
		s.do(r)
	}
	log, tokenID := s.log.String(), strings.Split(wrong, "_")[1]
	for _, want := range []string{
		`token=write .*operation=add_task object="task \d+, order.close of biz_id 42" outcome=added status=201`,
		`token=write .*operation=add_task object="coupon.remind of biz_id 43" outcome=unknown_biz_type status=404`,
		`token=write .*operation=cancel_task object="task ` + id + ` of order.close" outcome=cancelled status=200`,
		`token=write .*operation=bury_task .*outcome=scope status=403`,
		`token=operate .*operation=redrive_tasks object="dead tasks of all biz types of the token" outcome="0 redriven" status=200`,
		`token="" token_id=` + tokenID + ` .*operation=cancel_task object=/v1/tasks/` + id + `:cancel outcome=token status=401`,
		`token=read .*operation=cancel_task object=/v1/tasks/` + id + `:cancel outcome=scope status=403`,
		`token=write .*operation=cancel_task object="task ` + foreign + `" outcome=not_found status=404`,
	} {
		if !regexp.MustCompile(want).MatchString(log) {
			t.Errorf("no line %s in\n%s", want, log)
		}
	}
	if n := strings.Count(log, "API write"); n != 8 || strings.Contains(log, secret) || strings.Contains(log, "private") || strings.Contains(log, wrong) {
		t.Errorf("%d lines:\n%s", n, log)
	}
}

func TestWithoutAServerTheAnswerIsToRepeatTheRequest(t *testing.T) {
	t.Parallel()
	address := devtest.FreeAddress()
	away := &tocsintest.Cluster{Config: tocsin.Config{
		Layout: tocsin.Layout{Databases: 1, Tables: 1}, Servers: []tocsin.Server{{Name: "away", DSN: "root@tcp(" + address + ")/"}},
	}}
	s := over(t, away, nil)
	for _, r := range []request{get("/tasks/1"), get("/tasks?status=dead"), get("/biz-types"), post("/tasks", task(`"payload": "`+secret+`"`)),
		post("/tasks:batch", `{"tasks": [`+task(`"payload": "`+secret+`"`)+`]}`), get("/cluster/nodes").by("all"), get("/stats")} {
		got := s.do(r)
		if got.status != http.StatusServiceUnavailable || got.Code != "unavailable" || got.header.Get("Retry-After") == "" || strings.Contains(got.text, address) {
			t.Errorf("%s: %d %s", r.path, got.status, got.text)
		}
		s.isProblem(r.path, got)
	}
	if !strings.Contains(s.log.String(), "an API request failed") || !strings.Contains(s.log.String(), address) {
		t.Errorf("the log does not say why:\n%s", s.log)
	}
}

func TestARequestEndsAtItsTimeOut(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.Timeout = time.Second })
	_, unlock := s.lock(s.Client.Layout().Table(s.Client.Layout().TableOf(1)))
	defer unlock()
	got := s.do(post("/tasks", task(`"payload": ""`)))
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.text)
	}
	s.isProblem("timeout", got)
}

// A caller that is told to repeat a change would change the task twice.
func TestAStoredChangeOfATaskThatCannotBeReadAgainIsNotOneToRepeat(t *testing.T) {
	t.Parallel()
	c := tocsintest.Start(t, closing)
	proxy, dsn := devtest.NewProxy(t, c.Config.Servers[0].DSN)
	s := over(t, c, func(cfg *api.Config) { cfg.Tables.Servers = []tocsin.Server{{Name: "test", DSN: dsn}} })
	for name, test := range map[string]struct {
		change  string
		body    string
		at      string        // the change, or its commit
		read    string        // what reads the task afterwards
		status  tocsin.Status // before
		version uint32        // afterwards
	}{
		"reschedule": {":reschedule", `{"delay_ms": 7200000}`, devtest.AtCommit, "tocsin get", tocsin.Pending, 1},
		"redrive":    {":redrive", "", "tocsin redrive", "tocsin look", tocsin.Dead, 1},
	} {
		id := s.add(closing.New(1, "", tocsin.In(time.Hour)))
		job, err := tocsin.ParseJobID(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.DB.ExecContext(t.Context(), "UPDATE "+s.Client.Layout().Table(job.Table())+" SET status = ? WHERE job_id = ?", uint8(test.status), uint64(job)); err != nil {
			t.Fatal(err)
		}
		held, release := proxy.HoldAt(test.at)
		answered := make(chan reply, 1)
		go func() { answered <- s.do(post("/tasks/"+id+test.change, test.body).by("operate")) }()
		<-held
		proxy.BreakAt(test.read, true, 100)
		release()
		got := <-answered
		proxy.BreakAt("", true, 0)
		if got.status != http.StatusServiceUnavailable || got.Code != "outcome_unknown" {
			t.Errorf("%s: %d %s", name, got.status, got.text)
		}
		if info, err := s.Client.Get(t.Context(), job); err != nil || info.Status != tocsin.Pending || info.Version != test.version {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
}

func TestAPolicyThatCannotBeReadHidesNoOther(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.add(closing.New(1, "", tocsin.In(time.Hour)))
	for database := range s.Client.Layout().Databases {
		if _, err := s.DB.ExecContext(t.Context(), "UPDATE "+s.Client.Layout().Database(database)+`.biz_type SET policy = '{"attempts": "8"}' WHERE name = 'coupon.remind'`); err != nil {
			t.Fatal(err)
		}
	}
	if b := want[api.BizType](s, http.StatusOK, post("/biz-types/order.close:pause", "").by("operate")); !b.Paused {
		t.Errorf("%+v", b)
	}
	for _, path := range []string{"/biz-types/coupon.remind", "/biz-types/no.such"} {
		if got := s.do(get(path).by("operate")); got.status != http.StatusNotFound { // for this token there is neither
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
	if page := want[api.Tasks](s, http.StatusOK, get("/tasks?status=pending").by("read")); len(page.Tasks) != 1 {
		t.Errorf("%+v", page)
	}
	all := want[api.BizTypes](s, http.StatusOK, get("/biz-types").by("all"))
	if len(all.BizTypes) != 1 || all.BizTypes[0].Name != "order.close" || !all.Incomplete {
		t.Errorf("%+v", all)
	}
	if text := s.log.String(); !strings.Contains(text, "an API answer is incomplete") || !strings.Contains(text, "biz type coupon.remind: policy of revision ") {
		t.Error(text)
	}
}

// serving starts an API that serves a listener until stop is called or the test ends.
func serving(t *testing.T, drain time.Duration) (address string, stop func(), served <-chan error) {
	t.Helper()
	cfg := limits(tocsintest.Start(t, closing))
	cfg.Drain = drain
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- api.New(cfg).Serve(ctx, l, nil) }()
	return l.Addr().String(), stop, ended
}

// When the API stops, it takes no more, and requests in hand end.
func TestARequestInHandEndsBeforeTheAPIStops(t *testing.T) {
	t.Parallel()
	address, stop, served := serving(t, time.Minute)
	body, send := io.Pipe()
	answered := make(chan string, 1)
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/tasks", body)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Expect", "100-continue") // the body is sent when the API reads it: the request is in hand
		resp, err := (&http.Transport{ExpectContinueTimeout: time.Hour, DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		answered <- resp.Status
	}()
	if _, err := io.WriteString(send, `{"biz_type": "order.close", "biz_id": "1",`); err != nil {
		t.Fatal(err)
	}
	stop()
	for { // until the listener is closed
		conn, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	if _, err := io.WriteString(send, ` "delay_ms": 1}`); err != nil {
		t.Fatal(err)
	}
	_ = send.Close()
	if got := <-answered; got != "201 Created" {
		t.Error(got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestWhatIsStillInHandAfterTheDrainIsCutOff(t *testing.T) {
	t.Parallel()
	address, stop, served := serving(t, time.Millisecond)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", address)
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if answer, err := io.ReadAll(conn); err == nil && strings.Contains(string(answer), "201") {
		t.Errorf("answered %s", answer)
	}
}

func TestAPanicIsAProblem(t *testing.T) {
	t.Parallel()
	s := over(t, &tocsintest.Cluster{}, func(c *api.Config) { c.Tokens = func() apitoken.Set { panic("a fault of the program") } })
	got := s.do(get("/tasks/1"))
	if got.status != http.StatusInternalServerError || got.Code != "internal" || strings.Contains(got.text, "fault of the program") {
		t.Errorf("%d %s", got.status, got.text)
	}
	s.isProblem("panic", got)
	if !strings.Contains(s.log.String(), "panic: a fault of the program") {
		t.Errorf("the log does not say why:\n%s", s.log)
	}
}

func TestAnAddOverTheLimitOfInsertsIsToldWhenToComeBack(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) {
		c.Tables.Inserts = map[string]tocsin.Inserts{"order.close": {Rate: 0.02, Burst: 2}}
	})
	one, two := task(`"payload": ""`), `{"tasks": [`+task(`"payload": ""`)+`, `+task(`"payload": ""`)+`]}`
	if got := s.do(post("/tasks", one)); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.text)
	}
	if got := s.do(post("/tasks:batch", two)); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "50" {
		t.Errorf("%d %s, retry after %s", got.status, got.text, got.header.Get("Retry-After"))
	}
	if got := s.do(post("/tasks", one)); got.status != http.StatusCreated {
		t.Errorf("a refused batch took something: %d %s", got.status, got.text)
	}
	got := s.do(post("/tasks", one))
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "50" || !strings.Contains(got.Detail, `biz type "order.close" is over the limit of inserts, 0.02 a second`) {
		t.Errorf("%d %s, retry after %s", got.status, got.text, got.header.Get("Retry-After"))
	}
	s.isProblem("insert_limit", got)
	three := s.do(post("/tasks:batch", strings.Replace(two, "[", "["+one+", ", 1)))
	if three.status != http.StatusUnprocessableEntity || three.header.Get("Retry-After") != "" || !strings.Contains(three.Detail, "split them up") {
		t.Errorf("%d %s", three.status, three.text)
	}
	s.isProblem("invalid", three)
	if got := s.do(post("/tasks", strings.Replace(one, "order.close", "coupon.remind", 1)).by("all")); got.status != http.StatusCreated {
		t.Errorf("another biz type: %d %s", got.status, got.text)
	}
	if infos, err := s.Client.List(t.Context(), 1); err != nil || len(infos) != 3 {
		t.Errorf("%d tasks, %v", len(infos), err)
	}
}
