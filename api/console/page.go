package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"

	"github.com/tocsinhq/tocsin/api"
)

// page is what a page says, beside its frame.
type page struct {
	*visit

	name    string // of its template
	Title   string
	Nav     string // the part of the menu that it belongs to
	Status  int    // 0: that of Problem, or 200
	Problem *api.Problem
	Said    string   // what was done, in a sentence
	Shell   []string // commands that say or do the same
	Lacks   []string // servers that could not be asked
	Data    any

	to       string // another page, which is shown in place of this one
	file     []byte // sent to be kept, in place of the page, under the name in Title; nil: none
	fragment string // the template to write alone; "": the whole page
	retarget string // of a fragment's request: the part of the page that the answer takes the place of; "": the one that asked
}

//go:embed pages static text.json says.json
var files embed.FS

// pages are the templates by the names of their pages.
var pages = parse()

func parse() map[string]*template.Template {
	all := map[string]*template.Template{}
	frame := template.Must(template.ParseFS(files, "pages/frame.html", "pages/parts.html"))
	found, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		panic(err) // the pattern is right
	}
	for _, file := range found {
		name := strings.TrimSuffix(path.Base(file), ".html")
		all[name] = template.Must(template.Must(frame.Clone()).ParseFS(files, file))
	}
	return all
}

// write answers with a page, whole or not at all.
func (v *visit) write(w http.ResponseWriter, p *page) {
	p.visit = v
	if p.to != "" {
		http.Redirect(w, v.r, v.base+p.to, http.StatusSeeOther)
		return
	}
	if p.file != nil {
		w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
		w.Header().Set("Content-Disposition", "attachment; filename="+p.Title)
		w.Header().Set("Vary", "Accept-Encoding, Cookie")
		send(w, v.r, http.StatusOK, p.file)
		return
	}
	if p.Problem != nil {
		p.Status = cmp.Or(p.Status, p.Problem.Status)
	}
	var text bytes.Buffer
	if err := pages[p.name].ExecuteTemplate(&text, cmp.Or(p.fragment, "frame"), p); err != nil {
		panic(err) // of a template: a test executes each
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Accept-Encoding, Accept-Language, Cookie")
	if p.retarget != "" {
		h.Set("HX-Retarget", p.retarget)
		h.Set("HX-Reselect", p.retarget)
	}
	send(w, v.r, cmp.Or(p.Status, http.StatusOK), text.Bytes())
}

// send writes an answer, compressed if the browser takes that. A page repeats what its request says only beside what the same
// person may see, and cookies are not sent from other sites, so the length tells strangers nothing.
func send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write(body) // into memory
		_ = z.Close()
		w.Header().Set("Content-Encoding", "gzip")
		body = packed.Bytes()
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the browser may be gone
	}
}

// pathOf is the path of a page below the console's base. Its parts are escaped.
func pathOf(parts ...any) string {
	path := ""
	for _, part := range parts {
		path += "/" + url.PathEscape(fmt.Sprint(part))
	}
	return path
}

// URL is the path of a page.
func (p *page) URL(parts ...any) string { return p.base + pathOf(parts...) }

// With is the query of the page that is shown, with some values changed; "" takes one out. The answer to a form has the path of its page, too.
func (p *page) With(pairs ...string) string {
	q, of := url.Values{}, ""
	if p.r.Method == http.MethodGet {
		q = p.r.URL.Query()
		q.Del(refusedZone)
	} else {
		of = p.base + p.Here()
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if q.Set(pairs[i], pairs[i+1]); pairs[i+1] == "" {
			q.Del(pairs[i])
		}
	}
	return of + "?" + q.Encode()
}

// Value is a parameter of the request, from its query or its form, so that a form that was refused keeps what was typed.
func (p *page) Value(name string) string { return strings.TrimSpace(p.r.FormValue(name)) }

// ValueOf is Value in one of several forms of a page: what was typed into another one is not in it. A form is the last part of the path
// that it is sent to, or what it does with which biz type.
func (p *page) ValueOf(form, name string) string {
	if p.r.Method != http.MethodPost || form != path.Base(p.r.URL.Path) && form != p.Value("do")+" "+p.Value("biz_type") {
		return ""
	}
	return p.Value(name)
}

// because is a field for a reason.
type because struct {
	Required bool
	Text     string
}

// Because hands the field for a reason what it has in a form; "" is the only form of a page.
func (p *page) Because(form string, required bool) of {
	if form == "" {
		return p.Of(because{required, p.Value("reason")})
	}
	return p.Of(because{required, p.ValueOf(form, "reason")})
}

