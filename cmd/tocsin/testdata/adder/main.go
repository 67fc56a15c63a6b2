// Command adder adds tasks as a service does, until its standard input ends, and then prints how that went. A test of
// upgrades compiles it with the client of this commit and with that of an older one.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
)

var remind = tocsin.Define[string]("coupon.remind")

// adder is one run.
type adder struct {
	client *tocsin.Client
	first  uint64        // the first biz_id
	ahead  time.Duration // of the action time

	mu     sync.Mutex // guards what follows
	took   []time.Duration
	failed []string
}

func main() {
	var cfg tocsin.Config
	var server tocsin.Server
	var a adder
	flag.StringVar(&server.DSN, "dsn", "", "of the only server")
	flag.StringVar(&cfg.Layout.Prefix, "prefix", "", "of the databases")
	flag.IntVar(&cfg.Layout.Databases, "databases", 0, "of the layout")
	flag.IntVar(&cfg.Layout.Tables, "tables", 0, "of the layout")
	flag.Uint64Var(&a.first, "first", 0, "the first biz_id")
	flag.DurationVar(&a.ahead, "ahead", 2*time.Second, "how far ahead the action times are")
	rate := flag.Int("rate", 0, "tasks a second")
	rows := flag.Int("rows", 0, "add as many as fast as possible instead")
	flag.Parse()
	cfg.Servers = []tocsin.Server{server}
	var err error
	if a.client, err = tocsin.Open(context.Background(), cfg); err != nil {
		log.Fatal(err)
	}
	if *rows > 0 {
		a.fill(*rows)
	} else {
		a.pace(*rate)
	}
	a.report(os.Stdout)
}

// fill adds tasks in large batches.
func (a *adder) fill(rows int) {
	for done := 0; done < rows; {
		tasks := make([]tocsin.NewTask, min(20000, rows-done))
		for i := range tasks {
			tasks[i] = remind.New(a.first+uint64(done+i), "{}", tocsin.In(a.ahead))
		}
		begin := time.Now()
		_, err := a.client.AddMany(context.Background(), tasks)
		a.note(time.Since(begin), err)
		done += len(tasks)
	}
}

// pace adds tasks one by one, at a rate, over several connections.
func (a *adder) pace(rate int) {
	ids := make(chan uint64, 10*rate)
	var workers sync.WaitGroup
	for range 8 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for id := range ids {
				begin := time.Now()
				_, err := a.client.Add(context.Background(), remind.New(id, "{}", tocsin.In(a.ahead)))
				a.note(time.Since(begin), err)
			}
		}()
	}
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(ended) }()
	begin, sent := time.Now(), 0
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-ended:
			close(ids)
			workers.Wait()
			return
		case <-tick.C:
			for ; sent < int(time.Since(begin).Seconds()*float64(rate)); sent++ {
				ids <- a.first + uint64(sent)
			}
		}
	}
}

func (a *adder) note(took time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, took)
	if err != nil {
		a.failed = append(a.failed, err.Error())
	}
}

func (a *adder) report(w io.Writer) {
	slices.Sort(a.took)
	result := map[string]any{"calls": len(a.took), "failed": len(a.failed), "errors": a.failed[:min(3, len(a.failed))]}
	if n := len(a.took); n > 0 {
		result["p99_ms"], result["max_ms"] = a.took[n*99/100].Milliseconds(), a.took[n-1].Milliseconds()
	}
	if err := json.NewEncoder(w).Encode(result); err != nil {
		log.Fatal(err)
	}
}
