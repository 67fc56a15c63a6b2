// Package api serves the HTTP API: tasks, schedules, biz types, the cluster and counts, as
// openapi.yaml describes them.
//
//	request --> Host and Origin --> token --> rate --> body --> route --> scope --> operation --> package tocsin, schedule or operator
//	               403              401       429     400 413    404      403      404 409 412          503
//	                                                    415      405               422 428
//
// It is the authority for what a request may look like and which token may send it. Packages tocsin, schedule and
// operator decide what an operation does; nothing is repeated here. Every refusal is an RFC 9457 problem (Problem) with a
// stable code, and repeats no payload.
//
// On failure: without a database server the API answers with 503 and opens the server later. A panic is a 500 and a line
// in the log. A result that lacks some servers names them.
package api

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/pull"
	"github.com/tocsinhq/tocsin/schedule"
)

// Config describes an API. The limits must be set: config.APILimits has their defaults and bounds.
type Config struct {
	Tables  tocsin.Config
	Cluster operator.View       // of the same cluster
	Pull    *pull.Hub           // of the node in the same process; nil: there is none, and workers are refused
	Tokens  func() apitoken.Set // the present ones; nil: none are wanted, and callers of this host may do everything
	Origins []string            // of web pages that may call; none: no page may
	Body    int64               // bytes of a request's body at most
	Rate    float64             // requests a second of each token; as many, and at least one, may come at once
	Timeout time.Duration       // of a request
	Drain   time.Duration       // how long requests in hand may go on when the API stops
	Logger  *slog.Logger        // nil: none but warnings
	// Beside returns what Serve hands requests to, which may answer some by itself and has the API answer the others; nil: the
	// API answers all.
	Beside func(*API) http.Handler

	Registerer prometheus.Registerer // of the metrics; nil: none
}

// API serves requests. Make one with New, and close it.
type API struct {
	cfg        Config
	log        *slog.Logger
	faults     loop.LogLimit
	huma       huma.API
	router     *router
	operations map[string]operation // by the pattern in router
	rates      *rates
	backend    *backend
	sampler    *operator.Sampler // of the overview
	notebook   *notebook         // of acts
	metrics    *metrics
	inHand     sync.WaitGroup      // requests
	wide       *semaphore.Weighted // requests that read all tables
}

// New makes an API. It connects to no server before the first request.
func New(cfg Config) *API {
	a := &API{cfg: cfg, log: loop.Logger(cfg.Logger), router: &router{}, operations: map[string]operation{}, rates: newRates(cfg.Rate, cfg.Body), backend: newBackend(cfg.Tables), wide: semaphore.NewWeighted(maxWide)}
	a.metrics, a.sampler = newMetrics(cfg.Registerer), operator.NewSampler(cfg.Cluster)
	a.notebook = newNotebook(&a.backend.people)
	a.huma = humago.New(a.router, describe())
	a.me()
	a.overview()
	a.pastActs()
	a.tasks()
	a.runs()
	a.recentRuns()
	a.pulls()
	a.changes()
	a.bizTypes()
	a.cluster()
	a.schedules()
	a.scheduleLists()
	a.scheduleChanges()
	a.scheduleTurns()
	open(a.huma.OpenAPI())
	text := sync.OnceValues(a.OpenAPI)
	a.router.HandleFunc("GET /v1/openapi.yaml", func(w http.ResponseWriter, r *http.Request) {
		described, err := text()
		if err != nil {
			writeProblem(w, r, problem(http.StatusInternalServerError, "internal", "%s", err))
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(described)
	})
	return a
}

// Close closes what New and requests have opened, and waits for what goes on for the overview. No request may be under way.
func (a *API) Close() error {
	a.notebook.close()
	a.sampler.Close()
	return a.backend.close()
}

// describe returns what openapi.yaml says of the whole API.
func describe() huma.Config {
	c := huma.DefaultConfig("Tocsin", "1")
	c.Info.Description = "Adds, finds and changes delayed tasks, and schedules, which are tasks that repeat. docs/api.md explains tokens, errors, pages and limits."
	c.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.RejectUnknownQueryParameters = true
	c.Servers = []*huma.Server{{URL: "http://127.0.0.1:8481", Description: "the address of node.api.listen"}}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "toc_ID_SECRET, made by `tocsin token new`. An API on loopback may have no tokens."},
	}
	c.Tags = []*huma.Tag{
		{Name: "token", Description: "What the caller may do"},
		{Name: "tasks", Description: "Tasks, one by one and many at once"},
		{Name: "pull", Description: "Workers that ask for due tasks, as docs/pull.md describes"},
		{Name: "biz types", Description: "Kinds of tasks, and how they are delivered"},
		{Name: "schedules", Description: "Tasks that repeat"},
		{Name: "cluster", Description: "Nodes, tables and counts"},
	}
	return c
}

