package console

import (
	"encoding/json"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/api"
)

// sayings are sentences of the API by their templates: English, if a page has a better word than a command has, and Chinese. A test
// compares them with package operator.
var sayings = func() map[string][2]string {
	text, err := files.ReadFile("says.json")
	if err != nil {
		panic(err) // it is embedded
	}
	var all map[string][2]string
	if err := json.Unmarshal(text, &all); err != nil {
		panic(err) // a test reads it
	}
	return all
}()

// Say writes a sentence of the API in the language and the zone of the visit. What stands between backticks is to be typed.
func (v *visit) Say(s api.Sentence) template.HTML { return v.Coded(v.say(s)) }

func (v *visit) say(s api.Sentence) string {
	text := s.Template
	if own := sayings[s.Template][languages[v.lang].column]; own != "" {
		text = own
	}
	pairs := make([]string, 0, 2*len(s.Values))
	for i, value := range s.Values {
		pairs = append(pairs, "{"+strconv.Itoa(i+1)+"}", v.valueIn(value))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// valueIn writes a value in a sentence.
func (v *visit) valueIn(value api.SentenceValue) string {
	switch {
	case value.Sentence != nil:
		return v.say(*value.Sentence)
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
