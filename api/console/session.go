package console

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// A session is a cookie with the time it ends and the whole token, sealed. Sealing the token, and not its id alone, means that
// who gets hold of the key can't make sessions: for that he needs tokens.
const (
	sessionCookie = "tocsin_session"
	sessionLasts  = 12 * time.Hour
	sealedAs      = "tocsin console session"
)

// everyone is who looks at a console without tokens: somebody on this host. Package api checks that.
var everyone = apitoken.Token{Name: "", Scope: apitoken.Operate, BizTypes: []string{"*"}}

// sealing makes what seals sessions out of the key of the config, or of one that is made now.
func sealing(key string) cipher.AEAD {
	if key == "" {
		key = rand.Text() + rand.Text()
	}
	secret, err := hkdf.Key(sha256.New, []byte(key), nil, sealedAs, 32)
	if err != nil {
		panic(err) // the length is one that it can make
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		panic(err) // the length is right
	}
	sealed, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the block is AES
	}
	return sealed
}

// sealed is the value of the cookie of a token.
func (c *Console) sealed(token string, until time.Time) string {
	text := append(binary.BigEndian.AppendUint64(nil, uint64(until.Unix())), token...)
	return base64.RawURLEncoding.EncodeToString(c.seal.Seal(nil, nil, text, []byte(sealedAs)))
}

// unsealed returns the token of a request's session; "" if it has none that is valid.
func (c *Console) unsealed(r *http.Request, now time.Time) string {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return ""
	}
	value, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return ""
	}
	text, err := c.seal.Open(nil, nil, value, []byte(sealedAs))
	if err != nil || len(text) < 8 || !now.Before(time.Unix(int64(binary.BigEndian.Uint64(text)), 0)) {
		return ""
	}
	return string(text[8:])
}

// cookie is one of the console's, for its pages alone. lasts below 0 removes it.
func (c *Console) cookie(r *http.Request, name, value string, lasts time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: c.base + "/", MaxAge: int(lasts.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: overTLS(r),
	}
}

// overTLS reports whether the browser's connection is encrypted, as far as the request says. A proxy's word is enough: it decides
// about no right, only that a cookie is not sent in plain text.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// admit returns the visit of somebody who may look; nil if the request is answered with the way to the login.
func (c *Console) admit(w http.ResponseWriter, r *http.Request) *visit {
	v := c.visit(r)
	if v.turnedAway(w, false) {
		return nil
	}
	if v.known {
		return v
	}
	if r.Header.Get("HX-Request") != "" { // a refresh: the page that it is of goes to the login
		w.WriteHeader(http.StatusUnauthorized)
		return nil
	}
	to := c.base + "/login"
	if r.Method == http.MethodGet && r.URL.Path != "/" {
		to += "?next=" + url.QueryEscape(r.URL.RequestURI())
	}
	if elsewhere(r) { // so the browser keeps the cookie back, and would after a redirect, too: the next request begins here
		w.Header().Set("Refresh", "0; url="+to)
		v.write(w, &page{name: "login", Title: v.T("login"), Data: r.URL.RequestURI()})
		return nil
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// loginPage asks for a token.
func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	v := c.visit(r)
	if v.turnedAway(w, false) {
		return
	}
	if v.known {
		http.Redirect(w, r, c.next(r.FormValue("next")), http.StatusSeeOther)
		return
	}
	v.write(w, &page{name: "login", Title: v.T("login"), Data: r.FormValue("next"), Said: v.said()})
}

// login makes a session of a token.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	v := c.visit(r)
	if v.turnedAway(w, true) {
		return
	}
	token := strings.TrimSpace(r.PostFormValue("token"))
	if c.cfg.Tokens == nil {
		http.Redirect(w, r, c.base+"/", http.StatusSeeOther)
		return
	}
	who, ok := c.cfg.Tokens().Find(token, time.Now())
	if !ok {
		c.faults.Of(c.log, "login").Warn("a login to the console was refused", "token_id", apitoken.IDOf(token), "from", r.RemoteAddr)
		v.write(w, &page{
			name: "login", Title: v.T("login"), Status: http.StatusUnauthorized, Data: r.PostFormValue("next"),
			Problem: v.refusal(http.StatusUnauthorized, "token", "problem.token"),
		})
		return
	}
	c.log.Info("login to the console", "token", who.Name, "token_id", who.ID, "from", r.RemoteAddr)
	http.SetCookie(w, c.cookie(r, sessionCookie, c.sealed(token, time.Now().Add(sessionLasts)), sessionLasts))
	http.Redirect(w, r, c.next(r.PostFormValue("next")), http.StatusSeeOther)
}

// logout has the browser forget its session. A copy of the cookie is good until its token is taken back, or 12 hours are over.
func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	v := c.visit(r)
	if v.turnedAway(w, true) {
		return
	}
	http.SetCookie(w, c.cookie(r, sessionCookie, "", -time.Second))
	http.Redirect(w, r, c.base+"/login"+v.did("logout"), http.StatusSeeOther)
}

// next is the path of a page of the console that a form names; the start page if it names none.
func (c *Console) next(path string) string {
	u, err := url.Parse(path)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.Contains(path, `\`) ||
		slices.Contains(strings.Split(u.Path, "/"), "..") {
		return c.base + "/"
	}
	return c.base + u.EscapedPath() + query(u.RawQuery)
}

// query is a query with its question mark.
func query(raw string) string {
	if raw == "" {
		return ""
	}
	return "?" + raw
}

// settings keeps the language and the zone that somebody has chosen, and goes back to the page.
func (c *Console) settings(w http.ResponseWriter, r *http.Request) {
	if c.visit(r).turnedAway(w, false) {
		return
	}
	const year = 365 * 24 * time.Hour
	if lang := r.PostFormValue("lang"); languages[lang] != nil {
		http.SetCookie(w, c.cookie(r, langCookie, lang, year))
	}
	to, err := url.Parse(c.next(r.PostFormValue("next")))
	if err != nil {
		panic(err) // it was parsed before
	}
	back := to.Query()
	back.Del(refusedZone)
	zone := strings.TrimSpace(cmp.Or(r.PostFormValue("here"), r.PostFormValue("other"), r.PostFormValue("zone")))
	if _, err := zoneOf(zone); err == nil {
		http.SetCookie(w, c.cookie(r, zoneCookie, zone, year))
	} else {
		back.Set(refusedZone, zone) // the page says so
	}
	to.RawQuery = back.Encode()
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
}

// refusedZone is the parameter of a page that has a zone which was typed and is none.
const refusedZone = "nozone"

// Refused is a zone that was typed and is none; "": there is no such.
func (v *visit) Refused() string {
	name := v.r.URL.Query().Get(refusedZone)
	if _, err := zoneOf(name); err == nil || elsewhere(v.r) {
		return ""
	}
	return name
}

// zones are those that are offered.
var zones = []string{
	"UTC", "Africa/Cairo", "Africa/Johannesburg", "America/Chicago", "America/Los_Angeles", "America/New_York", "America/Sao_Paulo", "Asia/Dubai", "Asia/Hong_Kong", "Asia/Kolkata",
	"Asia/Shanghai", "Asia/Singapore", "Asia/Tokyo", "Australia/Sydney", "Europe/Berlin", "Europe/London", "Europe/Moscow", "Europe/Paris",
}

// Zones are those that are offered, that of the visit among them.
func (v *visit) Zones() []string {
	if slices.Contains(zones, v.Zone()) {
		return zones
	}
	return append([]string{v.Zone()}, zones...)
}
