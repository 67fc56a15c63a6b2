package api

import (
	"context"
	"errors"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// call is one request, from its token on. It belongs to the goroutine that serves the request.
type call struct {
	token     apitoken.Token
	operation string         // "": no operation has been found
	needs     apitoken.Scope // of the operation
	object    string         // what a write is about
	outcome   string         // of a write that succeeded
	code      string         // of the problem that it ended with; "": none
	share     *share         // of the token
	held      int64          // bytes that count in share
	body      []byte         // whole; nil: none, or not read yet
	cause     error          // of a problem that the caller is not told in full
}

type callKey struct{}

// callOf returns the request's call. Outside of a request it is one that nobody reads.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// note keeps what a problem was about, for the log.
func (c *call) note(p *Problem, text string, errs []error) {
	c.code = p.Code
	if p.Status >= 500 {
		c.cause = errors.Join(append([]error{errors.New(text)}, errs...)...)
	}
}

// sees reports whether the caller may know of a biz type.
func (c *call) sees(bizType string) bool { return c.token.Sees(bizType) }

// filter is sees for package operator; nil: everything.
func (c *call) filter() func(string) bool {
	if c.token.SeesAll() {
		return nil
	}
	return c.token.Sees
}
