package dashboards

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/goccy/go-yaml"
)

// Rule is a recording rule or an alert.
type Rule struct {
	File        string            `yaml:"-"`
	Record      string            `yaml:"record"` // "" for an alert
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Annotations map[string]string `yaml:"annotations"`
}

// ReadRules reads the rules of Prometheus in a folder: the files that end with .rules.yaml.
func ReadRules(dir string) ([]Rule, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.rules.yaml"))
	if err != nil {
		return nil, err
	}
	var all []Rule
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var file struct {
			Groups []struct {
				Rules []Rule `yaml:"rules"`
			} `yaml:"groups"`
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, group := range file.Groups {
			for _, r := range group.Rules {
				r.File = filepath.Base(path)
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// ownInterval is the line by which a group of rules is evaluated less often than others.
var ownInterval = regexp.MustCompile(`(?m)^ +interval: .*\n`)

// AtOneInterval returns the text of rules without the intervals of groups: Prometheus then evaluates all groups alike.
func AtOneInterval(text string) string { return ownInterval.ReplaceAllString(text, "") }

// CopyRules copies the rules of a folder into another, each file as edit returns it.
func CopyRules(from, to string, edit func(text string) string) error {
	paths, err := filepath.Glob(filepath.Join(from, "*.rules.yaml"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), []byte(edit(string(text))), 0o600); err != nil {
			return err
		}
	}
	return nil
}
