// Package console serves web pages for people: what is wrong, tasks, schedules, biz types and the cluster. docs/console.md describes them.
//
//	browser --> headers and origin --> session or proxy --> page --> package api, in process --> MySQL, etcd
//	                 403               to login   401 403            401 403 404 409 429 503
//
// It decides how a page looks and who is logged in. All data and all changes go through package api, with the user's token, or with what the
// group of a user may do whom a proxy has logged in: the same scopes, problems, rates and log. It sends no SQL.
//
// On failure: what could be read is shown, and each part that could not says why. A page that asked for nothing that exists is
// a 404. A panic is a 500 and a line in the log. All pages work without JavaScript; with it, the overview and an
// open task are read again every 5 s.
package console

import (
	"context"
	"crypto/cipher"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// Config describes a console.
type Config struct {
	API     http.Handler        // an *api.API; it also answers all requests that are for no page
	Tokens  func() apitoken.Set // as in api.Config; nil: nobody logs in, and callers of this host may do everything
	Base    string              // path of the start page, which begins and ends with a slash; "": /
	Proxy   *Proxy              // logs people in; nil: they log in with tokens
	Trace   string              // address of a trace, in which {trace_id} is replaced; "": none
	Grafana string              // address of a Grafana with the dashboards of deploy/grafana; "": none
	Key     string              // seals the cookies; nodes behind one address need the same; "": made now, so a restart ends all sessions
	Timeout time.Duration       // of a page
	Logger  *slog.Logger        // nil: none but warnings
}

// Console serves pages. Make one with New.
type Console struct {
	cfg    Config
	log    *slog.Logger
	faults loop.LogLimit
	base   string // "" or "/a/b"
	seal   cipher.AEAD
	mux    *http.ServeMux
	pages  http.Handler // mux, for requests of the console's own pages
}

// New makes a console. It sends no request before the first page.
func New(cfg Config) *Console {
	c := &Console{cfg: cfg, log: loop.Logger(cfg.Logger), base: strings.TrimSuffix(cfg.Base, "/"), seal: sealing(cfg.Key), mux: http.NewServeMux()}
	c.mux.HandleFunc("GET /assets/{sum}/{name}", c.asset)
	c.mux.HandleFunc("GET /login", c.loginPage)
	c.mux.HandleFunc("POST /login", c.login)
	c.mux.HandleFunc("POST /logout", c.logout)
	c.mux.HandleFunc("POST /settings", c.settings)
	for pattern, page := range map[string]func(*visit) *page{
		"GET /{$}":                     (*visit).overview,
		"POST /{$}":                    (*visit).changeOverview,
		"GET /biz-types":               (*visit).start,
		"GET /tasks":                   (*visit).tasks,
		"POST /tasks/act":              (*visit).actOnTasks,
		"GET /tasks/{id}":              (*visit).task,
		"POST /tasks/{id}/{act}":       (*visit).changeTask,
		"GET /schedules":               (*visit).schedules,
		"POST /schedules/{act}":        (*visit).turnSchedules,
		"GET /schedules.yaml":          (*visit).schedulesFile,
		"GET /new-schedule":            (*visit).newSchedule,
		"POST /new-schedule":           (*visit).newSchedule,
		"GET /schedules/{name}":        (*visit).schedule,
		"GET /schedules/{name}/yaml":   (*visit).scheduleFile,
		"GET /schedules/{name}/edit":   (*visit).editSchedule,
		"POST /schedules/{name}/edit":  (*visit).editSchedule,
		"POST /schedules/{name}/{act}": (*visit).changeSchedule,
		"GET /biz-types/{name}":        (*visit).bizType,
		"POST /biz-types/{name}/{act}": (*visit).changeBizType,
		"GET /runs":                    (*visit).runs,
		"GET /cluster":                 (*visit).cluster,
		"GET /acts":                    (*visit).acts,
		"GET /":                        (*visit).nowhere,
	} {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if embeds(r) {
				c.foreign(w, r)
				return
			}
			v := c.admit(w, r)
			switch {
			case v == nil:
			case noName(r.PathValue("id")) || noName(r.PathValue("name")):
				v.write(w, v.nowhere())
			default:
				v.write(w, page(v))
			}
		})
	}
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(c.foreign))
	c.pages = http.StripPrefix(c.base, guard.Handler(c.mux))
	return c
}

// foreign refuses what another web page sends.
func (c *Console) foreign(w http.ResponseWriter, r *http.Request) {
	v := c.visit(r)
	v.write(w, v.failed(v.refusal(http.StatusForbidden, "origin", "problem.origin")))
}

// embeds reports whether another web page asks for something to be a part of itself. It could not read it, but without tokens it
// would be made: what it costs is refused. A link leads to a document of its own.
func embeds(r *http.Request) bool {
	return elsewhere(r) && r.Header.Get("Sec-Fetch-Dest") != "document"
}

// elsewhere reports whether a request began at another web page.
func elsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// policy lets a page load and send what comes from its own origin, and run or style nothing that stands in the page itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP answers a request for a page, or has the API answer it.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ours := strings.CutPrefix(r.URL.Path, c.base)
	switch {
	case ours && rest == "" && c.base != "":
		http.Redirect(w, r, c.base+"/", http.StatusPermanentRedirect)
		return
	case !ours || !strings.HasPrefix(rest, "/") || c.base == "" && strings.HasPrefix(rest, "/v1/"):
		c.cfg.API.ServeHTTP(w, r)
		return
	case rest != "/" && path.Clean(rest) != strings.TrimSuffix(rest, "/"): // the mux would send it on, too, but without the base
		to := url.URL{Path: c.base + path.Clean(rest), RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusTemporaryRedirect)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // none at all would hide the origin of forms, too
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	ctx, cancel := context.WithTimeout(r.Context(), c.cfg.Timeout)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil { // pages are written whole, so nothing has been written yet
			c.faults.Of(c.log, "panic").Error("a page failed", "path", r.URL.Path, "error", fmt.Sprint("panic: ", cause))
			http.Error(w, "the console failed: its log has the cause", http.StatusInternalServerError)
		}
	}()
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	c.pages.ServeHTTP(w, r.WithContext(ctx))
}

// maxForm is the longest form, in bytes: it may hold the longest payload twice, and a byte of that may be sent as three.
const maxForm = 256 << 10

// refusal is a problem that the console itself has.
func (v *visit) refusal(status int, code, text string) *api.Problem {
	return &api.Problem{Status: status, Code: code, Title: http.StatusText(status), Detail: v.T(text)}
}

// nowhere answers what is no page.
func (v *visit) nowhere() *page {
	return v.failed(v.refusal(http.StatusNotFound, "no_such_path", "problem.nowhere"))
}

// failed is a page that shows nothing but a problem.
func (v *visit) failed(p *api.Problem) *page {
	return &page{name: "failed", Title: v.T("problem"), Status: p.Status, Problem: p}
}
