package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// Console is the web pages that tocsin serve has at the address of the HTTP API. The zero value: there are none.
type Console struct {
	Base  string `yaml:"base"`  // path of the first page, which begins and ends with a slash: /, or /a/b/ behind a proxy that passes such paths on; "": no console
	Key   string `yaml:"key"`   // seals the cookies of its sessions, ${NAME}, 32 to 256 visible characters; nodes behind one address need the same; "": made at start, so that a restart ends all sessions
	Proxy *Proxy `yaml:"proxy"` // logs people in; none: they log in with tokens of the API
	Links Links  `yaml:"links"` // to other programs
}

// Proxy is a reverse proxy that logs people in, and says in headers of each request who they are. The console answers nobody else.
type Proxy struct {
	Networks     []string         `yaml:"networks"`      // that its connections come from, 10.0.3.0/24
	Secret       string           `yaml:"secret"`        // that it sends with each request, ${NAME}, 32 to 256 visible characters
	SecretHeader string           `yaml:"secret_header"` // "": X-Tocsin-Proxy-Secret
	UserHeader   string           `yaml:"user_header"`   // "": X-Forwarded-User
	GroupsHeader string           `yaml:"groups_header"` // names with commas between them; "": X-Forwarded-Groups
	Groups       []apitoken.Group `yaml:"groups"`        // a user has the rights of the first group of this list that he is in; without one, none
}

// Links are where pages of the console lead to beside themselves.
type Links struct {
	Trace   string `yaml:"trace"`   // of a trace, https://jaeger.example.com/trace/{trace_id}; "": none
	Grafana string `yaml:"grafana"` // the address of a Grafana with the dashboards of deploy/grafana, https://grafana.example.com; "": none
}

// minConsoleKey is the shortest key, in characters, and the shortest secret of a proxy.
const minConsoleKey = 32

// consoleKeyWords says what a key and a secret are.
const consoleKeyWords = "32 to 256 visible ASCII characters without spaces, such as those of `openssl rand -hex 32`"

// isConsoleKey reports whether a text is a key or a secret of a proxy.
func isConsoleKey(text string) bool { return tokenForm.MatchString(text) && len(text) >= minConsoleKey }

// console checks console.
func (c *check) console(f File) {
	const where = "console"
	base := f.Console.Base
	c.Refuse(f.Console.Key != "" && base == "", where+".key", "console has a key and no base: base is the path of the first page, such as /")
	if base != "" {
		bad := base != "/" && (path.Clean(base)+"/" != base || !strings.HasPrefix(base, "/")) || strings.ContainsAny(base, "?#%;{} \\\"'<>")
		c.Refuse(bad, where+".base", "console.base %q: want a path that begins and ends with a slash, such as / or /a/b/", base)
		c.Refuse(base == "/v1/" || strings.HasPrefix(base, "/v1/"), where+".base", "console.base %q: /v1/ is the HTTP API's", base)
	}
	c.Refuse(f.Console.Key != "" && !isConsoleKey(f.Console.Key), where+".key", "console.key: want "+consoleKeyWords)
	if p := f.Console.Proxy; p != nil {
		c.Refuse(base == "", where+".proxy", "console has a proxy and no base: base is the path of the first page, such as /")
		c.Refuse(!f.Node.API.HasTokens(), where+".proxy", "console.proxy: the API beside it needs tokens, or whoever reaches it may do everything: set node.api.tokens_file or node.api.tokens, which may be []")
		c.proxy(*p)
	}
	c.links(f.Console.Links)
}

// headerForm is the name of a header.
var headerForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// proxy checks console.proxy.
func (c *check) proxy(p Proxy) {
	const where = "console.proxy"
	c.Refuse(len(p.Networks) == 0, where, "console.proxy.networks: name the networks of the proxy, such as 10.0.3.0/24")
	for i, network := range p.Networks {
		at := fmt.Sprintf("%s.networks[%d]", where, i)
		prefix, err := netip.ParsePrefix(network)
		switch {
		case err != nil:
			c.Refuse(true, at, "console.proxy.networks: %q is not a network such as 10.0.3.0/24, or 10.0.3.7/32 for one address", network)
		case prefix.Bits() == 0:
			c.Refuse(true, at, "console.proxy.networks: %s is everybody: name the network of the proxy alone", network)
		case prefix.Addr().Is4In6():
			c.Refuse(true, at, "console.proxy.networks: write %s as an IPv4 network, such as 10.0.3.0/24", network)
		}
	}
	c.Refuse(!isConsoleKey(p.Secret), where+".secret", "console.proxy.secret: want "+consoleKeyWords)
	headers := []string{p.SecretHeader, p.UserHeader, p.GroupsHeader}
	for i, key := range []string{"secret_header", "user_header", "groups_header"} {
		c.Refuse(!headerForm.MatchString(headers[i]), where+"."+key, "console.proxy.%s %q: want the name of a header, of letters, digits and hyphens", key, headers[i])
	}
	headers = []string{strings.ToLower(p.SecretHeader), strings.ToLower(p.UserHeader), strings.ToLower(p.GroupsHeader)}
	slices.Sort(headers)
	c.Refuse(len(slices.Compact(headers)) < len(headers), where, "console.proxy: secret_header, user_header and groups_header are to be three headers")
	c.Refuse(len(p.Groups) == 0, where, "console.proxy.groups: name the groups that may use the console, such as {group: sre, scope: operate, biz_types: [\"*\"]}")
	before := len(c.Found)
	for i, g := range p.Groups {
		c.Note(fmt.Sprintf("%s.groups[%d]", where, i), g.Check())
	}
	if len(c.Found) == before {
		c.Note(where+".groups", apitoken.CheckGroups(p.Groups))
	}
}

// withDefaults fills in the names of headers.
func (p Proxy) withDefaults() *Proxy {
	fill(&p.SecretHeader, "X-Tocsin-Proxy-Secret")
	fill(&p.UserHeader, "X-Forwarded-User")
	fill(&p.GroupsHeader, "X-Forwarded-Groups")
	return &p
}

// Prefixes are the networks of a proxy that was checked.
func (p Proxy) Prefixes() []netip.Prefix {
	all := make([]netip.Prefix, len(p.Networks))
	for i, network := range p.Networks {
		all[i] = netip.MustParsePrefix(network)
	}
	return all
}

// traceID stands for the id of a trace in console.links.trace.
const traceID = "{trace_id}"

// links checks console.links.
func (c *check) links(l Links) {
	const where = "console.links"
	if l.Trace != "" {
		_, ok := webAddress(strings.ReplaceAll(l.Trace, traceID, "0"))
		_, rest, _ := strings.Cut(l.Trace, "://")
		host := rest[:max(0, strings.IndexAny(rest, "/?#"))]
		c.Refuse(!ok || strings.Contains(host, traceID) || !strings.Contains(rest[len(host):], traceID), where+".trace",
			"console.links.trace %q: want an http or https URL with %s in its path, query or fragment, such as https://jaeger.example.com/trace/%s", l.Trace, traceID, traceID)
	}
	if l.Grafana != "" {
		u, ok := webAddress(l.Grafana)
		c.Refuse(!ok || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(l.Grafana, "?#"), where+".grafana",
			"console.links.grafana %q: want the http or https URL of a Grafana without a query, such as https://grafana.example.com", l.Grafana)
	}
}

// webAddress reads an http or https URL that holds no user and no password.
func webAddress(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	if err != nil {
		return &url.URL{}, false
	}
	return u, (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && !strings.ContainsAny(text, " \t\\\"'<>{}")
}
