package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/quantile"
)

// hostile are callers with tokens of one team who send bad batches, slow bodies, forged cursors and long lists.
type hostile struct {
	*served
	batch  string
	cursor string
	open   atomic.Int64 // connections of slow bodies that the API has not closed
	most   atomic.Int64
	sent   [4]atomic.Int64
	kept   chan struct{} // bounds what is under way, for the sake of the machine
	all    sync.WaitGroup
}

// run sends 200 requests a second until the end.
func (h *hostile) run(end <-chan struct{}) {
	tick := time.NewTicker(time.Second / 200)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		select {
		case h.kept <- struct{}{}:
			h.all.Go(func() {
				defer func() { <-h.kept }()
				h.sent[i%4].Add(1)
				h.send(i, end)
			})
		default: // thousands are under way
		}
	}
}

func (h *hostile) send(i int, end <-chan struct{}) {
	var req *http.Request
	switch i % 4 {
	case 0:
		req, _ = http.NewRequest(http.MethodPost, h.url+"/v1/tasks:batch", strings.NewReader(h.batch))
	case 1:
		h.slow(end)
		return
	case 2:
		req, _ = http.NewRequest(http.MethodGet, h.url+"/v1/tasks?biz_id=1&limit=1&cursor="+h.cursor, nil)
	default:
		path := []string{"/v1/tasks?biz_id=1&limit=1000", "/v1/tasks?status=pending&limit=1000", "/v1/stats"}[i/4%3]
		req, _ = http.NewRequest(http.MethodGet, h.url+path, nil)
	}
	req.Header.Set("Authorization", "Bearer "+h.tokens["write"])
	req.Header.Set("Content-Type", "application/json")
	if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// slow begins a body that never ends, and waits until the API closes the connection.
func (h *hostile) slow(end <-chan struct{}) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		return
	}
	fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"biz_type\"", h.tokens["read"])
	h.most.Store(max(h.most.Load(), h.open.Add(1)))
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		close(closed)
	}()
	select {
	case <-closed:
		h.open.Add(-1)
	case <-end: // it is still open, and counted
	}
	_ = conn.Close()
	<-closed
}

// BenchmarkBesideHostileCallers adds 200 tasks a second of one team, first alone, then beside 200 hostile requests a second of
// another team: go test -run '^$' -bench Hostile -benchtime 12000x ./api takes a minute for each.
func BenchmarkBesideHostileCallers(b *testing.B) {
	s := serve(b, func(c *api.Config) { c.Body, c.Rate, c.Timeout = 1<<20, 1000, 30*time.Second })
	var tasks []tocsin.NewTask
	for range 20_000 {
		tasks = append(tasks, closing.New(1, strings.Repeat("x", 1000), tocsin.In(time.Hour)))
	}
	for chunk := range slices.Chunk(tasks, 1000) {
		if _, err := s.Client.AddMany(b.Context(), chunk); err != nil {
			b.Fatal(err)
		}
	}
	first := want[api.Tasks](s, http.StatusOK, get("/tasks?biz_id=1&limit=1"))
	for _, name := range []string{"alone", "beside"} {
		b.Run(name, func(b *testing.B) {
			h := &hostile{served: s, batch: `{"tasks":[` + strings.Repeat("{},", 349_000) + `{}]}`, cursor: first.NextCursor, kept: make(chan struct{}, 4000)}
			end := make(chan struct{})
			if name == "beside" {
				h.all.Go(func() { h.run(end) })
			}
			took := s.others(b)
			open := h.open.Load()
			close(end)
			h.all.Wait()
			var used syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(quantile.Of(took, 0.5).Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(quantile.Of(took, 0.99).Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(used.Maxrss>>10), "peak-MiB")
			b.ReportMetric(float64(open), "open-at-end")
			b.ReportMetric(float64(h.most.Load()), "open-at-most")
			b.Logf("sent: bad batches %d, slow bodies %d, cursors %d, lists and stats %d", h.sent[0].Load(), h.sent[1].Load(), h.sent[2].Load(), h.sent[3].Load())
		})
	}
}

// others adds 200 tasks a second of coupon.remind, and returns how long each took, sorted.
func (s *served) others(b *testing.B) (took []time.Duration) {
	var mu sync.Mutex
	var all sync.WaitGroup
	tick := time.NewTicker(time.Second / 200)
	defer tick.Stop()
	var bizID atomic.Uint64
	for b.Loop() {
		due := <-tick.C
		all.Go(func() {
			got := s.do(post("/tasks", fmt.Sprintf(`{"biz_type": "coupon.remind", "biz_id": "%d", "delay_ms": 3600000, "payload": "x"}`, 1000+bizID.Add(1))).by("all"))
			mu.Lock()
			defer mu.Unlock()
			if took = append(took, time.Since(due)); got.status != http.StatusCreated {
				b.Errorf("%d %s", got.status, got.text)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}
