package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/quantile"
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

// The pace of BenchmarkAddPaced.
const (
	pacedRate = 500 // requests a second
	pacedFor  = 5 * time.Second
)

// BenchmarkAddPaced sends adds at a steady pace, each at its time whether or not those before it are answered. It reports how long
// after its time a request was answered, and the CPU time of this process, callers and API together, for a request and, beside it,
// for a row of AddMany that stores as many.
func BenchmarkAddPaced(b *testing.B) {
	s := serve(b, nil)
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 64
	const n = int(pacedRate * pacedFor / time.Second)
	bizID := uint64(0)
	for b.Loop() {
		began := cpuTime(b)
		took := s.paced(n, bizID)
		request := (cpuTime(b) - began) / time.Duration(n)
		began = cpuTime(b)
		s.addMany(n, bizID+uint64(n))
		row := (cpuTime(b) - began) / time.Duration(n)
		bizID += 2 * uint64(n)
		b.ReportMetric(quantile.Of(took, 0.5).Seconds()*1000, "p50-ms")
		b.ReportMetric(quantile.Of(took, 0.99).Seconds()*1000, "p99-ms")
		b.ReportMetric(float64(request.Microseconds()), "cpu-µs/request")
		b.ReportMetric(float64(row.Microseconds()), "cpu-µs/AddMany-row")
		b.ReportMetric(float64(request)/float64(row), "cpu-ratio")
	}
}

// paced adds n tasks over HTTP at the pace, and returns how long each took from its time on, sorted.
func (s *served) paced(n int, bizID uint64) []time.Duration {
	took, errs := make([]time.Duration, n), make([]error, n)
	began := time.Now()
	var all sync.WaitGroup
	for i := range n {
		at := began.Add(time.Duration(i) * time.Second / pacedRate)
		time.Sleep(time.Until(at))
		all.Go(func() {
			errs[i] = s.posted(http.StatusCreated, "/tasks", fmt.Sprintf(`{"biz_type": "order.close", "biz_id": "%d", "delay_ms": 3600000, "payload": "{\"order\":42}"}`, bizID+uint64(i)+1))
			took[i] = time.Since(at)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(took)
	return took
}

// addMany adds n tasks with the client, in batches.
func (s *served) addMany(n int, bizID uint64) {
	for first := 0; first < n; first += inBatch {
		tasks := make([]tocsin.NewTask, inBatch)
		for i := range tasks {
			tasks[i] = closing.New(bizID+uint64(first+i)+1, `{"order":42}`, tocsin.In(time.Hour))
		}
		if _, err := s.Client.AddMany(s.t.Context(), tasks); err != nil {
			s.t.Fatal(err)
		}
	}
}

// cpuTime is what this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
