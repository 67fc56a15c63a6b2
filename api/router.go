package api

import (
	"net/http"
	"slices"
	"strings"
)

// router finds the operation of a request. Unlike http.ServeMux it knows paths such as /v1/tasks/{id}:cancel, and answers 404
// and 405 with problems. It is filled before it serves.
type router struct{ routes []route }

// route is one operation's method and path.
type route struct {
	pattern  string // "POST /v1/tasks/{id}:cancel"
	method   string
	segments []segment
	serve    http.HandlerFunc
}

// segment is a part of a path between slashes: a text, or a parameter with a verb behind it.
type segment struct {
	param string // "": none
	text  string // the whole segment, or what follows the parameter: ":cancel"
}

// HandleFunc adds "GET /v1/tasks/{id}".
func (m *router) HandleFunc(pattern string, serve func(http.ResponseWriter, *http.Request)) {
	method, path, _ := strings.Cut(pattern, " ")
	r := route{pattern: pattern, method: method, serve: serve}
	for part := range strings.SplitSeq(path[1:], "/") {
		s := segment{text: part}
		if inner, ok := strings.CutPrefix(part, "{"); ok {
			s.param, s.text, _ = strings.Cut(inner, "}")
		}
		r.segments = append(r.segments, s)
	}
	m.routes = append(m.routes, r)
}

// ServeHTTP serves the operation of a request, or says that there is none.
func (m *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var allowed []string
	for _, route := range m.routes {
		values, ok := route.match(r.URL.Path)
		switch {
		case !ok:
		case route.method != method:
			allowed = append(allowed, route.method)
		default:
			for i, s := range route.segments {
				if s.param != "" {
					r.SetPathValue(s.param, values[i])
				}
			}
			route.serve(w, r)
			return
		}
	}
	if len(allowed) == 0 {
		writeProblem(w, r, problem(http.StatusNotFound, "no_such_path", "no operation has this path%s: docs/api.md and openapi.yaml list all", m.hint(method, r.URL.Path)))
		return
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	said := problem(http.StatusMethodNotAllowed, "method_not_allowed", "this path takes %s", strings.Join(allowed, ", "))
	if meant := m.meant(method, r.URL.Path); meant != nil && meant.method == method {
		said.Detail += "; perhaps you mean " + meant.pattern
	}
	writeProblem(w, r, said)
}

// pattern returns the pattern of the route of a request; "" if it has none.
func (m *router) pattern(r *http.Request) string {
	for _, route := range m.routes {
		if _, ok := route.match(r.URL.Path); ok && route.method == r.Method {
			return route.pattern
		}
	}
	return ""
}

// hint says which operation a path that none has may mean, without repeating the path; "" if nothing is like it.
func (m *router) hint(method, path string) string {
	if meant := m.meant(method, path); meant != nil {
		return ", perhaps you mean " + meant.pattern
	}
	_, verb := cutVerb(path)
	var others []string
	for _, r := range m.routes {
		if r.segments[len(r.segments)-1].text == ":"+verb {
			others = append(others, r.pattern)
		}
	}
	if len(others) == 0 {
		return ""
	}
	return ", and this verb belongs to " + strings.Join(others, ", ")
}

// meant finds the operation whose path this would be with /v1 before it, without a slash behind it, or with :verb in place of
// /verb; one of that method first. nil: there is none.
func (m *router) meant(method, path string) (found *route) {
	path = "/v1/" + strings.Trim(strings.TrimPrefix(path, "/v1/"), "/")
	object, verb := cutVerb(path)
	for _, try := range []string{path, object + ":" + verb} {
		for i, r := range m.routes {
			if _, ok := r.match(try); ok && (found == nil || found.method != method && r.method == method) {
				found = &m.routes[i]
			}
		}
	}
	return found
}

// cutVerb cuts what follows the last slash or colon of a path.
func cutVerb(path string) (object, verb string) {
	at := strings.LastIndexAny(path, "/:")
	if at < 0 {
		return path, ""
	}
	return path[:at], path[at+1:]
}

// match returns the values of the parameters, by segment, if the path is the route's.
func (r route) match(path string) ([]string, bool) {
	rest, ok := strings.CutPrefix(path, "/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != len(r.segments) {
		return nil, false
	}
	values := make([]string, len(parts))
	for i, s := range r.segments {
		if values[i], ok = s.match(parts[i]); !ok {
			return nil, false
		}
	}
	return values, true
}

// match returns the value of the segment's parameter. No value holds a colon, so /tasks/1:cancel is not a task.
func (s segment) match(part string) (string, bool) {
	if s.param == "" {
		return "", part == s.text
	}
	value, ok := strings.CutSuffix(part, s.text)
	return value, ok && value != "" && !strings.Contains(value, ":")
}
