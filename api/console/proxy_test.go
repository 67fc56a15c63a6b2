package console_test

import (
	"crypto/tls"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/api/console"
	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// proxySecret is what the proxy of a test sends with each request.
const proxySecret = "0123456789abcdef0123456789abcdef"

// proxied is a console behind a proxy on this host, whose groups have a scope each for order.*, and one everything.
func proxied(c *console.Config) {
	c.Proxy = &console.Proxy{
		Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Secret: proxySecret,
		SecretHeader: "X-Tocsin-Proxy-Secret", UserHeader: "X-Forwarded-User", GroupsHeader: "X-Forwarded-Groups",
		Groups: []apitoken.Group{
			{Name: "sre", Scope: apitoken.Operate, BizTypes: []string{"*"}}, {Name: "运维 nights", Scope: apitoken.Operate, BizTypes: []string{"order.*"}},
			{Name: "shop", Scope: apitoken.Write, BizTypes: []string{"order.*"}}, {Name: "look", Scope: apitoken.Read, BizTypes: []string{"order.*"}},
		},
	}
}

// user is the browser of somebody whom the proxy has logged in.
func (s *site) user(name, groups string) *browser {
	b := s.as("")
	b.header["X-Tocsin-Proxy-Secret"], b.header["X-Forwarded-User"], b.header["X-Forwarded-Groups"] = proxySecret, name, groups
	return b
}

func TestWhoAProxyLogsInMayDoWhatTheGroupMay(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{console: proxied})
	path, foreign := s.add(closing.New(42, "", tocsin.In(time.Hour))), s.add(remind.New(1, "", tocsin.In(time.Hour)))
	sre, night, look := s.user("alice@example.com", "everyone,sre"), s.user("böb", "运维 nights,shop"), s.user("eve", "look")
	got := sre.sees("/biz-types", http.StatusOK, "order.close", "coupon.remind", "alice@example.com", "Scope of your group sre: operate", "A proxy has logged you in: log out there", "Who did what")
	got.lacks(t, "a page", `action="/logout"`, "all sessions")
	if len(got.header.Values("Set-Cookie")) > 0 {
		t.Errorf("a session that holds something: %v", got.header)
	}
	sre.sees(foreign, http.StatusOK, `-H "Authorization: Bearer $TOCSIN_TOKEN"`)
	for _, b := range []*browser{night, look} {
		b.sees(foreign, http.StatusNotFound)
		b.sees("/biz-types", http.StatusOK, "order.close").lacks(t, "a part of the biz types", "coupon.remind")
		b.sees("/acts", http.StatusForbidden, "not for all biz types")
	}
	look.get("/biz-types/order.close").lacks(t, "a reader's page", "/pause")
	look.post("/biz-types/order.close/pause", nil).has(t, "a reader", http.StatusForbidden, "may not do this")
	night.done("/biz-types/order.close/pause", url.Values{"reason": {"they are away"}}, "The biz type is paused")
	s.user("carol", "shop").done(path+"/cancel", nil, "The task was cancelled")
	sre.until("/acts", "böb in the console pause a biz type biz type order.close they are away")
	sre.until("/acts?person=carol", "carol in the console cancel a task")
	if log := s.log.String(); !strings.Contains(log, `token=böb token_id="group 运维 nights"`) || strings.Contains(log, proxySecret) {
		t.Errorf("the log: %s", log)
	}
	for _, b := range []*browser{sre, s.user("nobody", "")} { // what logs in is the proxy alone
		for _, to := range []string{"/login", "/logout"} {
			if got := b.post(to, url.Values{"token": {s.tokens["all"]}}); got.status < 400 || len(got.header.Values("Set-Cookie")) > 0 {
				t.Errorf("%s: %d %v", to, got.status, got.header)
			}
		}
	}
	if got := sre.get("/login?next=/tasks"); got.header.Get("Location") != "/tasks" {
		t.Errorf("%d %v", got.status, got.header)
	}
	sre.header["X-Forwarded-Groups"] = "look" // each request is judged by its own headers
	sre.post("/biz-types/order.close/resume", nil).has(t, "a group that was left", http.StatusForbidden, "may not do this")
}