// OpenAPI returns the description of the API, OpenAPI 3.1 in YAML.
func (a *API) OpenAPI() ([]byte, error) { return a.huma.OpenAPI().YAML() }

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.front(w, r) }

// backend opens the client, operator and schedules when operations first need them, since the servers may be away when
// the API starts.
type backend struct {
	client opened[*tocsin.Client]
	people opened[*operator.Operator]
	timers opened[*schedule.Schedules]
}

func newBackend(cfg tocsin.Config) *backend {
	return &backend{
		client: opened[*tocsin.Client]{open: func(ctx context.Context) (*tocsin.Client, error) { return tocsin.Open(ctx, cfg) }},
		people: opened[*operator.Operator]{open: func(ctx context.Context) (*operator.Operator, error) { return operator.Open(ctx, cfg) }},
		timers: opened[*schedule.Schedules]{open: func(ctx context.Context) (*schedule.Schedules, error) { return schedule.Open(ctx, cfg) }},
	}
}

func (b *backend) close() error {
	return errors.Join(b.client.close(), b.people.close(), b.timers.close())
}

// opened is something that is opened once.
type opened[T interface{ Close() error }] struct {
	open func(context.Context) (T, error)

	mu    sync.Mutex
	ready bool
	value T
}

// get opens it, unless it is open. While one caller opens it, others wait.
func (o *opened[T]) get(ctx context.Context) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ready {
		return o.value, nil
	}
	if err := ctx.Err(); err != nil { // it waited for others, who did not succeed
		return o.value, err
	}
	value, err := o.open(ctx)
	if err == nil {
		o.value, o.ready = value, true
	}
	return value, err
}

func (o *opened[T]) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ready {
		return nil
	}
	return o.value.Close()
}

// The times and sizes of a connection, beside Config.
const (
	headerWithin = 10 * time.Second
	bodyWithin   = 30 * time.Second
	idleWithin   = 2 * time.Minute
	writeWithin  = 10 * time.Second // after the operation's time-out
	maxHeader    = 16 << 10
)

// handler is what Serve hands requests to.
func (a *API) handler() http.Handler {
	if a.cfg.Beside == nil {
		return a
	}
	h := a.cfg.Beside(a)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.inHand.Add(1) // it may send requests to the API, which is closed only once none is in hand
		defer a.inHand.Done()
		h.ServeHTTP(w, r)
	})
}

// Serve answers requests until ctx ends. Then it takes no more, gives those in hand Config.Drain to end, and closes the
// API. cfg is nil for plain text.
func (a *API) Serve(ctx context.Context, l net.Listener, cfg *tls.Config) error {
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s := &http.Server{
		BaseContext: func(net.Listener) context.Context { return work },
		Handler:     a.handler(), TLSConfig: cfg, ReadHeaderTimeout: headerWithin, ReadTimeout: bodyWithin, WriteTimeout: bodyWithin + pull.MaxWait + a.cfg.Timeout + writeWithin,
		IdleTimeout: idleWithin, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0), // strangers' handshakes and broken connections
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bounded, cancel := context.WithTimeout(work, a.cfg.Drain)
		defer cancel()
		_ = s.Shutdown(bounded)
		end() // what is still in hand is cut off
	})
	var err error
	if cfg == nil {
		err = s.Serve(l)
	} else {
		err = s.ServeTLS(l, "", "")
	}
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	end()
	err = errors.Join(err, s.Close())
	a.inHand.Wait()
	return errors.Join(err, a.Close())
}
