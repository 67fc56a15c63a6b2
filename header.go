package tocsin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin/internal/payloadmark"
)

// Headers are texts by name that travel with a task beside its payload, for middleware: trace context, a tenant. They are
// kept as they are stored, as a JSON object of texts; "" is none.
type Headers string

// headerForm is the form of a header's name.
var headerForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Get returns the text of a header, "" if there is none. Names are compared as they are: upper and lower case differ.
func (h Headers) Get(name string) string {
	all, _ := h.All() // what is no object of texts has no headers; a delivery of it fails
	return all[name]
}

// All returns the headers by name. Headers that plain SQL has written may be an error: not a JSON object of texts.
func (h Headers) All() (map[string]string, error) {
	if h == "" {
		return nil, nil
	}
	var read map[string]*string
	if err := json.Unmarshal([]byte(h), &read); err != nil || read == nil {
		return nil, errNoObject
	}
	if _, is := read[payloadmark.Name]; is {
		return nil, errBadVersion
	}
	all := make(map[string]string, len(read))
	for name, text := range read {
		if text == nil {
			return nil, errNoObject
		}
		all[name] = *text
	}
	return all, nil
}

var (
	errNoObject   = errors.New("headers are not a JSON object of texts")
	errBadVersion = errors.New(payloadmark.Name + " among the headers is not a whole number from 1 on, as a text")
)

// MarshalJSON writes the object. Headers that are none become a text.
func (h Headers) MarshalJSON() ([]byte, error) {
	if all, err := h.All(); err == nil {
		return json.Marshal(all)
	}
	return json.Marshal(string(h))
}

// UnmarshalJSON reads what MarshalJSON has written.
func (h *Headers) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err == nil {
		*h = Headers(text)
		return nil
	}
	all, err := Headers(b).All()
	if err == nil {
		*h, err = writeHeaders(all)
	}
	return err
}

// HeadersOf returns headers as they are stored. It refuses what must not be stored, as ErrInvalid.
func HeadersOf(all map[string]string) (Headers, error) {
	for name, text := range all {
		switch {
		case !headerForm.MatchString(name):
			return "", refuse(ErrInvalid, "header %q: use letters, digits, '.', '_' and '-' for its name, at most 64, a letter or digit first", name)
		case !utf8.ValidString(text):
			return "", refuse(ErrInvalid, "header %s is not UTF-8", name)
		}
	}
	h, err := writeHeaders(all)
	if n := utf8.RuneCountInString(string(h)); n > MaxHeaders {
		return "", refuse(ErrInvalid, "headers have %d characters as JSON: at most %d", n, MaxHeaders)
	}
	return h, err
}

// markedHeaders is HeadersOf with the version of the payload, as both are stored together.
func markedHeaders(all map[string]string, version int) (Headers, error) {
	h, err := HeadersOf(all)
	if err != nil || version < payloadmark.First {
		return h, err
	}
	h = Headers(payloadmark.Set(string(h), version))
	if n := utf8.RuneCountInString(string(h)); n > MaxHeaders {
		return "", refuse(ErrInvalid, "headers have %d characters as JSON, with the version of the payload: at most %d", n, MaxHeaders)
	}
	return h, nil
}

// writeHeaders writes headers in the order of their names, without the escapes that only HTML needs.
func writeHeaders(all map[string]string) (Headers, error) {
	if len(all) == 0 {
		return "", nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(all); err != nil {
		return "", fmt.Errorf("write headers: %w", err)
	}
	return Headers(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// header is one of a NewTask's headers, and those that were set before it. It never changes, so copies of a NewTask may
// share it.
type header struct {
	name, text string
	optional   bool
	before     *header
}

// Header gives the task a header, and replaces one of the same name. Its name has letters, digits, '.', '_' and '-', at most
// 64; its text is UTF-8. All headers of a task have at most MaxHeaders characters as JSON. What is wrong is returned when
// the task is added, as ErrInvalid.
func (t NewTask) Header(name, text string) NewTask {
	t.headers = &header{name, text, false, t.headers}
	return t
}

// OptionalHeader is Header for what a task can do without, such as trace context: the header is left out if it can't be
// stored. That is so if its name or text is not valid, or if there is no room left. Of several optional headers those that were set first have priority.
func (t NewTask) OptionalHeader(name, text string) NewTask {
	t.headers = &header{name, text, true, t.headers}
	return t
}

// Headers returns the headers that the task was given, by name.
func (t NewTask) Headers() map[string]string {
	all := make(map[string]string)
	for h := t.headers; h != nil; h = h.before {
		if _, newer := all[h.name]; !newer {
			all[h.name] = h.text
		}
	}
	return all
}

// optional returns the names of headers that may be left out, in the order in which they were set.
func (t NewTask) optional() (names []string) {
	seen := make(map[string]bool)
	for h := t.headers; h != nil; h = h.before {
		if !seen[h.name] && h.optional {
			names = append(names, h.name)
		}
		seen[h.name] = true
	}
	slices.Reverse(names)
	return names
}

// storedHeaders returns the headers of a task as they are stored, with the version of its payload.
func (t NewTask) storedHeaders() (Headers, error) {
	all := t.Headers()
	if h, err := markedHeaders(all, t.version); err == nil {
		return h, nil
	}
	optional := t.optional()
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(name, _ string) bool { return slices.Contains(optional, name) })
	h, err := markedHeaders(kept, t.version)
	if err != nil {
		return h, err
	}
	for _, name := range optional {
		kept[name] = all[name]
		if more, err := markedHeaders(kept, t.version); err == nil {
			h = more
		} else {
			delete(kept, name)
		}
	}
	return h, nil
}

// withHeaders gives the task all of the headers.
func (t NewTask) withHeaders(all map[string]string) NewTask {
	for name, text := range all {
		t = t.Header(name, text)
	}
	return t
}

// Header returns the text of a header of the task, "" if there is none. Headers has all of them.
func (i Info) Header(name string) string { return i.Headers.Get(name) }
