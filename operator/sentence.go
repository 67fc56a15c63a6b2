package operator

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Sentence is a text with its parts, so that it can be written in another language and time zone. The zero value is no text.
type Sentence struct {
	Text     string  // in English, with times in UTC
	Template string  // Text with {1}, {2}, ... in place of Values
	Values   []Value // of the Template, in their order
}

// Value is a part of a Sentence. Text is always what stands in the Sentence's Text; at most one of the others is set.
type Value struct {
	Text string
	At   time.Time
	For  time.Duration
	Says *Sentence
}

// String returns the Text.
func (s Sentence) String() string { return s.Text }

// places are those for values in a format.
var places = regexp.MustCompile(`%%|%[.0-9]*[a-z]`)

// sentence fills in a format as fmt does, and keeps the parts. A Sentence by itself stays one.
func sentence(format string, args ...any) Sentence {
	if len(args) == 1 && format == "%s" {
		if whole, ok := args[0].(Sentence); ok {
			return whole
		}
	}
	s := Sentence{Text: fmt.Sprintf(format, args...)}
	s.Template = places.ReplaceAllStringFunc(format, func(verb string) string {
		if verb == "%%" {
			return "%"
		}
		s.Values = append(s.Values, partOf(verb, args[len(s.Values)]))
		return "{" + strconv.Itoa(len(s.Values)) + "}"
	})
	return s
}

func partOf(verb string, arg any) Value {
	v := Value{Text: fmt.Sprintf(verb, arg)}
	switch arg := arg.(type) {
	case instant:
		v.At = arg.at
	case span:
		v.For = time.Duration(arg)
	case Sentence:
		if arg.Template != "" {
			v.Says = &arg
		}
	}
	return v
}

// listed joins sentences with commas.
func listed(all []Sentence) Sentence {
	format := strings.TrimSuffix(strings.Repeat("%s, ", len(all)), ", ")
	args := make([]any, len(all))
	for i, s := range all {
		args[i] = s
	}
	return sentence(format, args...)
}

// fixed is a sentence without values.
func fixed(text string) Sentence { return Sentence{Text: text, Template: text} }

// instant is a time in a sentence.
type instant struct {
	at   time.Time
	text string
}

func (i instant) String() string { return i.text }

// span is a length of time in a sentence.
type span time.Duration

func (s span) String() string { return Short(time.Duration(s)) }

// plural writes "1 attempt", "2 attempts".
func plural(n int, noun string) Sentence {
	if n == 1 {
		return sentence("%d "+noun, n)
	}
	return sentence("%d "+noun+"s", n)
}
