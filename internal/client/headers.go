package client

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Header is one of a task's headers, and those that were set before it. It never changes, so copies of a task may
// share it.
type Header struct {
	Name, Text string
	Optional   bool // it may be left out
	Before     *Header
}

// All returns the headers by name. Of one name the last counts.
func (h *Header) All() map[string]string {
	all := make(map[string]string)
	for ; h != nil; h = h.Before {
		if _, newer := all[h.Name]; !newer {
			all[h.Name] = h.Text
		}
	}
	return all
}

// optional returns the names of headers that may be left out, in the order in which they were set.
func (h *Header) optional() (names []string) {
	seen := make(map[string]bool)
	for ; h != nil; h = h.Before {
		if !seen[h.Name] && h.Optional {
			names = append(names, h.Name)
		}
		seen[h.Name] = true
	}
	slices.Reverse(names)
	return names
}

// with adds all of the headers.
func (h *Header) with(all map[string]string) *Header {
	for name, text := range all {
		h = &Header{Name: name, Text: text, Before: h}
	}
	return h
}

// headerForm is the form of a header's name.
var headerForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

var (
	errNoObject   = errors.New("headers are not a JSON object of texts")
	errBadVersion = errors.New(VersionHeader + " among the headers is not a whole number from 1 on, as a text")
)

// ReadHeaders returns headers by name, as they are stored without the version of the payload. Those that plain SQL has written
// may be an error: not a JSON object of texts.
func ReadHeaders(stored string) (map[string]string, error) {
	if stored == "" {
		return nil, nil
	}
	var read map[string]*string
	if err := json.Unmarshal([]byte(stored), &read); err != nil || read == nil {
		return nil, errNoObject
	}
	if _, is := read[VersionHeader]; is {
		return nil, errBadVersion
	}
	all := make(map[string]string, len(read))
	unread := strings.Count(stored, "\ufffd") + strings.Count(strings.ToLower(stored), `\ufffd`)
	for name, text := range read {
		if text == nil {
			return nil, errNoObject
		}
		all[name] = *text
		unread -= strings.Count(*text, "\ufffd")
	}
	if unread < 0 { // it was read for half a surrogate pair, such as \ud800, which is no text
		return nil, errNoObject
	}
	return all, nil
}

// HeadersOf returns headers as they are stored, without the version of the payload. It refuses what must not be stored, as
// ErrInvalid.
func HeadersOf(all map[string]string) (string, error) {
	for name, text := range all {
		switch {
		case !headerForm.MatchString(name):
			return "", Refuse(ErrInvalid, "header %q: use letters, digits, '.', '_' and '-' for its name, at most 64, a letter or digit first", name)
		case !utf8.ValidString(text):
			return "", Refuse(ErrInvalid, "header %s is not UTF-8", name)
		}
	}
	h := WriteHeaders(all)
	if n := utf8.RuneCountInString(h); n > MaxHeaders {
		return "", Refuse(ErrInvalid, "headers have %d characters as JSON: at most %d", n, MaxHeaders)
	}
	return h, nil
}

// StoredHeaders is HeadersOf with the version of the payload, as both are stored together.
func StoredHeaders(all map[string]string, version int) (string, error) {
	h, err := HeadersOf(all)
	if err != nil || version < FirstMarked {
		return h, err
	}
	h = setVersion(h, version)
	if n := utf8.RuneCountInString(h); n > MaxHeaders {
		return "", Refuse(ErrInvalid, "headers have %d characters as JSON, with the version of the payload: at most %d", n, MaxHeaders)
	}
	return h, nil
}

// WriteHeaders writes headers in the order of their names.
func WriteHeaders(all map[string]string) string {
	if len(all) == 0 {
		return ""
	}
	text, _ := JSON(all) // texts always have a JSON, and HeadersOf has refused what is no text
	return text
}

// storedHeaders returns the headers of a task as they are stored, with the version of its payload.
func (t Task) storedHeaders() (string, error) {
	all := t.Headers.All()
	if h, err := StoredHeaders(all, t.Version); err == nil {
		return h, nil
	}
	optional := t.Headers.optional()
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(name, _ string) bool { return slices.Contains(optional, name) })
	h, err := StoredHeaders(kept, t.Version)
	if err != nil {
		return h, err
	}
	for _, name := range optional {
		kept[name] = all[name]
		if more, err := StoredHeaders(kept, t.Version); err == nil {
			h = more
		} else {
			delete(kept, name)
		}
	}
	return h, nil
}
