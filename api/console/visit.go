package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// visit is one request for a page, from the session on.
type visit struct {
	*Console
	r       *http.Request
	token   string          // whole; "": none is wanted
	who     apitoken.Token  // of the token
	known   bool            // who looks may look
	login   *apitoken.Token // what the proxy's user may do; nil: no proxy has logged him in
	refused *api.Problem    // why the proxy's word is not taken; nil: it is, or there is no proxy
	lang    string          // a key of languages
	zone    *time.Location
	now     time.Time
}

// The cookies of settings.
const (
	langCookie = "tocsin_lang"
	zoneCookie = "tocsin_zone"
)

// visit finds out who looks, and how. The token is looked up each time, so that one that is taken back ends its sessions.
func (c *Console) visit(r *http.Request) *visit {
	v := &visit{Console: c, r: r, now: time.Now(), zone: time.UTC}
	v.lang = preferred(valueOf(r, langCookie), r.Header.Get("Accept-Language"))
	if zone, err := zoneOf(valueOf(r, zoneCookie)); err == nil {
		v.zone = zone
	}
	switch {
	case c.cfg.Proxy != nil:
		v.byProxy()
		return v
	case c.cfg.Tokens == nil:
		v.who, v.known = everyone, true
		return v
	}
	if v.token = c.unsealed(r, v.now); v.token != "" {
		v.who, v.known = c.cfg.Tokens().Find(v.token, v.now)
	}
	return v
}

// valueOf is the value of a cookie; "" for none.
func valueOf(r *http.Request, name string) string {
	cookie, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// zoneOf is a time zone by its IANA name; "" is UTC.
func zoneOf(name string) (*time.Location, error) {
	if name == "Local" { // of the server, which nobody has chosen
		return nil, errors.New("no zone")
	}
	return time.LoadLocation(name)
}

// Can reports whether the token has a scope, so that a page shows no button that would be refused.
func (v *visit) Can(scope apitoken.Scope) bool { return v.who.Scope.Allows(scope) }

// inProcess sends requests to a handler of this process.
type inProcess struct{ handler http.Handler }

// RoundTrip answers a request.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &written{header: http.Header{}}
	t.handler.ServeHTTP(w, r)
	return &http.Response{
		StatusCode: cmp.Or(w.status, http.StatusOK), Header: w.header, Body: io.NopCloser(&w.body), Request: r, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
	}, nil
}

// written is an answer in memory.
type written struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *written) Header() http.Header { return w.header }

func (w *written) Write(b []byte) (int, error) { return w.body.Write(b) }

func (w *written) WriteHeader(status int) { w.status = cmp.Or(w.status, status) }

// call is a request to the API.
type call struct {
	method string // "": GET
	path   string // after /v1, not escaped
	query  url.Values
	body   any     // nil: none
	key    string  // Idempotency-Key; "": none
	match  string  // If-Match; "": none
	tag    *string // gets the ETag of the answer; nil: nobody wants it
}

// noName reports whether a text is no id and no name: in a path of the API these would begin another operation.
func noName(text string) bool { return strings.ContainsAny(text, "/:") }

// ask sends a request as the one who looks, and reads its answer. A refusal is the error, as it was given.
func ask[T any](v *visit, c call) (out T, problem *api.Problem) {
	body := io.Reader(http.NoBody)
	if c.body != nil {
		text, err := json.Marshal(c.body)
		if err != nil {
			panic(err) // they are structs of texts and numbers
		}
		body = bytes.NewReader(text)
	}
	ctx := api.ByConsole(v.r.Context(), cmp.Or(v.who.Name, "none"), v.login)
	r, err := http.NewRequestWithContext(ctx, cmp.Or(c.method, http.MethodGet), "http://console", body)
	if err != nil {
		panic(err) // nothing of it comes from outside
	}
	r.Host, r.RemoteAddr = v.r.Host, v.r.RemoteAddr // an API without tokens answers by loopback names alone; and for the log
	r.URL.Path, r.URL.RawQuery = "/v1"+c.path, c.query.Encode()
	if v.token != "" {
		r.Header.Set("Authorization", "Bearer "+v.token)
	}
	if c.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		r.Header.Set("Idempotency-Key", c.key)
	}
	if c.match != "" {
		r.Header.Set("If-Match", c.match)
	}
	response, err := inProcess{v.cfg.API}.RoundTrip(r)
	if err != nil {
		panic(err) // it returns none
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		problem = &api.Problem{}
		if json.NewDecoder(response.Body).Decode(problem) != nil || problem.Status == 0 {
			problem = &api.Problem{Status: response.StatusCode, Code: "internal", Title: http.StatusText(response.StatusCode)}
		}
		return out, problem
	}
	if c.tag != nil {
		*c.tag = response.Header.Get("ETag")
	}
	if response.StatusCode == http.StatusNoContent {
		return out, nil
	}
	if err := json.NewDecoder(response.Body).Decode(&out); err != nil {
		v.faults.Of(v.log, "decode "+c.path).Error("the console can't read an answer of the API", "path", c.path, "error", err)
		problem = v.refusal(http.StatusInternalServerError, "internal", "problem.internal")
	}
	return out, problem
}

