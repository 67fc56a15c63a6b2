package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// operation describes an operation, for callers and for the code that admits them.
type operation struct {
	id       string // in openapi.yaml and in the log
	method   string
	path     string // after /v1
	tag      string
	summary  string
	about    string // more of it, in Markdown
	needs    apitoken.Scope
	allTypes bool           // only tokens for all biz types
	status   int            // of a success; 0: 200
	also     map[int]string // further successes with the same body, and what they mean
	errors   []int          // beyond those of every operation
	batch    bool           // the body has many items, each of which the operation checks
	lists    bool           // the body has many items, which are checked as the rest of it
	connects bool           // to servers or etcd beside the pools of the API: of one token, few at once
}

// everywhere are the refusals of every operation.
var everywhere = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable}

// body is an answer.
type body[T any] struct{ Body T }

// register adds an operation whose answer is a body alone.
func register[I, O any](a *API, op operation, do func(context.Context, *call, *I) (O, error)) {
	registerWhole(a, op, func(ctx context.Context, c *call, in *I) (*body[O], error) {
		out, err := do(ctx, c, in)
		return &body[O]{out}, err
	})
}

// registerWhole adds an operation whose answer has a status or headers too. An error of do becomes a problem.
func registerWhole[I, O any](a *API, op operation, do func(context.Context, *call, *I) (*O, error)) {
	h := huma.Operation{
		OperationID: op.id, Method: op.method, Path: "/v1" + op.path, Summary: op.summary, Description: op.describe(), Tags: []string{op.tag},
		DefaultStatus: op.status, Errors: append(slices.Clone(everywhere), op.errors...), Middlewares: huma.Middlewares{a.admit(op)},
		BodyReadTimeout: -1, MaxBodyBytes: -1, // admit reads the body
		SkipValidateBody: op.batch,
		Security:         []map[string][]string{{"token": {}}},
	}
	if op.method == http.MethodPost || op.method == http.MethodPut {
		h.Errors = append(h.Errors, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	huma.Register(a.huma, h, func(ctx context.Context, in *I) (*O, error) {
		c := callOf(ctx)
		if op.connects && c.share.connects.Acquire(ctx, 1) == nil { // otherwise ctx has ended, and so do ends
			defer c.share.connects.Release(1)
		}
		out, err := do(ctx, c, in)
		if err == nil {
			return out, nil
		}
		p := asProblem(err)
		c.code = p.Code
		if p.Status >= http.StatusInternalServerError {
			c.cause = err
		}
		return nil, p
	})
	a.document(op)
}

// document adds to openapi.yaml what huma leaves out, and notes the operation for the log.
func (a *API) document(op operation) {
	a.operations[op.method+" /v1"+op.path] = op
	item := a.huma.OpenAPI().Paths["/v1"+op.path]
	for _, described := range []*huma.Operation{item.Put, item.Delete} {
		if described == nil {
			continue
		}
		for _, p := range described.Parameters {
			p.Required = p.Required || p.Name == "If-Match" // huma would answer with 422 where IfMatch answers with 428
		}
	}
	for status, about := range op.also {
		same := *item.Post.Responses[strconv.Itoa(op.status)]
		same.Description = about
		item.Post.Responses[strconv.Itoa(status)] = &same
	}
}

// describe adds who may call the operation.
func (op operation) describe() string {
	who := "Scope: " + string(op.needs) + "."
	if op.allTypes {
		who = "Scope: " + string(op.needs) + ", for all biz types."
	}
	if op.about == "" {
		return who
	}
	return op.about + "\n\n" + who
}

// admit passes requests on whose token allows the operation. Only then it reads their body.
func (a *API) admit(op operation) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c := callOf(ctx.Context())
		c.operation, c.needs = op.id, op.needs
		c.object = line(ctx.URL().Path) // until the operation knows better
		r, w := humago.Unwrap(ctx)
		p := op.allows(c.token)
		if p == nil {
			p = a.readBody(w, r, c, op)
		}
		if p == nil && ctx.Operation().RequestBody == nil && len(c.body) > len("{}") {
			p = problem(http.StatusBadRequest, "malformed", "%s takes no body: leave it out", op.id)
		}
		if p != nil {
			writeProblem(w, r, p)
			return
		}
		next(ctx)
	}
}

// allows returns why a token may not use the operation; nil if it may.
func (op operation) allows(t apitoken.Token) *Problem {
	switch {
	case !t.Scope.Allows(op.needs):
		return problem(http.StatusForbidden, "scope", "%s needs a token of scope %s, and this one has scope %s", op.id, op.needs, t.Scope)
	case op.allTypes && !t.SeesAll():
		return problem(http.StatusForbidden, "biz_types", "%s needs a token for all biz types", op.id)
	}
	return nil
}

// asProblem returns the problem that an error is, or becomes.
func asProblem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return problemOf(err)
}

// open lets answers have further properties in openapi.yaml, as later versions may add some. Requests may not.
func open(doc *huma.OpenAPI) {
	asked := map[string]bool{}
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Post, item.Put} {
			if op == nil || op.RequestBody == nil {
				continue
			}
			for _, content := range op.RequestBody.Content {
				reach(doc.Components.Schemas.Map(), content.Schema, asked)
			}
		}
	}
	for name, s := range doc.Components.Schemas.Map() {
		if !asked[name] && s.AdditionalProperties == false {
			s.AdditionalProperties = nil
		}
	}
}

// reach notes the schemas that a schema refers to, by name.
func reach(all map[string]*huma.Schema, s *huma.Schema, found map[string]bool) {
	if s == nil {
		return
	}
	name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	if name != "" && !found[name] {
		found[name] = true
		reach(all, all[name], found)
	}
	reach(all, s.Items, found)
	for _, property := range s.Properties {
		reach(all, property, found)
	}
}
