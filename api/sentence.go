package api

import (
	"github.com/tocsinhq/tocsin/operator"
)

// Sentence is a text in parts, so that it can be written in another language and time zone.
type Sentence struct {
	Template string          `json:"template" doc:"The English text with {1}, {2}, ... in place of the values. A release may change it: then write the text as it is" example:"it is not due before {1}"`
	Values   []SentenceValue `json:"values,omitempty"`
}

// SentenceValue is a value in a sentence. It has one of the fields beside the text, or none.
type SentenceValue struct {
	Text     string    `json:"text" doc:"As the English text has it"`
	Time     *Time     `json:"time,omitempty"`
	SpanMS   int64     `json:"span_ms,omitempty" doc:"A length of time"`
	Sentence *Sentence `json:"sentence,omitempty" doc:"A part that is a sentence itself"`
}

// ExplanationParts are the sentences of an explanation, each list in the order of the texts.
type ExplanationParts struct {
	Says     Sentence   `json:"says"`
	Also     []Sentence `json:"also"`
	NotAsked []Sentence `json:"not_asked"`
}

func sentenceOf(s operator.Sentence) Sentence {
	out := Sentence{Template: s.Template}
	for _, v := range s.Values {
		value := SentenceValue{Text: line(v.Text), Time: timeOf(v.At), SpanMS: v.For.Milliseconds()}
		if v.Says != nil {
			whole := sentenceOf(*v.Says)
			value.Sentence = &whole
		}
		out.Values = append(out.Values, value)
	}
	return out
}

func sentencesOf(all []operator.Sentence) []Sentence {
	out := make([]Sentence, len(all))
	for i, s := range all {
		out[i] = sentenceOf(s)
	}
	return out
}