// Nothing but the proxy is answered, with a token or a session neither; and the API asks for tokens as ever, whatever the headers say.
func TestWhatIsNotOfTheProxyIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{console: proxied})
	session := over(t, s.Cluster, changes{}).as("all").cookies
	path := s.add(closing.New(42, "", tocsin.In(time.Hour)))
	for name, c := range map[string]struct {
		header, value string
		status        int
		says          string
	}{
		"no secret":            {"X-Tocsin-Proxy-Secret", "", http.StatusForbidden, "answers its login proxy alone"},
		"another secret":       {"X-Tocsin-Proxy-Secret", strings.Repeat("0", 32), http.StatusForbidden, "answers its login proxy alone"},
		"a longer secret":      {"X-Tocsin-Proxy-Secret", proxySecret + "0", http.StatusForbidden, "answers its login proxy alone"},
		"no user":              {"X-Forwarded-User", "", http.StatusUnauthorized, "did not say who you are"},
		"no groups":            {"X-Forwarded-Groups", "", http.StatusForbidden, "None of your groups"},
		"groups of others":     {"X-Forwarded-Groups", "SRE,sre2,xsre,/sre,sre.old", http.StatusForbidden, "None of your groups"},
		"groups in two pieces": {"X-Forwarded-Groups", "sre, look", http.StatusUnauthorized, "did not say who you are"},
	} {
		b := s.user("alice", "sre")
		b.cookies = session
		b.header["Authorization"] = "Bearer " + s.tokens["all"]
		b.header[c.header] = c.value
		for _, at := range []string{"/", path, "/acts", "/?part=now", "/login"} {
			b.sees(at, c.status, c.says).lacks(t, at, "order.close", `name="token"`, `href="/cluster"`)
		}
		for _, to := range []string{path + "/cancel", "/settings", "/login", "/logout"} {
			b.post(to, url.Values{"token": {s.tokens["all"]}}).has(t, name+" to "+to, c.status, c.says)
		}
	}
	if task := s.call("GET", path, ""); task["status"] != "pending" {
		t.Errorf("%v", task)
	}
	for _, at := range []string{"/v1/tasks/1", "/v1/acts", "/v1/me"} {
		if got := s.user("alice", "sre").get(at); got.status != http.StatusUnauthorized || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", at, got.status, got.text)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "the secret is missing, wrong or there twice") || !strings.Contains(log, "in no group of console.proxy.groups") {
		t.Errorf("the log: %s", log)
	}
}

// The proxy's cookie comes with requests that other web pages send, too: a form of theirs is refused, a page of the console is no part of
// them, and the origins that may call the API may not read pages.
func TestAnotherWebPageGainsNothingByTheProxysLogin(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{console: proxied, api: func(c *api.Config) { c.Origins = []string{"https://admin.example"} }})
	path := s.add(closing.New(42, "", tocsin.In(time.Hour)))
	for _, header := range []map[string]string{
		{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, {"Sec-Fetch-Site": "same-site", "Origin": "https://admin.example"},
		{"Sec-Fetch-Site": "", "Origin": "https://admin.example"}, {"Sec-Fetch-Site": "", "Origin": "null"},
	} {
		b := s.user("alice", "sre")
		for name, value := range header {
			b.header[name] = value
		}
		for _, to := range []string{path + "/cancel", "/biz-types/order.close/pause", "/", "/tasks/act", "/settings"} {
			got := b.post(to, url.Values{"biz_type": {"order.close"}, "do": {"pause"}, "job_id": {strings.TrimPrefix(path, "/tasks/")}, "act": {"cancel"}, "reason": {"r"}})
			got.has(t, to, http.StatusForbidden, "another web page")
			if got.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%v", got.header)
			}
		}
		b.header["Access-Control-Request-Method"] = "POST"
		if got := b.do(http.MethodOptions, path+"/cancel", nil); got.status < 400 || got.header.Get("Access-Control-Allow-Origin") != "" || got.header.Get("Access-Control-Allow-Headers") != "" {
			t.Errorf("a preflight: %d %v", got.status, got.header)
		}
		if b.header["Sec-Fetch-Site"] != "" {
			b.sees("/cluster?show=stats", http.StatusForbidden, "another web page")
		}
		if got := b.get("/tasks?status=pending"); got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%v", got.header)
		}
	}
	if task := s.call("GET", path, ""); task["status"] != "pending" {
		t.Errorf("%v", task)
	}
	if task := s.call("GET", "/biz-types/order.close", ""); task["paused"] != false {
		t.Errorf("%v", task)
	}
}

