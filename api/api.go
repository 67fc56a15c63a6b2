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
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/operator"
)

// Config describes an API. The limits must be set: config.APILimits has their defaults and bounds.
type Config struct {
	Tables  tocsin.Config
	Cluster operator.View       // of the same cluster
	Tokens  func() apitoken.Set // the present ones; nil: none are wanted, and callers of this host may do everything
	Origins []string            // of web pages that may call; none: no page may
	Body    int64               // bytes of a request's body at most
	Rate    float64             // requests a second of each token; as many, and at least one, may come at once
	Timeout time.Duration       // of a request
	Drain   time.Duration       // how long requests in hand may go on when the API stops
	Logger  *slog.Logger        // nil: none but warnings

	Registerer prometheus.Registerer // of the metrics; nil: none
}

// API serves requests. Make one with New, and close it.
type API struct {
	cfg        Config
	log        *slog.Logger
	faults     loglimit.Limit
	huma       huma.API
	router     *router
	operations map[string]operation // by the pattern in router
	rates      *rates
	backend    *backend
	metrics    *metrics
	inHand     sync.WaitGroup      // requests
	wide       *semaphore.Weighted // requests that read all tables
}

// New makes an API. It connects to no server before the first request.
func New(cfg Config) *API {
	a := &API{cfg: cfg, log: loglimit.Or(cfg.Logger), router: &router{}, operations: map[string]operation{}, rates: newRates(cfg.Rate, cfg.Body), backend: newBackend(cfg.Tables), wide: semaphore.NewWeighted(maxWide)}
	a.metrics = newMetrics(cfg.Registerer)
	a.huma = humago.New(a.router, describe())
	a.tasks()
	a.why()
	a.runs()
	a.changes()
	a.dead()
	a.bizTypes()
	a.cluster()
	a.stats()
	a.schedules()
	a.scheduleChanges()
	a.scheduleActs()
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

// Close closes what New and requests have opened. No request may be under way.
func (a *API) Close() error { return a.backend.close() }

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
		{Name: "tasks", Description: "Tasks, one by one and many at once"},
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
