package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// A proxy of the config logs people in, by the headers that it names.
func TestAProxyOfTheConfigLogsPeopleIn(t *testing.T) {
	t.Parallel()
	file, err := config.Parse([]byte(`
layout: {databases: 1, tables: 1}
servers:
  - dsn: root@tcp(127.0.0.1:1)/
node: {api: {tokens: []}}
console:
  base: /ops/
  proxy:
    networks: [192.0.2.0/24] # that of httptest
    secret: 0123456789abcdef0123456789abcdef
    user_header: Remote-User
    groups: [{group: sre, scope: operate, biz_types: ["*"]}]
`), "tocsin.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	served := api.New(api.Config{Tables: file.Tocsin()})
	defer served.Close()
	h := consoleOf(file, func() apitoken.Set { return nil }, nil)(served)
	for secret, status := range map[string]int{"0123456789abcdef0123456789abcdef": http.StatusSeeOther, "another": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "/ops/login", nil)
		r.Header = http.Header{"X-Tocsin-Proxy-Secret": {secret}, "Remote-User": {"alice"}, "X-Forwarded-Groups": {"sre"}}
		r.Header.Set("Accept-Encoding", "identity")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != status || strings.Contains(w.Body.String(), "alice") {
			t.Errorf("%d, want %d: %s", w.Code, status, w.Body)
		}
	}
}
