package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
)

// allocated returns what a function allocates, with all that runs beside it.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A body of 1 MiB costs a few MiB and gets a short answer, whatever it holds.
func TestABadBodyCostsLittle(t *testing.T) {
	s := serve(t, func(c *api.Config) { c.Body = 1 << 20 })
	row := `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1},`
	for name, body := range map[string]string{
		"empty tasks":                  `{"tasks":[` + strings.Repeat("{},", 349_000) + `{}]}`,
		"1000 tasks without a field":   `{"tasks":[` + strings.Repeat("{},", 999) + `{}]}`,
		"unknown fields of many tasks": `{"tasks":[` + strings.Repeat(`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0},`, 999) + `{}]}`,
		"a task of many fields":        `{"tasks":[` + row + `{"a":[` + strings.Repeat("[],", 300_000) + `[]]}]}`,
		"arrays":                       strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000),
		"numbers":                      `{"payload":[` + strings.Repeat("0,", 500_000) + `0]}`,
		"one name many times":          `{` + strings.Repeat(`"a":0,`, 170_000) + `"a":0}`,
		"many fields":                  manyFields(100_000),
	} {
		for _, path := range []string{"/v1/tasks:batch", "/v1/tasks", "/v1/tasks:act", "/v1/schedules"} {
			w := httptest.NewRecorder()
			cost := allocated(func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
				r.Header.Set("Authorization", "Bearer "+s.tokens["write"])
				r.Header.Set("Content-Type", "application/json")
				s.api.ServeHTTP(w, r)
			})
			if cost > 16<<20 || w.Body.Len() > 512<<10 || w.Code >= http.StatusInternalServerError || w.Code == http.StatusCreated {
				t.Errorf("%s to %s: %d with %d bytes, %d bytes were allocated: %.200s", name, path, w.Code, w.Body.Len(), cost, w.Body)
			}
			if n := strings.Count(w.Body.String(), `"location"`); n > 20 {
				t.Errorf("%s to %s: %d faults are named", name, path, n)
			}
		}
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%x":0`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// slow sends the head of a request and the beginning of its body, and returns what the connection's other end sends until it
// closes the connection.
func (s *served) slow(token, path string) (answer string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Error(err)
		return ""
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"biz_type\"", path, token)
	all, err := io.ReadAll(conn)
	if err != nil && len(all) == 0 {
		s.t.Error(err)
	}
	return string(all)
}

// A body that does not come ends its connection, at once if its request is refused, otherwise at the time-out of the request.
func TestASlowBodyEndsItsConnection(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s := serve(t, func(c *api.Config) { c.Timeout, c.Registerer = 2*time.Second, registry })
	var all sync.WaitGroup
	for _, c := range []struct{ token, path, want string }{
		{"unknown", "/tasks", "401"},
		{s.tokens["read"], "/tasks", "403"},
		{s.tokens["write"], "/nothing", "404"},
		{s.tokens["write"], "/tasks", "408"},
		{s.tokens["write"], "/tasks:batch", "408"},
		{s.tokens["write"], "/tasks/1:cancel", "408"},
	} {
		all.Go(func() {
			if got := s.slow(c.token, c.path); !strings.HasPrefix(got, "HTTP/1.1 "+c.want+" ") {
				t.Errorf("%s: %q, want %s", c.path, got, c.want)
			}
		})
	}
	all.Wait()
	if got, _ := values(t, registry); got["requests_in_flight{}"] != 0 {
		t.Errorf("%v", got)
	}
}

// A caller that waits to be asked for its body is not asked if the token does not allow the request.
func TestABodyIsReadWhenItsRequestIsAllowed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for token, want := range map[string]string{"read": "HTTP/1.1 403 ", "write": "HTTP/1.1 100 "} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", s.tokens[token])
		if got, err := bufio.NewReader(conn).ReadString('\n'); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, %v", token, got, err)
		}
		_ = conn.Close()
	}
}

// The bodies of a token that have arrived and wait for their rest are bounded. Other tokens have room.
func TestTheBodiesInHandAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.Body = 2 << 20 })
	body := fmt.Sprintf("%-1048576s", `{"biz_type": "order.close"`)
	var sent []*io.PipeWriter
	codes := make(chan int, 20)
	for range cap(codes) {
		read, write := io.Pipe()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/tasks", read)
		r.Header.Set("Authorization", "Bearer "+s.tokens["write"])
		go func() {
			w := httptest.NewRecorder()
			s.api.ServeHTTP(w, r)
			_ = read.Close() // what sends it stops too
			codes <- w.Code
		}()
		_, _ = io.WriteString(write, body) // until it is read, or refused
		sent = append(sent, write)
	}
	for range 20 - 16 {
		if got := <-codes; got != http.StatusTooManyRequests {
			t.Errorf("%d", got)
		}
	}
	if got := s.do(post("/tasks", task(`"payload": ""`))); got.status != http.StatusTooManyRequests || got.Code != "busy" || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.text)
	}
	if got := s.do(post("/tasks", task(`"payload": ""`)).by("all")); got.status != http.StatusCreated {
		t.Errorf("another token: %d %s", got.status, got.text)
	}
	for _, w := range sent {
		_ = w.CloseWithError(io.ErrUnexpectedEOF)
	}
	for range 16 {
		<-codes
	}
	if got := s.do(post("/tasks", task(`"payload": ""`))); got.status != http.StatusCreated {
		t.Errorf("afterwards: %d %s", got.status, got.text)
	}
}

