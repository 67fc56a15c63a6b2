package api

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/pull"
)

// everyone is the token of all callers if the API has no tokens: then they are on this host.
var everyone = apitoken.Token{Name: "none", Scope: apitoken.Operate, BizTypes: []string{"*"}}

// answer remembers the status of what was written.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader writes the status.
func (w *answer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// The rest of a body is read for this long, and no more than this of it, when its request is refused: a caller that still
// sends then gets the answer instead of a reset connection.
const (
	leftoverWithin = 500 * time.Millisecond
	leftover       = 256 << 10
)

// front serves a request from its first check to the line in the log.
func (a *API) front(to http.ResponseWriter, r *http.Request) {
	a.inHand.Add(1)
	defer a.inHand.Done()
	a.metrics.inFlight.Inc()
	c, began := &call{}, time.Now()
	by, _ := r.Context().Value(consoleKey{}).(byConsole)
	c.console = by.user
	within := a.cfg.Timeout
	if polls(r) {
		within += pull.MaxWait
	}
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), callKey{}, c), within)
	defer cancel()
	w, r := &answer{ResponseWriter: to}, r.WithContext(ctx)
	defer func() {
		if v := recover(); v != nil {
			c.cause = fmt.Errorf("panic: %v", v)
			if w.status == 0 {
				writeProblem(w, r, problem(http.StatusInternalServerError, "internal", "the API failed: its log has the cause"))
			}
		}
		if c.unsent != nil {
			c.unsent()
		}
		c.release()
		a.report(r, c, w.status)
		a.noteAct(c, w.status)
		a.metrics.end(c, w.status, time.Since(began))
	}()
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if a.preflight(w, r) {
		return
	}
	if r.ProtoMajor == 1 && r.Body != http.NoBody { // a stream of HTTP/2 is reset when it is answered
		// readBody waits for longer.
		if http.NewResponseController(w).SetReadDeadline(began.Add(leftoverWithin)) == nil {
			defer io.Copy(io.Discard, io.LimitReader(r.Body, leftover))
		}
	}
	if p := a.check(w, r, c); p != nil {
		writeProblem(w, r, p)
		return
	}
	a.router.ServeHTTP(w, r)
	if c.unsent != nil && r.Context().Err() == nil && http.NewResponseController(w).Flush() == nil {
		c.unsent = nil // from now on a caller may have all, and go
	}
}

// check returns why a request is refused before an operation is looked for; nil if it isn't.
func (a *API) check(w http.ResponseWriter, r *http.Request, c *call) *Problem {
	if p := a.local(r); p != nil {
		return p
	}
	if p := a.authenticate(w, r, c); p != nil {
		return p
	}
	c.share = a.rates.of(c.token.ID)
	if polls(r) {
		return checkQuery(r.URL)
	}
	if wait := c.share.take(); wait > 0 {
		return problem(http.StatusTooManyRequests, "rate", "the token has used up its %.15g requests a second: repeat the request after Retry-After", a.cfg.Rate).after(wait)
	}
	return checkQuery(r.URL)
}

// local refuses requests from web pages, and foreign host names, if the API has no tokens. Otherwise a page in a browser
// of this host could send requests, or read answers after its DNS name was changed to this host (DNS rebinding).
func (a *API) local(r *http.Request) *Problem {
	if a.cfg.Tokens != nil {
		return nil
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return problem(http.StatusForbidden, "host", "an API without tokens answers to localhost and loopback addresses only: call it by one, or make a token with `tocsin token new`")
	}
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	foreign := origin != "" || site != "" && site != "none" && site != "same-origin"
	if foreign && !slices.Contains(a.cfg.Origins, origin) {
		return problem(http.StatusForbidden, "origin", "an API without tokens takes no requests of web pages: name the page's origin in node.api.cors, or make a token with `tocsin token new`")
	}
	return nil
}

// authenticate finds the token of a request.
func (a *API) authenticate(w http.ResponseWriter, r *http.Request, c *call) *Problem {
	if by, _ := r.Context().Value(consoleKey{}).(byConsole); by.login != nil {
		c.token = *by.login
		return nil
	}
	if a.cfg.Tokens == nil {
		c.token = everyone
		return nil
	}
	token, ok := a.cfg.Tokens().Find(bearer(r), time.Now())
	if !ok {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tocsin"`)
		return problem(http.StatusUnauthorized, "token", "send a token that is known and has not expired: Authorization: Bearer toc_ID_SECRET")
	}
	c.token = token
	return nil
}

// bearer returns the token that a request has; "" for none.
func bearer(r *http.Request) string {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(given)
}

// checkQuery refuses parameters that are given twice, or are not UTF-8.
func checkQuery(u *url.URL) *Problem {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || !utf8.ValidString(u.Path) {
		return problem(http.StatusBadRequest, "malformed", "the path or the query is not well-formed: escape it with percent signs")
	}
	for name, values := range query {
		if len(values) > 1 {
			return problem(http.StatusBadRequest, "malformed", "a query parameter is given more than once")
		}
		if !utf8.ValidString(name) || !utf8.ValidString(values[0]) {
			return problem(http.StatusBadRequest, "invalid_utf8", "a query parameter is not UTF-8")
		}
	}
	return nil
}

// preflight lets pages of the configured origins read answers, and answers what browsers ask before they send a request.
// It returns true if it has answered the request.
func (a *API) preflight(w http.ResponseWriter, r *http.Request) bool {
	if len(a.cfg.Origins) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !slices.Contains(a.cfg.Origins, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Location, Retry-After, ETag")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, Idempotency-Key")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
