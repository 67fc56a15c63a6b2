package schedule

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// YAML writes definitions as a file that Parse reads.
func YAML(all []Definition) ([]byte, error) {
	text, err := yaml.MarshalWithOptions(struct {
		Schedules []Definition `yaml:"schedules"`
	}{all}, yaml.CustomMarshaler[string](yamlText))
	if err != nil {
		return nil, fmt.Errorf("write schedules: %w", err)
	}
	return text, nil
}

// bare is a text that needs no quotes, unless it is a word such as null, or a number.
var bare = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/ -]*$`)

// yamlText quotes a text so that every reader of YAML reads the same, and a terminal shows it as it is. The library misreads some texts
// that it writes, and panics at others.
func yamlText(s string) ([]byte, error) {
	switch {
	case bare.MatchString(s) && strings.TrimSpace(s) == s:
		return yaml.Marshal(s)
	case strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }):
		return []byte(strconv.Quote(s)), nil // with escapes that YAML has too
	}
	return []byte("'" + strings.ReplaceAll(s, "'", "''") + "'"), nil
}
