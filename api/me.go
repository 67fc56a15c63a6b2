package api

import (
	"context"
	"net/http"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// me registers the operation that shows what the caller may do.
func (a *API) me() {
	register(a, operation{
		id: "get_me", method: http.MethodGet, path: "/me", tag: "token", needs: apitoken.Read, summary: "Say what the token is and may do",
		about: "Reads no server. An API without tokens answers for everybody on its host.",
	}, func(_ context.Context, c *call, _ *struct{}) (Me, error) {
		return Me{
			Name: c.token.Name, Scope: string(c.token.Scope), BizTypes: c.token.BizTypes, AllTypes: c.token.SeesAll(), Expires: timeOf(c.token.Expires),
			Tokens: a.cfg.Tokens != nil,
		}, nil
	})
}

// Me is the token of a request.
type Me struct {
	Name     string   `json:"name" doc:"Of the holder; none if the API has no tokens" example:"shop"`
	Scope    string   `json:"scope" enum:"read,write,operate" doc:"Each includes those before it"`
	BizTypes []string `json:"biz_types" doc:"Names of biz types, in which * stands for any text" example:"order.*"`
	AllTypes bool     `json:"all_biz_types" doc:"The token is for all biz types, so also for nodes and tables"`
	Expires  *Time    `json:"expires,omitempty" doc:"When the token ends; left out: never"`
	Tokens   bool     `json:"tokens" doc:"The API has tokens; without them everybody on its host may do everything"`
}