// together does what asks different parts of a cluster, all at once, so that one that is away delays a page once. A panic is one of the
// page: in a goroutine of its own it would end the node.
func together(parts ...func()) {
	var all sync.WaitGroup
	causes := make(chan any, len(parts))
	for _, part := range parts {
		all.Go(func() {
			defer func() {
				if cause := recover(); cause != nil {
					causes <- cause
				}
			}()
			part()
		})
	}
	all.Wait()
	select {
	case cause := <-causes:
		panic(cause)
	default:
	}
}

// T is a text in the language of the visit. Arguments are filled in as by fmt.
func (v *visit) T(key string, args ...any) string {
	pair, ok := texts[key]
	if !ok {
		panic("no text " + key)
	}
	text := pair[languages[v.lang].column]
	if len(args) == 0 {
		return text
	}
	return fmt.Sprintf(text, args...)
}

// Word is a text of a word of the API, such as a status; the word itself if there is none.
func (v *visit) Word(kind string, word any) string {
	if pair, ok := texts[fmt.Sprint(kind, ".", word)]; ok {
		return pair[languages[v.lang].column]
	}
	return fmt.Sprint(word)
}

// moment is a time as a page shows it.
type moment struct{ ISO, Text, Ago string }

// When writes a time with its zone, and how far it is away.
func (v *visit) When(at any) *moment {
	var t time.Time
	switch at := at.(type) {
	case time.Time:
		t = at
	case api.Time:
		t = at.Time
	case *api.Time:
		if at == nil {
			return nil
		}
		t = at.Time
	}
	if t.IsZero() {
		return nil
	}
	away, text := t.Sub(v.now), "ago"
	if away >= time.Second {
		text = "ahead"
	}
	return &moment{t.UTC().Format(time.RFC3339Nano), v.In(t, v.zone), v.T(text, v.rough(away.Abs()))}
}

// In writes a time in a zone, and which.
func (v *visit) In(t time.Time, zone *time.Location) string {
	if t = t.In(zone); zone == time.UTC || zone.String() == "UTC" {
		return t.Format("2006-01-02 15:04:05") + " UTC"
	}
	return t.Format("2006-01-02 15:04:05 -07:00")
}

// Zone names the zone of the visit.
func (v *visit) Zone() string { return v.zone.String() }

// rough writes a length of time in its largest unit, below two days with the next one. Seconds count below ten minutes.
func (v *visit) rough(d time.Duration) string {
	hours, minutes, seconds := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	if hours >= 48 {
		return v.T("unit.d", hours/24)
	}
	var parts []string
	if hours > 0 {
		parts = append(parts, v.T("unit.h", hours))
	}
	if minutes > 0 {
		parts = append(parts, v.T("unit.min", minutes))
	}
	if d < time.Minute || d < 10*time.Minute && seconds > 0 {
		parts = append(parts, v.T("unit.s", seconds))
	}
	return strings.Join(parts, " ")
}

// Span writes milliseconds.
func (v *visit) Span(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d.Abs() < time.Second:
		return v.T("unit.ms", ms)
	case d.Abs() < time.Minute:
		return v.T("unit.seconds", strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0"))
	}
	if d >= 48*time.Hour && d%(24*time.Hour) == 0 {
		return v.rough(d)
	}
	text := d.Round(time.Second).String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return strings.TrimSpace(strings.NewReplacer("h", v.T("span.h"), "m", v.T("span.m"), "s", v.T("span.s")).Replace(text))
}

// form is a value of the request's form.
func (v *visit) form(name string) string { return strings.TrimSpace(v.r.PostFormValue(name)) }
