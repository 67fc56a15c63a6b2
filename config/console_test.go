package config

import (
	"regexp"
	"strings"
	"testing"
)

func TestAConsoleHasABaseAndAKey(t *testing.T) {
	t.Parallel()
	const head = "layout: {databases: 1, tables: 1}\nservers:\n  - dsn: root@tcp(h:1)/\n"
	key := strings.Repeat("k", 32)
	for _, base := range []string{"/", "/a/", "/a/b.c-d/"} {
		if f := parsed(t, []byte(head+"console: {base: "+base+", key: "+key+"}\n")); f.Console.Base != base || f.Console.Key != key {
			t.Errorf("%+v", f.Console)
		}
	}
	for console, want := range map[string]string{
		"{base: a}":                   `f.yaml:4: console.base "a": want a path that begins and ends with a slash, such as / or /a/b/`,
		"{base: /a}":                  `console.base "/a": want a path`,
		"{base: //a/}":                `console.base "//a/": want a path`,
		"{base: /a/../}":              `console.base "/a/../": want a path`,
		"{base: '/a?b/'}":             `console.base "/a?b/": want a path`,
		"{base: /v1/}":                `console.base "/v1/": /v1/ is the HTTP API's`,
		"{base: /, key: short}":       "f.yaml:4: console.key: want 32 to 256 visible ASCII characters",
		"{key: " + key + "}":          "console has a key and no base",
		"{base: /, key: '${NOBODY}'}": "environment variable NOBODY is not set",
	} {
		_, err := Parse([]byte(head+"console: "+console+"\n"), "f.yaml", env)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\ngot  %v\nwant %s", console, err, want)
		}
	}
}

// withProxy is a config with a console behind a proxy, and other keys beside it.
func withProxy(proxy, more string) []byte {
	return []byte("layout: {databases: 1, tables: 1}\nservers:\n  - dsn: root@tcp(h:1)/\n" + more + "console:\n  base: /\n  proxy:\n    " + strings.ReplaceAll(proxy, "\n", "\n    ") + "\n")
}

const (
	someTokens = "node: {api: {tokens: []}}\n"
	someSecret = "secret: 0123456789abcdef0123456789abcdef\n"
	someProxy  = "networks: [10.0.3.0/24, 'fd00::/8']\n" + someSecret
	someGroups = "groups:\n  - {group: sre, scope: operate, biz_types: ['*']}\n  - {group: 运维 nights, scope: read, biz_types: [order.*]}"
)

func TestAConsoleMayBeBehindAProxyThatLogsPeopleIn(t *testing.T) {
	t.Parallel()
	p := parsed(t, withProxy(someProxy+someGroups, someTokens)).Console.Proxy
	if p.SecretHeader != "X-Tocsin-Proxy-Secret" || p.UserHeader != "X-Forwarded-User" || p.GroupsHeader != "X-Forwarded-Groups" {
		t.Errorf("%+v", p)
	}
	if len(p.Prefixes()) != 2 || p.Prefixes()[0].String() != "10.0.3.0/24" || len(p.Groups) != 2 || p.Groups[1].Name != "运维 nights" {
		t.Errorf("%+v", p)
	}
	p = parsed(t, withProxy(someProxy+someGroups+"\nuser_header: Remote-User\nsecret_header: X-Secret", someTokens)).Console.Proxy
	if p.SecretHeader != "X-Secret" || p.UserHeader != "Remote-User" {
		t.Errorf("%+v", p)
	}
}

