package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/config"
)

// app is what every command shares: the global flags and where output goes.
type app struct {
	configPath string
	json       bool
	out        printed
	err        printed
}

func newRoot(out, errOut *os.File) *cobra.Command {
	a := &app{out: printed{out}, err: printed{errOut}}
	root := &cobra.Command{
		Use:           "tocsin",
		Short:         "Delayed tasks on plain MySQL, delivered on time",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath())}
	})
	root.PersistentFlags().StringVar(&a.configPath, "config", "", "config file (default $TOCSIN_CONFIG, then ./tocsin.yaml)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	root.AddCommand(
		newServe(a), newRelay(a), newDev(a), newSweep(a), newPurge(a), newAudit(a), newDDL(a), newOutbox(a), newTask(a), newBiz(a), newSchedule(a),
		newCluster(a), newTop(a), newBench(a), newDoctor(a), newToken(a), newVersion(a),
	)
	return root
}

// noArgs refuses arguments, which for a parent command are unknown commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("unknown command or argument %q: see `%s --help`", args[0], cmd.CommandPath())}
}

// exactArgs wants the named arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return usageError{fmt.Errorf("want %s, got %d arguments: see `%s --help`", strings.Join(names, " "), len(args), cmd.CommandPath())}
	}
}

// group makes a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(commands...)
	return c
}

// load reads the config file.
func (a *app) load() (config.File, error) { return config.Load(a.configPath) }

// print writes v as JSON, or calls text, which writes it for people.
func (a *app) print(v any, text func(io.Writer)) error {
	if !a.json {
		text(a.out)
		return nil
	}
	enc := json.NewEncoder(a.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// interactive reports whether progress is drawn: on a terminal and not for a program.
func (a *app) interactive() bool { return !a.json && isatty.IsTerminal(a.err.Fd()) }

// parseTime reads the time of a flag.
func parseTime(flag, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, usage("--%s %q: want RFC 3339, as 2030-01-02T15:04:05Z", flag, text)
	}
	return t, nil
}

// usage makes an error of exit code 2.
func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