// Here is the page to come back to.
func (p *page) Here() string {
	if p.r.Method == http.MethodGet {
		return p.r.URL.RequestURI()
	}
	return path.Dir(p.r.URL.EscapedPath())
}

// Coded is a text with what stands between backticks as code.
func (v *visit) Coded(text string) template.HTML {
	return template.HTML(backticks.ReplaceAllString(template.HTMLEscapeString(v.Shown(text)), "<code>$1</code>")) // all else is escaped
}

// backticks are around what is to be typed.
var backticks = regexp.MustCompile("`([^`]+)`")

// Who names whose token it is; "" without tokens.
func (p *page) Who() string { return p.who.Name }

// Scope is that of the token.
func (p *page) Scope() string { return string(p.who.Scope) }

// Lang is the language of the page.
func (p *page) Lang() string { return p.lang }

// Languages are those that can be chosen, with their own names.
func (p *page) Languages() []language { return languageList }

// of is a part of a page, with what it is about.
type of struct {
	*page

	Item any
}

// Of hands a part of a page what it is about.
func (p *page) Of(item any) of { return of{p, item} }

// SeesAll reports whether the token is for all biz types.
func (p *page) SeesAll() bool { return p.who.SeesAll() }

// Clock is when the page was made.
func (p *page) Clock() string { return p.In(p.now, p.zone) }

// ClockAt is a time, without how far it is away.
func (p *page) ClockAt(at api.Time) string { return p.In(at.Time, p.zone) }

// Local is a time in the zone of a schedule; "" if that is the zone of the page.
func (p *page) Local(at any, name string) string {
	zone, err := zoneOf(name)
	t, ok := at.(api.Time)
	if next, given := at.(*api.Time); given && next != nil {
		t, ok = *next, true
	}
	if err != nil || !ok || zone.String() == p.zone.String() {
		return ""
	}
	return p.In(t.Time, zone)
}

// Base is the path of the console, without the slash at its end.
func (p *page) Base() string { return p.base }

// Shown is a text in which every character can be seen, so that no text looks like another, or turns around what follows it.
func (v *visit) Shown(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t' || !unseen(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// unseen reports whether a character leaves no mark, or turns the text around it. Some count as letters, signs or marks, and yet leave none.
func unseen(r rune) bool {
	return !unicode.IsPrint(r) || r == '\u2800' || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Short is the beginning of a text, on one line.
func (v *visit) Short(text string) string {
	const most = 120
	letters := []rune(v.Shown(strings.Join(strings.Fields(text), " ")))
	if len(letters) <= most {
		return string(letters)
	}
	return string(letters[:most]) + "…"
}

// maxDepth is how deep JSON may be nested to be written with indents, which grow with the square of the depth.
const maxDepth = 32

// Indented writes JSON line by line. Numbers stay as they are written. Another text stays as it is, and so does what is nested too deeply.
func (v *visit) Indented(text string) string {
	var b bytes.Buffer
	if deeper(text, maxDepth) || json.Indent(&b, []byte(text), "", "  ") != nil {
		return v.Shown(text)
	}
	return v.Shown(b.String())
}

// deeper reports whether JSON is nested deeper than that.
func deeper(text string, most int) bool {
	depth, inText := 0, false
	for i := 0; i < len(text) && depth <= most; i++ {
		switch c := text[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++ // what is escaped ends no text
		case !inText && (c == '[' || c == '{'):
			depth++
		case !inText && (c == ']' || c == '}'):
			depth--
		}
	}
	return depth > most
}

// asset is a file that pages load.
type asset struct {
	path, kind string
	text       []byte
}

// assets are those by their names.
var assets = map[string]*asset{
	"console.css": {kind: "text/css; charset=utf-8"}, "console.js": {kind: "text/javascript; charset=utf-8"}, "htmx.min.js": {kind: "text/javascript; charset=utf-8"},
	"icon.svg": {kind: "image/svg+xml"},
}

func init() {
	for name, a := range assets {
		var err error
		if a.text, err = files.ReadFile("static/" + name); err != nil {
			panic(err) // it is embedded
		}
		sum := sha256.Sum256(a.text)
		a.path = "/assets/" + hex.EncodeToString(sum[:6]) + "/" + name
	}
}

// Asset is the path of a file, which changes with what is in it, so that browsers may keep it.
func (p *page) Asset(name string) string { return p.base + assets[name].path }

// asset answers with a file.
func (c *Console) asset(w http.ResponseWriter, r *http.Request) {
	a := assets[r.PathValue("name")]
	if a == nil || a.path != r.URL.Path {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Content-Type", a.kind)
	h.Set("Vary", "Accept-Encoding")
	send(w, r, http.StatusOK, a.text)
}
