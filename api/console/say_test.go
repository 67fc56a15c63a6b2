package console

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/api"
)

var formats = regexp.MustCompile(`%%|%[.0-9]*[a-z]`)

// templateOf is what the API makes of a format.
func templateOf(format string) string {
	n := 0
	return formats.ReplaceAllStringFunc(format, func(verb string) string {
		if verb == "%%" {
			return "%"
		}
		n++
		return "{" + strconv.Itoa(n) + "}"
	})
}

// saidBy are the templates in the sources of package operator: the texts in calls of these functions.
func saidBy(t *testing.T, functions ...string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	sources, err := filepath.Glob("../../operator/*.go")
	if err != nil || len(sources) < 20 {
		t.Fatal(sources, err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := ""
			switch f := call.Fun.(type) {
			case *ast.Ident:
				name = f.Name
			case *ast.SelectorExpr:
				name = f.Sel.Name
			}
			for _, argument := range call.Args {
				text, ok := argument.(*ast.BasicLit)
				if !ok || text.Kind != token.STRING || !slices.Contains(functions, name) {
					continue
				}
				format, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				if name == "plural" {
					all["{1} "+format], all["{1} "+format+"s"] = true, true
				} else if strings.ContainsAny(format, " ") || format == "now" {
					all[templateOf(format)] = true
				}
			}
			return true
		})
	}
	return all
}

// Every sentence that says why a task waits, or what is wrong, has a Chinese text with the same values.
func TestEverySentenceOfTheAPICanBeSaidInChinese(t *testing.T) {
	t.Parallel()
	said := saidBy(t, "set", "also", "sentence", "say", "trouble", "plural")
	if len(said) < 100 {
		t.Fatalf("%d sentences", len(said))
	}
	place := regexp.MustCompile(`\{\d\}`)
	for _, template := range slices.Sorted(maps.Keys(said)) {
		if own, ok := sayings[template]; !ok && regexp.MustCompile(`[a-z]{2}`).MatchString(template) {
			t.Errorf("says.json has no %q", template)
		} else if want, got := place.FindAllString(template, -1), place.FindAllString(own[1], -1); ok && own[0] == "" {
			slices.Sort(got)
			if slices.Sort(want); !slices.Equal(want, got) {
				t.Errorf("%q has the values %v", template, got)
			}
		}
	}
	fixed := []string{ // of nodes' modes, and of mysql.Fault
		"can't prove its lease, and claims each task before it starts it", "started while etcd was away, and delivers only what is overdue", "delivers nothing: it waits for etcd or a server",
		"takes no writes", "has no room", "does not admit this user", "refuses statements", "does not answer",
	}
	for _, template := range slices.Sorted(maps.Keys(sayings)) {
		if !said[template] && !slices.Contains(fixed, template) {
			t.Errorf("nobody says %q", template)
		}
		if sayings[template][1] == "" {
			t.Errorf("%q has no Chinese", template)
		}
	}
}

// Times are in the page's zone, and a value that looks like a place stays as it is.
func TestASentenceIsWrittenInTheLanguageAndZoneOfThePage(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 26, 20, 0, 0, 0, time.UTC)
	v := &visit{Console: &Console{}, r: httptest.NewRequest("GET", "/", nil), lang: "zh-CN", zone: berlin, now: now}
	at := &api.Time{Time: now.Add(-3 * time.Minute)}
	dead := api.Sentence{Template: "it is dead since {1}, after {2}: {3}", Values: []api.SentenceValue{
		{Text: "x", Time: at}, {Text: "2 failed attempts", Sentence: &api.Sentence{Template: "{1} failed attempts", Values: []api.SentenceValue{{Text: "2"}}}}, {Text: `"{1} <b>"`},
	}}
	paused := api.Sentence{Template: "biz type {1} is paused until `tocsin biz resume {2}`; its policy was last changed at {3}", Values: []api.SentenceValue{{Text: "a"}, {Text: "a"}, {Time: at}}}
	sweep := api.Sentence{Template: "{1} takes it from {2} on, after the grace time of {3}", Values: []api.SentenceValue{{Text: "x", Sentence: &api.Sentence{Template: "`tocsin sweep`"}}, {Time: at}, {SpanMS: 90_000}}}
	hostile := api.Sentence{Template: "{1}: `tocsin task redrive {2}` delivers it once more", Values: []api.SentenceValue{{Text: "\"`rm -rf` `{2}\u202e\""}, {Text: "<7>"}}}
	for _, c := range []struct {
		lang, want string
		sentence   api.Sentence
	}{
		{"zh-CN", `自 2026-11-26 20:57:00 +01:00（3 分钟前） 起死亡，此前 失败 2 次：&#34;{1} &lt;b&gt;&#34;`, dead},
		{"en", `it is dead since 2026-11-26 20:57:00 +01:00 (3 min ago), after 2 failed attempts: &#34;{1} &lt;b&gt;&#34;`, dead},
		{"en", `biz type a is paused until somebody resumes it; its policy was last changed at 2026-11-26 20:57:00 +01:00 (3 min ago)`, paused},
		{"zh-CN", `<code>tocsin sweep</code> 自 2026-11-26 20:57:00 +01:00（3 分钟前） 起（宽限时间 1 分钟 30 秒 之后）处理`, sweep},
		{"en", "&#34;`rm -rf` `{2}\\u202e&#34;: <code>tocsin task redrive &lt;7&gt;</code> delivers it once more", hostile},
		{"zh-CN", `a new saying of 1`, api.Sentence{Template: "a new saying of {1}", Values: []api.SentenceValue{{Text: "1"}}}},
	} {
		if v.lang = c.lang; string(v.Say(c.sentence)) != c.want {
			t.Errorf("%s\nwant %s", v.Say(c.sentence), c.want)
		}
	}
}
