package yamlfile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// message says in the words of who wrote the file what the parser says in
// words of Go.
func message(err yaml.Error) string {
	var unknown *yaml.UnknownFieldError
	var mistyped *yaml.TypeError
	var overflow *yaml.OverflowError
	var shape *yaml.UnexpectedNodeTypeError
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprintf("unknown key %q", unknown.Token.Value)
	case errors.As(err, &mistyped):
		return fmt.Sprintf("%s is not %s", written(mistyped.Token.Value), noun(mistyped.DstType))
	case errors.As(err, &overflow):
		return fmt.Sprintf("%s is out of range", overflow.SrcNum)
	case errors.As(err, &shape):
		return fmt.Sprintf("a %s belongs here, not %s", shape.Expected.YAMLName(), shape.Actual.YAMLName())
	}
	// A repeated key's message ends with the place of the first one as
	// [line:column]; the rest are plain.
	text, place, found := strings.Cut(firstLine(err.GetMessage()), " at [")
	if hasAny(text, "'@' is a reserved character", "undefined alias name", "value is not allowed in this context") {
		text += `: a value that begins with * or @ needs quotes, such as cron: "*/5 * * * *"`
	}
	if found {
		text += " in line " + strings.Split(place, ":")[0]
	}
	return text
}

func hasAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// written names what stands in a field, by its first token.
func written(token string) string {
	switch token {
	case ":", "{":
		return "a mapping (a value with a colon may need quotes)"
	case "[":
		return "a sequence"
	}
	return strconv.Quote(token)
}

// noun names what belongs into a field.
func noun(t reflect.Type) string {
	if t == reflect.TypeFor[time.Time]() {
		return "a time with a zone, such as 2030-01-02T15:04:05Z"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	}
	return "what belongs here"
}
