package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	"github.com/go-json-experiment/json/jsontext"
)

// Problem is every refusal, as RFC 9457 describes it.
type Problem struct {
	Type   string  `json:"type" format:"uri" doc:"Names the kind of problem; stable" example:"urn:tocsin:problem:not_found"`
	Title  string  `json:"title" doc:"The status in words" example:"Not Found"`
	Status int     `json:"status" doc:"The HTTP status" example:"404"`
	Code   string  `json:"code" doc:"The last part of type; stable" example:"not_found"`
	Detail string  `json:"detail" doc:"One line: what is wrong, and what to do" example:"there is no task 4711 that you may see"`
	Errors []Fault `json:"errors,omitempty" doc:"What is wrong with single values"`

	retry int // seconds of Retry-After; 0: none
}

// Fault is what is wrong with one value of a request. It never repeats the value.
type Fault struct {
	Location string `json:"location" doc:"Where the value stands" example:"body.tasks[3].biz_id"`
	Message  string `json:"message" doc:"What is wrong with it"`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status, for huma.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns further headers of the answer, for huma.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	return h
}

// ContentType returns the media type of problems, for huma.
func (p *Problem) ContentType(string) string { return problemJSON }

const problemJSON = "application/problem+json"

// problem makes a problem of a stable code.
func problem(status int, code, format string, args ...any) *Problem {
	return &Problem{
		Type: "urn:tocsin:problem:" + code, Title: http.StatusText(status), Status: status, Code: code,
		Detail: line(fmt.Sprintf(format, args...)),
	}
}

// failure is a problem, and its cause for the log.
type failure struct {
	*Problem
	cause error
}

func (f *failure) Unwrap() []error { return []error{f.Problem, f.cause} }

// after sets Retry-After.
func (p *Problem) after(seconds int) *Problem {
	p.retry = seconds
	return p
}

// at says where the value stands that is wrong.
func (p *Problem) at(location string) *Problem {
	p.Errors = []Fault{{Location: location, Message: p.Detail}}
	return p
}

// under puts the locations in a body that stands at a place of another one.
func (p *Problem) under(place string) *Problem {
	for i := range p.Errors {
		p.Errors[i].Location = place + strings.TrimPrefix(p.Errors[i].Location, "body")
	}
	return p
}

// maxDetail is the longest detail, in bytes.
const maxDetail = 1000

// line makes one line of a text, and cuts it.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
	if len(text) <= maxDetail {
		return text
	}
	cut := maxDetail
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// writeProblem answers with a problem outside of huma.
func writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	callOf(r.Context()).code = p.Code
	h := w.Header()
	for name, values := range p.GetHeaders() {
		h[name] = values
	}
	h.Set("Content-Type", problemJSON)
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(p) // the caller may be gone
	}
}

// refused makes a problem of what huma finds wrong with a request.
func refused(status int, text string, errs []error) *Problem {
	p := problem(status, codes[status], "%s", plain.Replace(text))
	if p.Code == "" {
		p = problem(status, "internal", "the API failed: its log has the cause")
	}
	for _, err := range errs[:min(len(errs), maxFaults)] {
		var detailer huma.ErrorDetailer
		if err == nil || !errors.As(err, &detailer) {
			continue // of another kind: its text may hold anything
		}
		d := detailer.ErrorDetail()
		p.Errors = append(p.Errors, Fault{Location: place(d.Location), Message: inPlain(d.Location, d.Message)})
	}
	if len(p.Errors) > 0 {
		p.Detail = line(strings.TrimPrefix(p.Errors[0].Location+": "+p.Errors[0].Message, ": "))
	}
	return p
}

// maxFaults is how many faults of a request are named.
const maxFaults = 20

// fault is what is wrong with the value at a place of the body.
func fault(at jsontext.Pointer, message string) error {
	location := "body"
	for name := range at.Tokens() {
		if _, err := strconv.Atoi(name); err == nil {
			location += "[" + name + "]"
		} else {
			location += "." + name
		}
	}
	return &huma.ErrorDetail{Location: location, Message: message}
}

// plain replaces patterns in huma's messages with words.
var plain = strings.NewReplacer(
	"expected string to match pattern "+idPattern, "expected a text with a decimal number from 1 on",
	"expected number <= 315360000000", "expected a number of at most 315360000000, which is ten years",
	"expected number <= 9007199254740991", "expected a number of at most 9007199254740991",
	"request body is required", "this operation needs a body of JSON: docs/api.md and openapi.yaml say with which fields",
)

// texts says how to write a text that is often sent as an object or a number.
var texts = map[string]string{"payload": ": write JSON as a text, with its quotes escaped", "biz_id": `, such as "42"`}

// inPlain words what is wrong with the value at a place.
func inPlain(location, message string) string {
	if message == "expected string" {
		message += texts[location[strings.LastIndex(location, ".")+1:]]
	}
	return line(plain.Replace(message))
}

// codes are those of refusals that huma makes; readBody makes those of a body that can't be read.
var codes = map[int]string{http.StatusBadRequest: "malformed", http.StatusUnprocessableEntity: "invalid"}

// maxPlace is the longest location that is repeated: it may hold the name of a property that is none of ours.
const maxPlace = 100

func place(location string) string {
	if len(location) > maxPlace {
		top, _, _ := strings.Cut(location, ".")
		return line(top[:min(len(top), maxPlace)])
	}
	return line(location)
}

// Huma's own refusals become problems, and properties differ in more than case. These are settings of the whole process,
// which nobody but this package uses.
func init() {
	huma.ValidateStrictCasing = true
	huma.DefaultArrayNullable = false
	validation.MsgExpectedRequiredProperty = `property "%s" is missing`
	validation.MsgExpectedMaximumNumber = "expected number <= %.0f"
	validation.MsgExpectedRFC3339DateTime = "expected a time of RFC 3339, such as 2030-01-02T15:04:05Z"
	huma.NewError = func(status int, text string, errs ...error) huma.StatusError { return refused(status, text, errs) }
	huma.NewErrorWithContext = func(ctx huma.Context, status int, text string, errs ...error) huma.StatusError {
		p := refused(status, text, errs)
		callOf(ctx.Context()).note(p, text, errs)
		return p
	}
}
