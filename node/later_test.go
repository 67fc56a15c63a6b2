package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// limited is a receiver that takes a number of requests each second and answers 429 to the rest.
type limited struct {
	limit *rate.Limiter
	bare  bool // without Retry-After
	batch bool

	mu       sync.Mutex
	requests int
	done     map[string]bool // by key
	last     time.Time
}

func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Data json.RawMessage }
	_ = json.NewDecoder(r.Body).Decode(&body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if !l.limit.Allow() {
		if !l.bare {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	l.last = time.Now()
	if !l.batch {
		l.done[r.Header.Get("webhook-id")] = true
		return
	}
	var tasks []struct{ Key string }
	_ = json.Unmarshal(body.Data, &tasks)
	results := []map[string]string{}
	for _, task := range tasks {
		results = append(results, map[string]string{"key": task.Key, "result": "done"})
		l.done[task.Key] = true
	}
	_ = json.NewEncoder(w).Encode(results)
}

func (l *limited) taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done)
}

// A receiver that answers "later" gets what it takes: no task dies or uses an attempt, and there are at most two requests for each.
// With TOCSIN_FAULTS=1 these are 1,000 tasks and receivers of 1, 10 and 100 requests a second, which takes 20 minutes, by one node and by two; the log
// has the figures.
func TestAReceiverThatSaysLaterGetsWhatItTakes(t *testing.T) {
	t.Parallel()
	rates, tasks, most := []float64{20}, 60, 4*60 // a node begins by as many requests as it has slots
	if long() {
		rates, tasks, most = []float64{1, 10, 100}, 1000, 2*1000
	}
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			t.Parallel()
			policies, receivers := receiversOf(t, rates)
			p := newPlace(t, policies...)
			for i := range nodes {
				cfg := p.config(tocsin.CallbackGroup)
				cfg.Name = fmt.Sprintf("test-%d", i)
				run(t, cfg, nil)
			}
			due := time.Now().Add(5 * time.Second)
			for name := range receivers {
				addAll(t, p, name, tasks, due)
			}
			var wait sync.WaitGroup
			for name, l := range receivers {
				wait.Go(func() { l.judge(t, name, tasks, most, due) })
			}
			wait.Wait()
			noAttempts(t, p, tasks)
		})
	}
}

// receiversOf starts a receiver for each rate, with and without a single slot, in each form of the answer.
func receiversOf(t *testing.T, rates []float64) (policies []biztype.Policy, receivers map[string]*limited) {
	receivers = map[string]*limited{}
	for _, each := range rates {
		for _, slots := range []int{1, 0} {
			for _, form := range []string{"header", "bare", "batch"} {
				l := &limited{limit: rate.NewLimiter(rate.Limit(each), max(int(each)/10, 1)), bare: form == "bare", batch: form == "batch", done: map[string]bool{}}
				at := httptest.NewServer(l)
				t.Cleanup(at.Close)
				p := biztype.Policy{Name: fmt.Sprintf("at%g.slots%d.%s", each, slots, form), Number: uint64(len(policies) + 100), Concurrency: slots,
					Webhook: &tocsin.Webhook{URL: at.URL, Allow: []string{"127.0.0.0/8"}}}
				if l.batch {
					p.Webhook.Batch = 100
				}
				policies, receivers[p.Name] = append(policies, p), l
			}
		}
	}
	return policies, receivers
}

// addAll adds tasks with the biz_ids from 1 on.
func addAll(t *testing.T, p place, bizType string, tasks int, due time.Time) {
	t.Helper()
	all := make([]tocsin.NewTask, tasks)
	for i := range all {
		all[i] = tocsin.Define[string](bizType).New(uint64(i+1), "", tocsin.At(due))
	}
	if added, err := p.client.AddMany(t.Context(), all); err != nil || len(added) != tasks {
		t.Fatal(err)
	}
}

// judge waits until the receiver has taken all tasks, and counts its requests.
func (l *limited) judge(t *testing.T, name string, tasks, most int, due time.Time) {
	each := float64(l.limit.Limit())
	for end := due.Add(patience + time.Duration(3*float64(tasks)/each)*time.Second); l.taken() < tasks && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.done) < tasks || l.requests > most {
		t.Errorf("%s: %d of %d tasks are done, after %d requests", name, len(l.done), tasks, l.requests)
	}
	ideal := float64(tasks) / each
	if l.batch {
		ideal /= 100
	}
	t.Logf("%s: %.2f requests for a task, the last one done after %.1f s, ideal %.1f s", name, float64(l.requests)/float64(tasks), l.last.Sub(due).Seconds(), ideal)
}

// noAttempts checks that no task of the biz_ids from 1 on has used an attempt.
func noAttempts(t *testing.T, p place, bizIDs int) {
	t.Helper()
	for i := range bizIDs {
		infos, err := p.client.List(t.Context(), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			if info.Attempts > 0 || info.Status == tocsin.Dead {
				t.Errorf("%s: task %s is %s after %d attempts: %s", info.BizType, info.JobID, info.Status, info.Attempts, info.LastError)
			}
		}
	}
}
