// Package payloadmark is the authority for how the version of a task's payload is stored.
//
// It stands among the task's headers, as the text "_payload_version": "2", and only from version 2 on: a task without the
// mark has the first version, or none, and costs nothing. No header can have that name, since the name of a header begins
// with a letter or a digit. So a DBA reads it with JSON_VALUE(headers, '$._payload_version'), plain SQL can write it, and it
// goes wherever headers go: through an outbox, into the runs of a schedule, along with a table that is moved.
//
// A mark that is no number stays among the headers. They are then an error, as headers that are no object of texts are.
package payloadmark

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Name is the name of the mark among the headers.
const Name = "_payload_version"

// First is the first version that is marked.
const First = 2

// start is how headers begin that Set has marked.
const start = `{"` + Name + `":"`

// Set returns headers, a JSON object or "", with the mark of a version. Versions before First have none.
func Set(headers string, version int) string {
	if version < First {
		return headers
	}
	marked := start + strconv.Itoa(version) + `"`
	if headers == "" {
		return marked + "}"
	}
	return marked + "," + headers[1:]
}

// Take returns headers without the mark, and the version; 0: there is no mark, or none that can be read.
func Take(headers string) (rest string, version int) {
	if !strings.Contains(headers, Name) {
		return headers, 0
	}
	if marked, ok := strings.CutPrefix(headers, start); ok {
		if text, rest, ok := strings.Cut(marked, `"`); ok && (rest == "}" || strings.HasPrefix(rest, ",")) {
			if version := number(text); version > 0 {
				return strings.TrimSuffix("{"+strings.TrimPrefix(rest, ","), "{}"), version
			}
		}
	}
	return takeAny(headers)
}

// takeAny is Take for headers that another program has written.
func takeAny(headers string) (rest string, version int) {
	var all map[string]*string
	if json.Unmarshal([]byte(headers), &all) != nil || all[Name] == nil || number(*all[Name]) == 0 {
		return headers, 0
	}
	version = number(*all[Name])
	if delete(all, Name); len(all) == 0 {
		return "", version
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(all) // texts always have a JSON
	return strings.TrimSuffix(text.String(), "\n"), version
}

// number reads a version; 0: it is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || strconv.Itoa(n) != text {
		return 0
	}
	return n
}