func TestAWrongProxyIsRefused(t *testing.T) {
	t.Parallel()
	group := func(group string) string { return someProxy + "groups:\n  - " + group }
	for proxy, want := range map[string]string{
		someSecret + someGroups:                                          "f.yaml:8: console.proxy.networks: name the networks of the proxy",
		"networks: [10.0.3.7]\n" + someSecret + someGroups:               `f.yaml:8: console.proxy.networks: "10.0.3.7" is not a network such as 10.0.3.0/24, or 10.0.3.7/32 for one address`,
		"networks: [10.0.3.0/24, 0.0.0.0/0]\n" + someSecret + someGroups: "f.yaml:8: console.proxy.networks: 0.0.0.0/0 is everybody: name the network of the proxy alone",
		"networks: ['::/0']\n" + someSecret + someGroups:                 "::/0 is everybody",
		"networks: ['::ffff:10.0.3.0/120']\n" + someSecret + someGroups:  "write ::ffff:10.0.3.0/120 as an IPv4 network",
		"networks: [10.0.3.0/24]\n" + someGroups:                         "console.proxy.secret: want 32 to 256 visible ASCII characters",
		"networks: [10.0.3.0/24]\nsecret: short\n" + someGroups:          "f.yaml:9: console.proxy.secret: want 32 to 256 visible ASCII characters",
		"networks: [10.0.3.0/24]\nsecret: ${NOBODY}\n" + someGroups:      "f.yaml:9: environment variable NOBODY is not set",
		someProxy + someGroups + "\nuser_header: 'X User'":               `console.proxy.user_header "X User": want the name of a header`,
		someProxy + someGroups + "\ngroups_header: x-forwarded-user":     "console.proxy: secret_header, user_header and groups_header are to be three headers",
		someProxy: "console.proxy.groups: name the groups that may use the console",
		group("{group: sre, scope: admin, biz_types: ['*']}"):                                                    `f.yaml:11: group sre: scope "admin": use read, write or operate`,
		group("{group: sre, scope: read}"):                                                                       "group sre: biz_types is empty: name biz types",
		group("{group: sre, scope: read, biz_types: [Order]}"):                                                   `group sre: biz type "Order": use a name`,
		group("{group: 'a,b', scope: read, biz_types: ['*']}"):                                                   `group "a,b": want a name without commas`,
		group("{group: ' sre', scope: read, biz_types: ['*']}"):                                                  `group " sre": want a name without commas, without spaces at its ends`,
		group(`{group: "s\u200bre", scope: read, biz_types: ['*']}`):                                             "and of visible characters",
		group("{scope: read, biz_types: ['*']}"):                                                                 `group "": want a name`,
		group("{group: sre, scope: read, biz_types: ['*']}\n  - {group: sre, scope: operate, biz_types: ['*']}"): "group sre: the group stands here twice",
		someProxy + someGroups + "\nuser: alice":                                                                 "user",
	} {
		_, err := Parse(withProxy(proxy, someTokens), "f.yaml", env)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\ngot  %v\nwant %s", proxy, err, want)
		}
	}
	_, err := Parse(withProxy(someProxy+someGroups, ""), "f.yaml", env)
	if want := "f.yaml:7: console.proxy: the API beside it needs tokens, or whoever reaches it may do everything"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	_, err = Parse([]byte(strings.Replace(string(withProxy(someProxy+someGroups, someTokens)), "  base: /\n", "", 1)), "f.yaml", env)
	if want := "console has a proxy and no base"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestLinksOfTheConsoleAreAddressesOfWebPages(t *testing.T) {
	t.Parallel()
	with := func(links string) []byte {
		return []byte("layout: {databases: 1, tables: 1}\nservers:\n  - dsn: root@tcp(h:1)/\nconsole: {base: /, links: {" + links + "}}\n")
	}
	for _, good := range []string{"trace: 'https://jaeger.example:16686/trace/{trace_id}'", "trace: 'http://h/explore?left=%7B%22q%22:%22{trace_id}%22%7D#{trace_id}'", "grafana: https://grafana.example", "grafana: 'http://h:3000/grafana/'"} {
		parsed(t, with(good))
	}
	for link, want := range map[string]string{
		"trace: 'https://h/trace/'":               `f.yaml:4: console.links.trace "https://h/trace/": want an http or https URL with {trace_id} in its path, query or fragment`,
		"trace: 'javascript:alert({trace_id})'":   "console.links.trace",
		"trace: 'data:text/html,{trace_id}'":      "console.links.trace",
		"trace: 'https://{trace_id}.example/x'":   "console.links.trace",
		"trace: '//h/{trace_id}'":                 "console.links.trace",
		"trace: 'https:///{trace_id}'":            "console.links.trace",
		"trace: 'https://a:b@h/{trace_id}'":       "console.links.trace",
		`trace: 'https://h/"{trace_id}'`:          "console.links.trace",
		"trace: 'https://h/{trace_id}/{span_id}'": "console.links.trace",
		"grafana: grafana.example":                `console.links.grafana "grafana.example": want the http or https URL of a Grafana without a query`,
		"grafana: 'https://h/d/x?orgId=1'":        "console.links.grafana",
		"grafana: 'https://h/#x'":                 "console.links.grafana",
		"grafana: 'ftp://h/'":                     "console.links.grafana",
	} {
		_, err := Parse(with(link), "f.yaml", env)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\ngot  %v\nwant %s", link, err, want)
		}
	}
}

// The examples of docs/console.md are taken as they stand.
func TestTheExamplesOfTheConsoleAreTaken(t *testing.T) {
	t.Parallel()
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(read(t, "../docs/console.md")), -1)
	if len(examples) != 2 {
		t.Fatalf("%d examples", len(examples))
	}
	known := func(string) (string, bool) { return strings.Repeat("k", 32), true }
	for _, example := range examples {
		text := "layout: {databases: 1, tables: 1}\nservers:\n  - dsn: root@tcp(h:1)/\n" + example[1]
		if !strings.Contains(text, "\nnode:") {
			text += someTokens
		}
		if _, err := Parse([]byte(text), "console.md", known); err != nil {
			t.Errorf("%v:\n%s", err, text)
		}
	}
}
