package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every flag of every command tells in plain words why it does not take a value: package strconv and package time speak of Go.
func TestFlagsRefuseValuesInPlainWords(t *testing.T) {
	t.Parallel()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		for _, flags := range []*pflag.FlagSet{c.LocalFlags(), c.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				for _, value := range []string{"abc", "1d", "-x", "99999999999999999999999", ""} {
					err := flags.Set(f.Name, value)
					if err == nil {
						continue
					}
					says := c.Root().FlagErrorFunc()(c, err).Error()
					if strings.Contains(says, "strconv") || strings.Contains(says, "time: ") || strings.Contains(says, "invalid argument") || !strings.Contains(says, "want") {
						t.Errorf("%s --%s=%s (%s): %s", c.CommandPath(), f.Name, value, f.Value.Type(), says)
					}
				}
			})
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&app{}))
}
