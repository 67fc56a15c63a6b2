package config

import (
	"path"
	"strings"
)

// Console is the web pages that tocsin serve has at the address of the HTTP API. The zero value: there are none.
type Console struct {
	Base string `yaml:"base"` // path of the first page, which begins and ends with a slash: /, or /a/b/ behind a proxy that passes such paths on; "": no console
	Key  string `yaml:"key"`  // seals the cookies of its sessions, ${NAME}, 32 to 256 visible characters; nodes behind one address need the same; "": made at start, so that a restart ends all sessions
}

// minConsoleKey is the shortest key, in characters.
const minConsoleKey = 32

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
	if f.Console.Key != "" {
		c.Refuse(!tokenForm.MatchString(f.Console.Key) || len(f.Console.Key) < minConsoleKey, where+".key", "console.key: want %d to 256 visible ASCII characters without spaces, such as those of `openssl rand -hex 32`", minConsoleKey)
	}
}
