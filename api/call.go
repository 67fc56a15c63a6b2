package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// call is one request, from its token on. It belongs to the goroutine that serves the request.
type call struct {
	token     apitoken.Token
	operation string         // "": no operation has been found
	needs     apitoken.Scope // of the operation
	object    string         // what a write is about
	outcome   string         // of a write that succeeded
	reason    string         // that the caller gave for a write
	dry       bool           // nothing was changed, as asked
	console   string         // user of a console that sent it; "": no console did
	code      string         // of the problem that it ended with; "": none
	share     *share         // of the token
	held      int64          // bytes that count in share
	body      []byte         // whole; nil: none, or not read yet
	unsent    func()         // takes back what the answer hands over, if it can't be written; nil: nothing
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

// report logs each write with its outcome, and each failure of the API itself.
func (a *API) report(r *http.Request, c *call, status int) {
	if c.cause != nil && r.Context().Err() != context.Canceled { // else its caller is gone, or the node stops
		level, message := slog.LevelWarn, "an API request failed"
		switch {
		case c.code == "":
			message = "an API answer is incomplete"
		case status == http.StatusInternalServerError:
			level = slog.LevelError
		}
		a.faults.Of(a.log, c.operation+c.code).Log(r.Context(), level, message,
			"operation", c.operation, "token", c.token.Name, "code", c.code, "error", line(c.cause.Error()))
	}
	id, needs, object, token := c.operation, c.needs, c.object, c.token.ID
	if status == http.StatusUnauthorized {
		op := a.operations[a.router.pattern(r)]
		id, needs, object, token = op.id, op.needs, line(r.URL.Path), apitoken.IDOf(bearer(r))
	}
	if id == "" || !needs.Allows(apitoken.Write) {
		return
	}
	log := a.log
	if status == http.StatusUnauthorized { // anybody can send these
		log = a.faults.Of(log, "API write without a token")
	}
	about := []any{"token", c.token.Name, "token_id", token, "from", r.RemoteAddr,
		"operation", id, "object", object, "outcome", cmp.Or(c.code, c.outcome, "ok"), "status", status}
	if c.console != "" {
		about = append(about, "console", c.console)
	}
	if c.reason != "" {
		about = append(about, "reason", c.reason)
	}
	log.Info("API write", about...)
}
