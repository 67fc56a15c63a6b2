package console

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// loginSecret is the secret of the proxy.
const loginSecret = "0123456789abcdef0123456789abcdef"

type headers = map[string][]string

// logins are requests, by what is odd of them: where they are from, headers beside or in place of those of alice of the group sre, and what becomes of them.
var logins = map[string]struct {
	from    string
	header  headers
	refused string
	group   string
}{
	"the proxy":                       {"10.0.3.7:5000", nil, "", "sre"},
	"by IPv6":                         {"[fd00:3::7]:5000", nil, "", "sre"},
	"by IPv6 with a zone":             {"[fd00:3::7%eth0]:5000", nil, "", "sre"},
	"IPv4 mapped to IPv6":             {"[::ffff:10.0.3.7]:5000", nil, "", "sre"},
	"IPv4 mapped, of others":          {"[::ffff:10.0.4.7]:5000", nil, "proxy", ""},
	"a neighbour":                     {"10.0.4.7:5000", nil, "proxy", ""},
	"a neighbour by IPv6":             {"[fd00:4::7]:5000", nil, "proxy", ""},
	"IPv4 inside of IPv6":             {"[::10.0.3.7]:5000", nil, "proxy", ""},
	"this host":                       {"127.0.0.1:5000", nil, "proxy", ""},
	"says that it is the proxy":       {"10.0.4.7:5000", headers{"X-Forwarded-For": {"10.0.3.7"}, "X-Real-Ip": {"10.0.3.7"}, "Forwarded": {"for=10.0.3.7"}}, "proxy", ""},
	"no address":                      {"@", nil, "proxy", ""},
	"an address of words":             {"proxy:5000", nil, "proxy", ""},
	"no secret":                       {"10.0.3.7:5000", headers{"X-Secret": nil}, "proxy", ""},
	"an empty secret":                 {"10.0.3.7:5000", headers{"X-Secret": {""}}, "proxy", ""},
	"the wrong secret":                {"10.0.3.7:5000", headers{"X-Secret": {loginSecret[1:] + "0"}}, "proxy", ""},
	"the secret in capitals":          {"10.0.3.7:5000", headers{"X-Secret": {strings.ToUpper(loginSecret)}}, "proxy", ""},
	"a part of the secret":            {"10.0.3.7:5000", headers{"X-Secret": {loginSecret[:31]}}, "proxy", ""},
	"the secret twice":                {"10.0.3.7:5000", headers{"X-Secret": {loginSecret, loginSecret}}, "proxy", ""},
	"the wrong secret, then it":       {"10.0.3.7:5000", headers{"X-Secret": {"x", loginSecret}}, "proxy", ""},
	"no user":                         {"10.0.3.7:5000", headers{"X-User": nil}, "user", ""},
	"two users":                       {"10.0.3.7:5000", headers{"X-User": {"alice", "alice"}}, "user", ""},
	"two users in one":                {"10.0.3.7:5000", headers{"X-User": {"alice,bob"}}, "user", ""},
	"a user with a line":              {"10.0.3.7:5000", headers{"X-User": {"alice\nbob"}}, "user", ""},
	"a user that turns":               {"10.0.3.7:5000", headers{"X-User": {"ali\u202ece"}}, "user", ""},
	"a user with nothing in it":       {"10.0.3.7:5000", headers{"X-User": {"ali\u200bce"}}, "user", ""},
	"a user with another space":       {"10.0.3.7:5000", headers{"X-User": {"alice\u00a0"}}, "user", ""},
	"a user that is no UTF-8":         {"10.0.3.7:5000", headers{"X-User": {"ali\xffce"}}, "user", ""},
	"a long user":                     {"10.0.3.7:5000", headers{"X-User": {strings.Repeat("ü", 65)}}, "user", ""},
	"a user of 64 letters":            {"10.0.3.7:5000", headers{"X-User": {strings.Repeat("ü", 64)}}, "", "sre"},
	"a user in Chinese":               {"10.0.3.7:5000", headers{"X-User": {"王 伟"}}, "", "sre"},
	"no groups":                       {"10.0.3.7:5000", headers{"X-Groups": nil}, "groups", ""},
	"empty groups":                    {"10.0.3.7:5000", headers{"X-Groups": {""}}, "groups", ""},
	"empty groups, then one":          {"10.0.3.7:5000", headers{"X-Groups": {"", "sre"}}, "user", ""},
	"groups twice":                    {"10.0.3.7:5000", headers{"X-Groups": {"nobody", "sre"}}, "user", ""},
	"groups of two headers":           {"10.0.3.7:5000", headers{"X-Groups": {"nobody, sre"}}, "user", ""},
	"no group between commas":         {"10.0.3.7:5000", headers{"X-Groups": {"nobody,,sre"}}, "user", ""},
	"a group with a space":            {"10.0.3.7:5000", headers{"X-Groups": {"sre "}}, "user", ""},
	"a group with nothing in it":      {"10.0.3.7:5000", headers{"X-Groups": {"s\u200bre"}}, "user", ""},
	"the first of two":                {"10.0.3.7:5000", headers{"X-Groups": {"sre,dev"}}, "", "dev"},
	"a group in capitals":             {"10.0.3.7:5000", headers{"X-Groups": {"SRE,Sre"}}, "groups", ""},
	"parts of a group":                {"10.0.3.7:5000", headers{"X-Groups": {"sr,re,sres,sre2,team/sre,*,"}}, "user", ""},
	"longer groups":                   {"10.0.3.7:5000", headers{"X-Groups": {"sres,sre2,team/sre,*"}}, "groups", ""},
	"letters that look the same":      {"10.0.3.7:5000", headers{"X-Groups": {"ѕrе"}}, "groups", ""},
	"a letter in one piece":           {"10.0.3.7:5000", headers{"X-Groups": {"caf\u00e9"}}, "", "caf\u00e9"},
	"the same letter out of two":      {"10.0.3.7:5000", headers{"X-Groups": {"cafe\u0301"}}, "groups", ""},
	"headers named by Connection":     {"10.0.4.7:5000", headers{"Connection": {"X-Secret, X-User, X-Groups"}}, "proxy", ""},
	"they may be, of the proxy":       {"10.0.3.7:5000", headers{"Connection": {"X-Secret, X-User, X-Groups"}}, "", "sre"},
	"another way to write the header": {"10.0.3.7:5000", headers{"X-Groups": nil, "X_Groups": {"sre"}, "X-Groups-": {"sre"}}, "groups", ""},
}

