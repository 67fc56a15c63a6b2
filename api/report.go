package api

import (
	"cmp"
	"log/slog"
	"net/http"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// report logs each write with its outcome, and each failure of the API itself.
func (a *API) report(r *http.Request, c *call, status int) {
	if c.cause != nil {
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
	log.Info("API write", "token", c.token.Name, "token_id", token, "from", r.RemoteAddr,
		"operation", id, "object", object, "outcome", cmp.Or(c.code, c.outcome, "ok"), "status", status)
}
