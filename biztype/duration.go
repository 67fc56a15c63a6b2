package biztype

import (
	"fmt"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/tocsinhq/tocsin/internal/yamlfile"
)

// Duration is a time.Duration that reads and writes as "1m30s", in YAML and in
// JSON.
type Duration time.Duration

// D gives the time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String gives the Go form.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the Go form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the Go form.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 30s, 10m or 24h", b)
	}
	*d = Duration(v)
	return nil
}

// UnmarshalYAML reads the Go form, and tells where in the file it is wrong.
func (d *Duration) UnmarshalYAML(node ast.Node) error {
	text, ok := yamlfile.Text(node)
	if !ok {
		return yamlfile.ErrorAt(node, "a duration such as 30s, 10m or 24h belongs here")
	}
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return yamlfile.ErrorAt(node, "%s", err)
	}
	return nil
}
