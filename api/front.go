package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin/internal/apitoken"
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

// front serves a request from its first check to the line in the log.
func (a *API) front(to http.ResponseWriter, r *http.Request) {
	a.inHand.Add(1)
	defer a.inHand.Done()
	a.metrics.begin()
	c, began := &call{}, time.Now()
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), callKey{}, c), a.cfg.Timeout)
	defer cancel()
	w, r := &answer{ResponseWriter: to}, r.WithContext(ctx)
	defer func() {
		if v := recover(); v != nil {
			c.cause = fmt.Errorf("panic: %v", v)
			if w.status == 0 {
				writeProblem(w, r, problem(http.StatusInternalServerError, "internal", "the API failed: its log has the cause"))
			}
		}
		a.report(r, c, w.status)
		a.metrics.end(c, w.status, time.Since(began))
	}()
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if a.preflight(w, r) {
		return
	}
	if p := a.check(w, r, c); p != nil {
		writeProblem(w, r, p)
		return
	}
	a.router.ServeHTTP(w, r)
}

// check returns why a request is refused before an operation is looked for; nil if it isn't.
func (a *API) check(w http.ResponseWriter, r *http.Request, c *call) *Problem {
	if p := a.local(r); p != nil {
		return p
	}
	if p := a.authenticate(w, r, c); p != nil {
		return p
	}
	if wait := a.rates.take(c.token.ID); wait > 0 {
		return problem(http.StatusTooManyRequests, "rate", "the token has used up its %g requests a second: repeat the request after Retry-After", a.cfg.Rate).after(wait)
	}
	if p := a.readBody(w, r, c); p != nil {
		return p
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
	if a.cfg.Tokens == nil {
		c.token = everyone
		return nil
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token, ok := a.cfg.Tokens().Find(strings.TrimSpace(given), time.Now())
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tocsin"`)
		return problem(http.StatusUnauthorized, "token", "send a token that is known and has not expired: Authorization: Bearer toc_ID_SECRET")
	}
	c.token = token
	return nil
}

// readBody reads the whole body, so that nothing of it is left to the operation's time.
func (a *API) readBody(w http.ResponseWriter, r *http.Request, c *call) *Problem {
	read, err := io.ReadAll(http.MaxBytesReader(w, r.Body, a.cfg.Body))
	// The deadline of the read must not end the operation.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // HTTP/2 has none
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return problem(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes: send less, or raise node.api.limits.body_kib", a.cfg.Body)
	}
	if err != nil {
		return problem(http.StatusBadRequest, "malformed", "the body could not be read in time and in full: send it again")
	}
	c.body, r.Body = len(read), io.NopCloser(bytes.NewReader(read))
	if len(read) == 0 {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" || r.Header.Get("Content-Encoding") != "" {
		return problem(http.StatusUnsupportedMediaType, "unsupported_media_type", "send the body as it is, with Content-Type: application/json")
	}
	switch {
	case !utf8.Valid(read):
		return problem(http.StatusBadRequest, "invalid_utf8", "the body is not UTF-8")
	case !json.Valid(read):
		return notJSON(read)
	case loneSurrogate(read):
		return problem(http.StatusBadRequest, "invalid_utf8", `the body has half of a surrogate pair, such as \ud800, which is no character`)
	}
	r.Header.Set("Content-Type", "application/json")
	return nil
}

// notJSON names the byte at which a body stops being JSON, without repeating any of it.
func notJSON(body []byte) *Problem {
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(any)); !errors.As(err, &syntax) {
		return problem(http.StatusBadRequest, "malformed", "the body is not JSON")
	}
	return problem(http.StatusBadRequest, "malformed", "the body is not JSON: see byte %d", syntax.Offset)
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

// loneSurrogate reports whether a text of valid JSON has an escape of half a surrogate pair, which Go would replace.
func loneSurrogate(text []byte) bool {
	for i := 0; i < len(text)-1; i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		switch unit := unitAt(text, i); {
		case unit >= 0xDC00 && unit < 0xE000:
			return true
		case unit >= 0xD800 && unit < 0xDC00:
			low := -1
			if i+6 < len(text) && text[i+5] == '\\' {
				low = unitAt(text, i+6)
			}
			if low < 0xDC00 || low >= 0xE000 {
				return true
			}
			i += 10
		}
	}
	return false
}

// unitAt reads the uXXXX of an escape; -1 if there is none.
func unitAt(text []byte, i int) (unit int) {
	if i+4 >= len(text) || text[i] != 'u' {
		return -1
	}
	if _, err := fmt.Sscanf(string(text[i+1:i+5]), "%x", &unit); err != nil {
		return -1
	}
	return unit
}
