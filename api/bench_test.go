package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// inBatch is the number of tasks of a batch.
const inBatch = 100

// callers is how many callers there are for each CPU.
const callers = 16

// BenchmarkAdd adds tasks over HTTP, one by one and in batches, beside the calls of the client that store them: the ratio of
// tasks/s is what the API costs. Each task is stored in a transaction of its own, or each batch in few.
func BenchmarkAdd(b *testing.B) {
	s := serve(b, nil)
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 64
	var bizID atomic.Uint64
	one := func() string {
		return fmt.Sprintf(`{"biz_type": "order.close", "biz_id": "%d", "delay_ms": 3600000, "payload": "{\"order\":42}"}`, bizID.Add(1))
	}
	task := func() tocsin.NewTask { return closing.New(bizID.Add(1), `{"order":42}`, tocsin.In(time.Hour)) }
	for _, c := range []struct {
		name  string
		tasks int
		add   func() error
	}{
		{"client_Add", 1, func() error { _, err := s.Client.Add(b.Context(), task()); return err }},
		{"api_add_task", 1, func() error { return s.posted(http.StatusCreated, "/tasks", one()) }},
		{"client_AddMany", inBatch, func() error {
			tasks := make([]tocsin.NewTask, inBatch)
			for i := range tasks {
				tasks[i] = task()
			}
			_, err := s.Client.AddMany(b.Context(), tasks)
			return err
		}},
		{"api_add_tasks", inBatch, func() error {
			tasks := make([]string, inBatch)
			for i := range tasks {
				tasks[i] = one()
			}
			return s.posted(http.StatusOK, "/tasks:batch", `{"tasks": [`+strings.Join(tasks, ",")+`]}`)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetParallelism(callers)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := c.add(); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N*c.tasks)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// posted wants a status.
func (s *served) posted(status int, path, body string) error {
	got := s.do(post(path, body))
	if got.status != status || strings.Contains(got.text, `"problem"`) {
		return fmt.Errorf("%d %s", got.status, got.text)
	}
	return nil
}
