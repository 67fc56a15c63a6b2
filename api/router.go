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
	r := route{method: method, serve: serve}
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
		writeProblem(w, r, problem(http.StatusNotFound, "no_such_path", "no operation has this path: docs/api.md and openapi.yaml list all"))
		return
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeProblem(w, r, problem(http.StatusMethodNotAllowed, "method_not_allowed", "this path takes %s", strings.Join(allowed, ", ")))
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
