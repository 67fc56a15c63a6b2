package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// Proxy is a reverse proxy that logs people in, and says in headers of each request who they are. The console believes these headers only
// if the connection comes from the proxy's networks and the request has its secret. It keeps nothing of them: each request is judged by its own.
type Proxy struct {
	Networks                               []netip.Prefix
	Secret                                 string
	SecretHeader, UserHeader, GroupsHeader string
	Groups                                 []apitoken.Group // a user has the rights of the first that he is in
}

// maxUser is the longest name of a user, in characters: acts hold no more, and two people may not become one there.
const maxUser = 64

// login returns who sends a request, or why nobody may: a key of a text, and what the log is told.
func (p *Proxy) login(r *http.Request) (who apitoken.Token, refused, why string) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	address := from.Addr().Unmap().WithZone("")
	near := err == nil && slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(address) })
	if secret := one(r, p.SecretHeader); !same(secret, p.Secret) || !near {
		if !near {
			return who, "proxy", "the address is in none of its networks"
		}
		return who, "proxy", "the secret is missing, wrong or there twice"
	}
	user := one(r, p.UserHeader)
	if user == "" || strings.Contains(user, ",") || !apitoken.Readable(user) || utf8.RuneCountInString(user) > maxUser { // a comma joins a header that was there twice
		return who, "user", "the user is missing, there twice, longer than 64 characters, or has characters that can't be seen, or a comma"
	}
	groups, ok := p.groups(r)
	if !ok {
		return who, "user", "the groups are there twice, or a name is empty, or has spaces at its ends or characters that can't be seen"
	}
	for _, g := range p.Groups {
		if slices.Contains(groups, g.Name) {
			return g.Login(user), "", ""
		}
	}
	return who, "groups", "the user is in no group of console.proxy.groups"
}

// groups are those of the user. Some proxies join two headers, one of them perhaps the browser's, to a list with a space behind the
// comma: such a list is refused.
func (p *Proxy) groups(r *http.Request) ([]string, bool) {
	text := one(r, p.GroupsHeader)
	if text == "" {
		return nil, len(r.Header.Values(p.GroupsHeader)) <= 1
	}
	names := strings.Split(text, ",")
	for _, name := range names {
		if name == "" || name != strings.TrimSpace(name) || !apitoken.Readable(name) {
			return nil, false
		}
	}
	return names, true
}

// one is the value of a header that is there once; "" otherwise.
func one(r *http.Request, name string) string {
	values := r.Header.Values(name)
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// same compares two secrets in a time that tells nothing of them, nor of their length.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// byProxy finds out who looks by the word of the proxy.
func (v *visit) byProxy() {
	who, refused, why := v.cfg.Proxy.login(v.r)
	switch refused {
	case "":
		v.who, v.known, v.login = who, true, &who
		return
	case "proxy":
		v.refused = v.refusal(http.StatusForbidden, "proxy", "problem.proxy")
	case "user":
		v.refused = v.refusal(http.StatusUnauthorized, "user", "problem.user")
	case "groups":
		v.refused = v.refusal(http.StatusForbidden, "groups", "problem.groups")
	}
	v.faults.Of(v.log, "proxy "+refused).Warn("a request to the console was refused", "why", why, "from", v.r.RemoteAddr)
}

// Proxied reports whether a proxy has logged in who looks.
func (v *visit) Proxied() bool { return v.login != nil }

// Group is the one that says what the proxy's user may do.
func (v *visit) Group() string { return strings.TrimPrefix(v.who.ID, apitoken.GroupID) }

// turnedAway answers requests that the proxy does not vouch for, and those of logins that it does itself. It reports whether it has.
func (v *visit) turnedAway(w http.ResponseWriter, logsIn bool) bool {
	switch {
	case v.cfg.Proxy == nil:
		return false
	case v.refused != nil:
		v.write(w, v.failed(v.refused))
	case logsIn:
		v.write(w, v.nowhere())
	default:
		return false
	}
	return true
}