// Requests that read every table are at most two at once. Others go on beside them.
func TestWideReadsAreFew(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.add(closing.New(1, "", tocsin.In(time.Hour)))
	table := s.Client.Layout().Table(s.Client.Layout().TableOf(2))
	if s.Client.Layout().TableOf(1) == s.Client.Layout().TableOf(2) {
		t.Fatal("choose biz_ids of two tables")
	}
	_, unlock := s.lock(table)
	wide := []request{
		get("/stats"), get("/tasks?status=done").by("read"), post("/tasks:redrive", `{"all": true, "dry_run": true}`).by("operate"), get("/cluster/tables?counts=true").by("all"),
	}
	answers := make(chan reply, len(wide))
	for _, r := range wide {
		go func() { answers <- s.do(r) }()
	}
	for range len(wide) - 2 {
		if got := <-answers; got.status != http.StatusTooManyRequests || got.Code != "busy" || got.header.Get("Retry-After") == "" {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
	if got := s.do(get("/cluster/tables?counts=true").by("all")); got.status != http.StatusTooManyRequests || got.Code != "busy" {
		t.Errorf("counts of tables: %d %s", got.status, got.text)
	}
	for _, narrow := range []request{get("/tasks?biz_id=1"), get("/cluster/tables").by("all")} {
		if got := s.do(narrow); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", narrow.path, got.status, got.text)
		}
	}
	unlock()
	for range 2 {
		if got := <-answers; got.status != http.StatusOK {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
}

// Requests of one token that have connections of their own are few at once, so that none can use up those of a server. The others
// wait, and other tokens do not.
func TestConnectionsOfATokenAreFew(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	database := s.Client.Layout().Database(0)
	held, unlock := s.lock(database + ".biz_type")
	waiting := func() (n int) {
		if err := held.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE ? AND state LIKE 'Waiting%'",
			"%"+database+"`.biz_type%").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const sent, mine, others = 30, 8, 1
	answers := make(chan reply, sent+others)
	for range sent {
		go func() { answers <- s.do(get("/biz-types").by("read")) }()
	}
	go func() { answers <- s.do(get("/biz-types").by("all")) }()
	for late := time.Now().Add(patience); waiting() < mine+others; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%d requests wait for the table", waiting())
		}
	}
	time.Sleep(200 * time.Millisecond) // more would come now
	if n := waiting(); n != mine+others {
		t.Errorf("%d requests wait for the table, want %d", n, mine+others)
	}
	unlock()
	for range sent + others {
		if got := <-answers; got.status != http.StatusOK {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
}

// Counts end at a bound, and say so.
func TestStatsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.addMany(11_000, 0)
	if _, err := s.DB.ExecContext(t.Context(), "UPDATE "+s.Client.Layout().Table(0)+" SET status = 4, action_time = UTC_TIMESTAMP(3) LIMIT 3"); err != nil {
		t.Fatal(err)
	}
	stats := want[api.Stats](s, http.StatusOK, get("/stats"))
	if len(stats.BizTypes) != 1 || stats.BizTypes[0].Pending < 9_000 || stats.BizTypes[0].Pending > 10_000 || stats.BizTypes[0].Dead != 3 {
		t.Errorf("%+v", stats)
	}
	if !slices.Equal(stats.AtLeast, []api.Status{"pending"}) {
		t.Errorf("at least: %v", stats.AtLeast)
	}
	dry := want[api.Redriven](s, http.StatusOK, post("/tasks:redrive", `{"all": true, "dry_run": true}`).by("operate"))
	if dry.Redriven != 3 || !dry.Complete {
		t.Errorf("%+v", dry)
	}
	for table := range s.Client.Layout().Total() {
		if _, err := s.DB.ExecContext(t.Context(), "UPDATE "+s.Client.Layout().Table(table)+" SET status = 4, action_time = UTC_TIMESTAMP(3)"); err != nil {
			t.Fatal(err)
		}
	}
	dry = want[api.Redriven](s, http.StatusOK, post("/tasks:redrive", `{"all": true, "dry_run": true}`).by("operate"))
	if dry.Redriven != 10_000 || dry.Complete {
		t.Errorf("%+v", dry)
	}
}
