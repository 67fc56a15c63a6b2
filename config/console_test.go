package config

import (
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
