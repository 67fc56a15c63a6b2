package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Dashboard is what Grafana reads from a file, as far as others than Grafana need it.
type Dashboard struct {
	File       string  `json:"-"`
	Title      string  `json:"title"`
	Panels     []Panel `json:"panels"` // rows too
	Templating struct {
		List []Variable `json:"list"`
	} `json:"templating"`
}

// Variable is one that the reader of a dashboard chooses.
type Variable struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Query    string `json:"query"`
	AllValue string `json:"allValue"`
}

// Panel is a panel, or the heading of a row.
type Panel struct {
	Title       string                        `json:"title"`
	Type        string                        `json:"type"`
	Description string                        `json:"description"`
	GridPos     struct{ X, Y, W, H int }      `json:"gridPos"`
	Targets     []Target                      `json:"targets"`
	Links       []struct{ URL, Title string } `json:"links"`
	FieldConfig struct {
		Defaults struct{ Unit string }
	} `json:"fieldConfig"`
}

// Target is one query of a panel.
type Target struct {
	Expr   string `json:"expr"`
	Legend string `json:"legendFormat"`
}

// Read reads the dashboards of a folder, by the names of their files.
func Read(dir string) ([]Dashboard, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Dashboard
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		d := Dashboard{File: filepath.Base(path)}
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// chosen matches a variable in a query.
var chosen = regexp.MustCompile(`\$\{?(\w+)\}?`)

// Fill puts values for the variables into a query, as Grafana does it when "All" is chosen: interval is that of rates. A
// variable that the dashboard does not have stays.
func (d Dashboard) Fill(expr, interval string) string {
	values := map[string]string{"__rate_interval": interval}
	for _, v := range d.Templating.List {
		values[v.Name] = v.AllValue
	}
	return chosen.ReplaceAllStringFunc(expr, func(found string) string {
		name := strings.Trim(found, "${}")
		if value, ok := values[name]; ok {
			return value
		}
		return found
	})
}
