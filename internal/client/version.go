package client

import (
	"encoding/json"
	"strconv"
	"strings"
)

// The version of a task's payload stands among the task's headers, as the text "_payload_version": "2", and only from version 2
// on: a task without the mark has the first version, or none, and costs nothing. No header can have that name, since the name of
// a header begins with a letter or a digit. So a DBA reads it with JSON_VALUE(headers, '$._payload_version'), plain SQL can write
// it, and it goes wherever headers go: through an outbox, into the runs of a schedule, along with a table that is moved.
//
// A mark that is no number stays among the headers. They are then an error, as headers that are no object of texts are.
const (
	VersionHeader = "_payload_version"

	// FirstMarked is the first version that is marked.
	FirstMarked = 2
)

// MarkedStart is how headers begin that setVersion has marked.
const MarkedStart = `{"` + VersionHeader + `":"`

// setVersion returns headers, a JSON object or "", with the mark of a version. Versions before FirstMarked have none.
func setVersion(headers string, version int) string {
	if version < FirstMarked {
		return headers
	}
	marked := MarkedStart + strconv.Itoa(version) + `"`
	if headers == "" {
		return marked + "}"
	}
	return marked + "," + headers[1:]
}

// TakeVersion returns headers without the mark, and the version; 0: there is no mark, or none that can be read.
func TakeVersion(headers string) (rest string, version int) {
	if !strings.Contains(headers, VersionHeader) {
		return headers, 0
	}
	if marked, ok := strings.CutPrefix(headers, MarkedStart); ok {
		if text, rest, ok := strings.Cut(marked, `"`); ok && (rest == "}" || strings.HasPrefix(rest, ",")) {
			if version := versionOf(text); version > 0 {
				return strings.TrimSuffix("{"+strings.TrimPrefix(rest, ","), "{}"), version
			}
		}
	}
	return takeOthers(headers)
}

// takeOthers is TakeVersion for headers that another program has written.
func takeOthers(headers string) (rest string, version int) {
	var all map[string]*string
	if json.Unmarshal([]byte(headers), &all) != nil || all[VersionHeader] == nil || versionOf(*all[VersionHeader]) == 0 {
		return headers, 0
	}
	version = versionOf(*all[VersionHeader])
	if delete(all, VersionHeader); len(all) == 0 {
		return "", version
	}
	rest, _ = JSON(all) // texts always have a JSON
	return rest, version
}

// versionOf reads a version; 0: it is none.
func versionOf(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || strconv.Itoa(n) != text {
		return 0
	}
	return n
}
