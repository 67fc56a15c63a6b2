package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/why"
)

// Two nodes deliver the tasks of one biz_id one by one, in the order of their times, and the one that waits says for which.
func TestTasksOfOneBizIDInTurn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []string
	now := 0
	begun, goOn := make(chan struct{}, 100), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		_, id, _ := strings.Cut(string(body), `"job_id":"`)
		id, _, _ = strings.Cut(id, `"`)
		order = append(order, id)
		if now++; now > 1 {
			t.Errorf("%d at once", now)
		}
		mu.Unlock()
		begun <- struct{}{}
		<-goOn
		mu.Lock()
		now--
		mu.Unlock()
	}))
	t.Cleanup(receiver.Close)
	s := bareSite(t)
	s.applyDDL()
	policy := "biz_types:\n  - {name: order.step, number: 2, per_key: 1, timeout: 1m, webhook: {url: %q, allow: [127.0.0.0/8]}%s}\n"
	s.write("loose.yaml", fmt.Sprintf(policy, receiver.URL, ""))
	s.run("biz", "apply", "loose.yaml").refused(t, exitFailed, "per_key needs strict: true")
	s.write("biz.yaml", fmt.Sprintf(policy, receiver.URL, ", strict: true"))
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.run("biz", "show", "order.step").says(t, "per_key: 1")
	var ids []tocsin.JobID
	var want []string
	for i := range 12 {
		id := s.adding("order.step", 7, "1h")
		s.due(id, fmt.Sprintf("%d SECOND", 30-i), "")
		ids, want = append(ids, id), append(want, id.String())
	}
	s.serve("one")
	s.serve("two")
	<-begun
	s.until(ids[5], why.Turn, nil, "it waits for job "+ids[0].String()+" of the same biz_id")
	close(goOn)
	s.waitFor("all tasks are done", func() bool { return s.counted("status = 2") == len(ids) })
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(order, want) {
		t.Errorf("in the order %q, want %q", order, want)
	}
}
