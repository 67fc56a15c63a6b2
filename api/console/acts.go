package console

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tocsinhq/tocsin/api"
)

// actsPage is a list of who changed what.
type actsPage struct {
	Acts       api.Acts
	Operations []string
	Window     window
}

// named are the words of the API that have a text of a kind.
func named(kind string) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if word, ok := strings.CutPrefix(key, kind+"."); ok {
			all = append(all, word)
		}
	}
	return all
}

// operations are those that have a text.
var operations = named("operation")

// acts lists who changed what.
func (v *visit) acts() *page {
	list := &actsPage{Operations: operations}
	p := &page{name: "acts", Nav: "acts", Title: v.T("pastacts"), Data: list}
	query := pageQuery(v.r.FormValue("cursor"))
	if list.Window, p.Problem = v.windowOf(query, false); p.Problem != nil {
		return p
	}
	for name, values := range v.kept([]string{"person", "operation", "object"}) {
		query.Set(name, values[0])
	}
	list.Acts, p.Problem = ask[api.Acts](v, call{path: "/acts", query: query})
	p.Lacks = list.Acts.Incomplete
	query.Del("cursor")
	p.Shell = []string{
		v.curl("GET", "/acts?"+query.Encode(), ""),
		words("tocsin acts", "--object", query.Get("object"), "--person", query.Get("person"), "--operation", query.Get("operation"), "--from", query.Get("from"), "--to", query.Get("to"),
			"--limit", strconv.Itoa(pageSize)),
	}
	return p
}

// objects are the words of an object that has a page, and which.
var objects = regexp.MustCompile(`^(biz type|task|schedule) ([^\s,]+)(?: of \S+|, dead tasks.*)?$`)

// pagesOf are the pages of objects.
var pagesOf = map[string]string{"biz type": "biz-types", "task": "tasks", "schedule": "schedules"}

// About is the path of the page of what an act was about; "" if it has none.
func (p *page) About(object string) string {
	m := objects.FindStringSubmatch(object)
	if m == nil || noName(m[2]) || strings.HasPrefix(m[2], "-") {
		return ""
	}
	return p.URL(pagesOf[m[1]], m[2])
}
