package api

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/schedule"
)

// tagOf returns the ETag of a schedule: its schedule_id and revision. A schedule that is deleted and created again gets
// another schedule_id, and so another ETag.
func tagOf(s schedule.Schedule) string { return fmt.Sprintf(`"%s.%d"`, s.ID, s.Revision) }

// tags matches a valid If-Match: a list of entity tags. A weak tag (W/"...") matches as a strong one does: a proxy that
// compresses answers makes them weak, and a tag names a revision, not bytes.
var (
	tag  = regexp.MustCompile(`(?:W/)?"[!#-~]*"`)
	tags = regexp.MustCompile(`^` + tag.String() + `(?:[ \t]*,[ \t]*` + tag.String() + `)*$`)
)

// IfMatch is the condition of a change.
type IfMatch struct {
	Tags string `header:"If-Match" maxLength:"1000" doc:"The ETag of the schedule as you have read it, with its quotes, so that nobody else's change is lost; or * for whatever it is now. Without it the answer is 428" example:"\"1523399873241099.3\""`
}

// check refuses a request without a condition.
func (m IfMatch) check() error {
	switch text := strings.TrimSpace(m.Tags); {
	case text == "":
		return problem(http.StatusPreconditionRequired, "if_match", "send the ETag of the schedule as you have read it, with its quotes: If-Match: \"...\"")
	case text != "*" && !tags.MatchString(text):
		return problem(http.StatusBadRequest, "malformed", "If-Match takes the ETag of a schedule as it was given, with its quotes, or *")
	}
	return nil
}

// met reports whether a schedule is as the caller has read it.
func (m IfMatch) met(s schedule.Schedule) bool {
	text := strings.TrimSpace(m.Tags)
	return text == "*" || slices.ContainsFunc(tag.FindAllString(text, -1), func(t string) bool { return strings.TrimPrefix(t, "W/") == tagOf(s) })
}