// A request is the proxy's if it comes from one of its networks and has its secret. Its user and groups are taken only as they stand in
// one header each, and a group only by its whole name.
func TestALoginIsReadAsItStandsOrNotAtAll(t *testing.T) {
	t.Parallel()
	p := &Proxy{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.3.0/24"), netip.MustParsePrefix("fd00:3::/64")}, Secret: loginSecret, SecretHeader: "X-Secret", UserHeader: "X-User", GroupsHeader: "X-Groups",
		Groups: []apitoken.Group{
			{Name: "dev", Scope: apitoken.Read, BizTypes: []string{"order.*"}}, {Name: "sre", Scope: apitoken.Operate, BizTypes: []string{"*"}}, {Name: "caf\u00e9", Scope: apitoken.Write, BizTypes: []string{"*"}},
		},
	}
	for name, c := range logins {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.from
		r.Header = http.Header{"X-Secret": {loginSecret}, "X-User": {"alice"}, "X-Groups": {"sre"}}
		for header, values := range c.header {
			r.Header[header] = values
		}
		who, refused, why := p.login(r)
		if refused != c.refused || (why == "") != (refused == "") {
			t.Errorf("%s: refused %q since %q, want %q", name, refused, why, c.refused)
		}
		if want := "group " + c.group; refused == "" && (who.ID != want || who.Name != r.Header.Get("X-User")) || refused != "" && who.Name != "" {
			t.Errorf("%s: %+v, want %s", name, who, want)
		}
	}
}
