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
	if c.operation == "" || !c.needs.Allows(apitoken.Write) {
		return
	}
	a.log.Info("API write", "token", c.token.Name, "token_id", c.token.ID, "from", r.RemoteAddr,
		"operation", c.operation, "object", c.object, "outcome", cmp.Or(c.code, c.outcome, "ok"), "status", status)
}
