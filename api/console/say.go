package console

import (
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/api"
)

// sayings are sentences of the API by their templates: English, if a page has a better word than a command has, and Chinese. A test
// compares them with package operator.
var sayings = pairsOf("says.json")

// Say writes a sentence of the API in the language and the zone of the visit. What stands between backticks is to be typed, except in values,
// such as the error of a task, which anybody may have written.
func (v *visit) Say(s api.Sentence) template.HTML {
	text := s.Template
	if own := sayings[s.Template][languages[v.lang].column]; own != "" {
		text = own
	}
	pairs := make([]string, 0, 2*len(s.Values))
	for i, value := range s.Values {
		pairs = append(pairs, "{"+strconv.Itoa(i+1)+"}", v.valueIn(value))
	}
	return template.HTML(strings.NewReplacer(pairs...).Replace(string(v.Coded(text)))) // all parts are escaped
}

// valueIn writes a value in a sentence.
func (v *visit) valueIn(value api.SentenceValue) string {
	if value.Sentence != nil {
		return string(v.Say(*value.Sentence))
	}
	return template.HTMLEscapeString(v.Shown(v.plain(value)))
}

// plain is a value that is no sentence.
func (v *visit) plain(value api.SentenceValue) string {
	switch {
	case value.Time != nil:
		at := v.When(value.Time)
		return at.Text + v.T("away", at.Ago)
	case value.SpanMS >= (48 * time.Hour).Milliseconds():
		return v.rough(time.Duration(value.SpanMS) * time.Millisecond)
	case value.SpanMS > 0:
		return v.Span(value.SpanMS)
	}
	return value.Text
}