// What a browser sends as the proxy's headers, or has the proxy leave out by the header Connection, gains nothing. Some proxies, such
// as oauth2-proxy, leave out what they have set themselves; a careless one adds its headers beside those of the browser.
func TestABrowserCantSpeakForTheProxy(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{console: proxied})
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	t.Cleanup(transport.CloseIdleConnections)
	login := http.Header{"X-Tocsin-Proxy-Secret": {proxySecret}, "X-Forwarded-User": {"eve"}, "X-Forwarded-Groups": {"look"}}
	set := func(join func(sent, ours []string) []string) *httputil.ReverseProxy {
		return &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			for name, values := range login {
				r.Out.Header[name] = join(r.In.Header.Values(name), values)
			}
		}}
	}
	careful := set(func(_, ours []string) []string { return ours })
	careless := set(func(sent, ours []string) []string { return slices.Concat(sent, ours) })
	joins := set(func(sent, ours []string) []string { return []string{strings.Join(append(sent, ours...), ", ")} })
	old := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		maps.Copy(r.Out.Header, login)
		for name := range strings.SplitSeq(r.In.Header.Get("Connection"), ", ") {
			r.Out.Header.Del(name)
		}
	}}
	cases := map[string]struct {
		proxy  http.Handler
		header map[string]string
		status int
	}{
		"as it should be":           {careful, nil, http.StatusOK},
		"a group of the browser's":  {careful, map[string]string{"X-Forwarded-Groups": "sre", "X-Forwarded-User": "alice"}, http.StatusOK},
		"with Connection":           {careful, map[string]string{"Connection": "close, X-Forwarded-Groups, X-Forwarded-User, X-Tocsin-Proxy-Secret"}, http.StatusOK},
		"the groups left out":       {old, map[string]string{"Connection": "X-Forwarded-Groups"}, http.StatusForbidden},
		"the user left out":         {old, map[string]string{"Connection": "X-Forwarded-User"}, http.StatusUnauthorized},
		"the secret left out":       {old, map[string]string{"Connection": "X-Tocsin-Proxy-Secret"}, http.StatusForbidden},
		"a group beside another":    {careless, map[string]string{"X-Forwarded-Groups": "sre"}, http.StatusUnauthorized},
		"a user beside another":     {careless, map[string]string{"X-Forwarded-User": "alice"}, http.StatusUnauthorized},
		"a secret beside another":   {careless, map[string]string{"X-Tocsin-Proxy-Secret": "x"}, http.StatusForbidden},
		"a group before another":    {joins, map[string]string{"X-Forwarded-Groups": "sre"}, http.StatusUnauthorized},
		"a user before another":     {joins, map[string]string{"X-Forwarded-User": "alice"}, http.StatusUnauthorized},
		"another way to write them": {careful, map[string]string{"X_Forwarded_Groups": "sre", "x-forwarded-groups": "sre"}, http.StatusOK},
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { cases[r.Header.Get("Case")].proxy.ServeHTTP(w, r) }))
	t.Cleanup(front.Close)
	for name, c := range cases {
		b := &browser{site: &site{t: t, url: front.URL, host: front.URL}, header: map[string]string{"Case": name}}
		for header, value := range c.header {
			b.header[header] = value
		}
		got := b.get("/biz-types")
		got.lacks(t, name, "coupon.remind", "alice")
		if got.status != c.status || c.status == http.StatusOK && !strings.Contains(got.words(), "eve") {
			t.Errorf("%s: %d %s", name, got.status, got.words())
		}
	}
}
