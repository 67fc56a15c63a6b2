package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

func TestEveryCommandHasHelpAndTheGlobalFlags(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: its short help is %q", c.CommandPath(), c.Short)
		}
		for _, flag := range []string{"config", "json"} {
			if c.InheritedFlags().Lookup(flag) == nil && c.HasParent() {
				t.Errorf("%s has no --%s", c.CommandPath(), flag)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(nil, nil))
}

// A word too many is often a mistyped flag, so no command passes over it.
func TestEveryCommandRefusesAStrayArgument(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		stray := []string{"one", "two", "three"}
		own := strings.Contains(c.Use, "(JOB_ID") // it refuses them in its own words: see badTasks
		if err := c.ValidateArgs(stray); !own && (c.Args == nil || codeOf(err) != exitUsage) {
			t.Errorf("%s takes the arguments %q: %v", c.CommandPath(), stray, err)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(nil, nil))
}

func TestHelpGoesToStandardOutput(t *testing.T) {
	t.Parallel()
	call(t).says(t, "Usage:", "cluster", "doctor")
	call(t, "task").says(t, "Usage:", "reschedule")
	call(t, "task", "add", "--help").says(t, "--biz-id", "Examples:")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	call(t, "version").says(t, "tocsin "+version)
	got := decode[map[string]any](t, call(t, "version", "--json"))
	if got["version"] != version || got["schema"] != float64(layoutrow.SchemaVersion) {
		t.Errorf("got %v", got)
	}
}

func TestShellCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		call(t, "completion", shell).says(t, "tocsin")
	}
	s := newSite(t)
	for _, args := range [][]string{{"task", "add", "--type", ""}, {"task", "cancel", "--type", ""}, {"biz", "show", ""}} {
		r := s.run(append([]string{"__complete"}, args...)...)
		if r.code != exitOK || !strings.HasPrefix(r.stdout, "order.close\tGo handler\ncoupon.remind\t") {
			t.Errorf("%v: exit code %d:\n%s", args, r.code, r.stdout)
		}
	}
	r := call(t, "__complete", "biz", "show", "") // no config, no error on the shell's line
	if r.code != exitOK || !strings.HasPrefix(r.stdout, ":") {
		t.Errorf("exit code %d:\n%s", r.code, r.stdout)
	}
}
