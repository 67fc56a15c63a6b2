package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

func newToken(a *app) *cobra.Command {
	return group("token", "Make tokens of the HTTP API", newTokenNew(a))
}

func newTokenNew(a *app) *cobra.Command {
	var t apitoken.Token
	var scope, expires string
	c := &cobra.Command{
		Use: "new --name NAME --scope SCOPE --types PATTERN", Short: "Make a token of the HTTP API", Args: noArgs,
		Long: `Prints a new token once, and the lines that the config keeps of it: its SHA-256, not the token. Put
the lines into the file of node.api.tokens_file, which tocsin serve reads again when it changes, or
below node.api.tokens. To take a token back, remove its lines.

  scope    allows
  read     to look up tasks, schedules, runs, biz types, nodes and counts
  write    and to add, cancel and reschedule tasks, to create, change, run and delete schedules
  operate  and to redrive and bury tasks, to backfill schedules, to pause and resume biz types`,
		Example: "  tocsin token new --name shop --scope write --types 'order.*'\n" +
			"  tocsin token new --name grafana --scope read --types '*' --expires 2160h",
		RunE: func(*cobra.Command, []string) error {
			if err := needed(map[string]bool{"--name": t.Name == "", "--scope": scope == "", "--types": len(t.BizTypes) == 0}); err != nil {
				return err
			}
			t.Scope = apitoken.Scope(scope)
			var err error
			if t.Expires, err = expiry(expires, time.Now()); err != nil {
				return err
			}
			return a.newToken(t)
		},
	}
	c.Flags().StringVar(&t.Name, "name", "", "holder of the token, as shown in the log: letters, digits, '.', '_' and '-'")
	c.Flags().StringVar(&scope, "scope", "", "read, write or operate")
	c.Flags().StringSliceVar(&t.BizTypes, "types", nil, "names of biz types, where * stands for any text; a single * allows all")
	c.Flags().StringVar(&expires, "expires", "", "when the token ends: a time (2030-01-02T15:04:05Z), or a duration from now (2160h); default: never")
	return c
}

// needed names the flags that are missing.
func needed(missing map[string]bool) error {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if missing[name] {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
		return nil
	case 1:
		return usage("%s is missing: see `tocsin token new --help`", names[0])
	}
	return usage("%s are missing: see `tocsin token new --help`", strings.Join(names, ", "))
}

// expiry reads a time, or a duration from now; "" is the zero time.
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if d, wrong := time.ParseDuration(text); wrong == nil {
		at, err = now.Add(d).UTC().Truncate(time.Second), nil
	}
	if err != nil || !at.After(now) {
		return at, usage("--expires %q: want a time in the future, such as 2030-01-02T15:04:05Z, or a duration, such as 2160h", text)
	}
	return at, nil
}

// madeToken is the JSON of `token new`.
type madeToken struct {
	Token string `json:"token"`
	keptToken
}

// keptToken is what the config keeps.
type keptToken struct {
	ID       string   `json:"id" yaml:"id"`
	Name     string   `json:"name" yaml:"name"`
	SHA256   string   `json:"sha256" yaml:"sha256"`
	Scope    string   `json:"scope" yaml:"scope"`
	BizTypes []string `json:"biz_types" yaml:"biz_types"`
	Expires  string   `json:"expires,omitempty" yaml:"expires,omitempty"`
}

func (a *app) newToken(t apitoken.Token) error {
	text, made, err := apitoken.New(t)
	if err != nil {
		return usageError{err}
	}
	kept := keptToken{ID: made.ID, Name: made.Name, SHA256: made.SHA256, Scope: string(made.Scope), BizTypes: made.BizTypes}
	if !made.Expires.IsZero() {
		kept.Expires = made.Expires.Format(time.RFC3339)
	}
	lines, err := yaml.Marshal(struct {
		Tokens []keptToken `yaml:"tokens"`
	}{[]keptToken{kept}})
	if err != nil {
		return err
	}
	return a.print(madeToken{text, kept}, func(w io.Writer) {
		fmt.Fprintf(w, "# The token, which is shown only now:\n#   %s\n# For the config, in the file of node.api.tokens_file or below node.api:\n%s", text, lines)
	})
}
