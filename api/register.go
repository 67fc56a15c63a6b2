package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

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
}

// everywhere are the refusals of every operation.
var everywhere = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable}

// register adds an operation. An error of do becomes a problem.
func register[I, O any](a *API, op operation, do func(context.Context, *call, *I) (*O, error)) {
	h := huma.Operation{
		OperationID: op.id, Method: op.method, Path: "/v1" + op.path, Summary: op.summary, Description: op.describe(), Tags: []string{op.tag},
		DefaultStatus: op.status, Errors: append(slices.Clone(everywhere), op.errors...), Middlewares: huma.Middlewares{a.admit(op)},
		BodyReadTimeout: -1, MaxBodyBytes: -1, // the body has been read
		Security: []map[string][]string{{"token": {}}},
	}
	if op.method == http.MethodPost || op.method == http.MethodPut {
		h.Errors = append(h.Errors, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	huma.Register(a.huma, h, func(ctx context.Context, in *I) (*O, error) {
		c := callOf(ctx)
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

// document adds further successes to openapi.yaml.
func (a *API) document(op operation) {
	item := a.huma.OpenAPI().Paths["/v1"+op.path]
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

// admit passes requests on whose token allows the operation.
func (a *API) admit(op operation) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c := callOf(ctx.Context())
		c.operation, c.needs = op.id, op.needs
		switch {
		case !c.token.Scope.Allows(op.needs):
			a.refuse(ctx, problem(http.StatusForbidden, "scope", "%s needs a token of scope %s, and this one has scope %s", op.id, op.needs, c.token.Scope))
		case op.allTypes && !c.token.SeesAll():
			a.refuse(ctx, problem(http.StatusForbidden, "biz_types", "%s needs a token for all biz types", op.id))
		case ctx.Operation().RequestBody == nil && c.body > len("{}"):
			a.refuse(ctx, problem(http.StatusBadRequest, "malformed", "%s takes no body: leave it out", op.id))
		default:
			next(ctx)
		}
	}
}

// refuse answers with a problem from a middleware.
func (a *API) refuse(ctx huma.Context, p *Problem) {
	callOf(ctx.Context()).code = p.Code
	ctx.SetHeader("Content-Type", problemJSON)
	ctx.SetStatus(p.Status)
	_ = a.huma.Marshal(ctx.BodyWriter(), "application/json", p) // the caller may be gone
}

// asProblem returns the problem that an error is, or becomes.
func asProblem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return problemOf(err)
}
