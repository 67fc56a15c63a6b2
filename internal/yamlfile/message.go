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
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// message rewords a parser error in terms of the file.
func message(err yaml.Error) string {
	var unknown *yaml.UnknownFieldError
	var mistyped *yaml.TypeError
	var overflow *yaml.OverflowError
	var shape *yaml.UnexpectedNodeTypeError
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprintf("unknown key %q", unknown.Token.Value)
	case errors.As(err, &mistyped):
		return fmt.Sprintf("%s is not %s%s", written(mistyped.Token.Value), noun(mistyped.DstType), quoting(mistyped))
	case errors.As(err, &overflow):
		return fmt.Sprintf("%s is out of range", overflow.SrcNum)
	case errors.As(err, &shape):
		return fmt.Sprintf("%s belongs here, not %s", shapeOf(shape.Expected), shapeOf(shape.Actual))
	}
	// A repeated key's message ends with the place of the first one as
	// [line:column]; the rest are plain.
	text, place, found := strings.Cut(firstLine(err.GetMessage()), " at [")
	switch {
	case strings.HasPrefix(text, "mapping value is not allowed"):
		text += `: a value with ": " in it needs quotes`
	case afterQuotes(err.GetToken()):
		text += `: quotes stand within quotes: write \" within double ones and '' within single ones, or use the other kind around the text`
	case hasAny(text, "invalid key for this map", "must be specified"):
		text += `: within braces and brackets, a value with any of [ ] { } or a comma in it needs quotes, such as "[::1]:2379"`
	case hasAny(text, "is a reserved character", "undefined alias", "undefined anchor", "value is not allowed in this context", "unexpected scalar value", "flow map content",
		"directive value", "block sequence entries are not", "invalid header option", "invalid tag character", "character corresponding to"):
		text += indicators
	case strings.Contains(text, "found character '\t'"):
		text = "a tab stands here: indent YAML with spaces"
	}
	if found {
		text += " in line " + strings.Split(place, ":")[0]
	}
	return text
}

// indicators ends what is said of a value that begins with a character that YAML keeps for itself.
const indicators = ": a value that begins with one of * & ! @ ` % | > { } [ ] - ? needs quotes, such as cron: \"*/5 * * * *\""

// afterQuotes reports whether a token stands right behind a text in quotes.
func afterQuotes(t *token.Token) bool {
	return t.Prev != nil && slices.Contains([]token.Type{token.SingleQuoteType, token.DoubleQuoteType}, t.Prev.Type)
}

func hasAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// written names what stands in a field, by its first token.
func written(token string) string {
	switch token {
	case ":", "{":
		return "a mapping"
	case "[", "-":
		return "a list"
	}
	return strconv.Quote(token)
}

// quoting advises quotes around a text that YAML reads as a mapping or a list.
func quoting(err *yaml.TypeError) string {
	if err.DstType.Kind() != reflect.String || !slices.Contains([]string{":", "{", "[", "-"}, err.Token.Value) {
		return ""
	}
	return ": put it in single quotes, such as '{\"order\":42}'"
}

// shapeOf names a kind of YAML value.
func shapeOf(t ast.NodeType) string {
	switch t {
	case ast.MappingType, ast.MappingValueType:
		return "a mapping (NAME: VALUE)"
	case ast.SequenceType:
		return "a list"
	case ast.IntegerType, ast.FloatType:
		return "a number"
	case ast.StringType, ast.LiteralType:
		return "a text"
	}
	return t.YAMLName()
}

// noun names what belongs into a field.
func noun(t reflect.Type) string {
	if t == reflect.TypeFor[time.Time]() {
		return "a time with a zone, such as 2030-01-02T15:04:05Z"
	}
	if t.Kind() == reflect.Int64 && reflect.PointerTo(t).Implements(ofText) {
		return "a duration such as 30s, 10m or 24h"
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
