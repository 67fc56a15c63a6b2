// Command tocsin is the operator's side of Tocsin: it runs nodes and sweepers,
// makes and checks the tables, applies biz types, and looks at, cancels and
// redrives tasks.
//
// It wires the packages together and holds no logic of its own. Every command
// takes --config and --json, says what went wrong in one line, and exits with 0
// if all went well, 1 if something failed, 2 if it was called wrongly.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/grpclog"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/operator"
)

// version is set when the program is built.
var version = "dev"

func main() {
	broker.Main() // of `tocsin dev --kafka`
	// The etcd client's transport writes to stderr by itself. What it says reaches us as errors too.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	var unwritten error
	a := &app{out: printed{stdout, &unwritten}, err: printed{file: stderr}}
	root := newRoot(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	a.note(ctx, cmd, err)
	if errors.Is(err, errSilent) || err == nil {
		err = cmp.Or(unwritten, err)
	}
	if err == nil {
		return exitOK
	}
	if text := operator.OneLine(err); text != "" {
		if do := assign.Advice(err); do != "" {
			text += "; " + do
		}
		fmt.Fprintln(a.err, "tocsin: "+text)
	}
	return codeOf(err)
}

// app is what every command shares: the global flags and where output goes.
type app struct {
	configPath string
	json       bool
	out        printed
	err        printed
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "tocsin",
		Short:         "Delayed tasks on plain MySQL, delivered on time",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return bounded(cmd) },
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var invalid *pflag.InvalidValueError
		if errors.As(err, &invalid) {
			err = unread(invalid)
		}
		return usage("%w: see `%s --help`", err, cmd.CommandPath())
	})
	root.PersistentFlags().StringVar(&a.configPath, "config", "", "config file (default $TOCSIN_CONFIG, then ./tocsin.yaml)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	root.AddCommand(
		newServe(a), newRelay(a), newDev(a), newSweep(a), newPurge(a), newAudit(a), newDDL(a), newOutbox(a), newTask(a), newBiz(a), newSchedule(a), newRuns(a),
		newCluster(a), newTop(a), newBench(a), newSink(a), newDoctor(a), newToken(a), newActs(a), newVersion(a),
	)
	return root
}

// wanted is what a flag of each type takes; texts are taken as they are, and types of our own say it.
var wanted = map[string]string{
	"bool":     "true or false",
	"duration": "a duration such as 90s, 10m or 24h (a day is 24h)",
	"float64":  "a number",
	"int":      "a whole number",
	"int32":    "a whole number",
	"uint64":   "a whole number from 0 to 2^64-1",
}

// unread words why a flag does not take its value: package strconv does so in words of Go.
func unread(err *pflag.InvalidValueError) error {
	if want := wanted[err.GetFlag().Value.Type()]; want != "" {
		return fmt.Errorf("--%s %q: want %s", err.GetFlag().Name, err.GetValue(), want)
	}
	return err
}

// The largest count, and the longest duration, of a flag without a range: sums and multiples of them do not overflow.
const (
	maxCount    = 1_000_000_000
	maxDuration = 10 * 365 * 24 * time.Hour
)

const rangeKey = "tocsin range"

// within states the range of a flag. If the flag is given, bounded refuses other values; its default may be outside.
func within[N int | time.Duration](cmd *cobra.Command, flag string, least, most N) {
	cmd.Flag(flag).Annotations = map[string][]string{rangeKey: {fmt.Sprint(least), fmt.Sprint(most)}}
}

// bounded refuses counts and durations that are out of range.
func bounded(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		bounds := f.Annotations[rangeKey]
		switch kind := f.Value.Type(); {
		case len(bounds) > 0:
		case kind == "duration":
			bounds = []string{"0s", maxDuration.String()}
		case kind == "int" || kind == "float64":
			bounds = []string{"0", strconv.Itoa(maxCount)}
		default:
			return
		}
		if n := amount(f.Value.String()); err == nil && !(n >= amount(bounds[0]) && n <= amount(bounds[1])) { // NaN is out of range too
			err = usage("--%s %s: use %s to %s", f.Name, f.Value, bounds[0], bounds[1])
		}
	})
	return err
}

// amount reads a number, or a duration in nanoseconds.
func amount(text string) float64 {
	if d, err := time.ParseDuration(text); err == nil {
		return float64(d)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

// noArgs refuses arguments, which for a parent command are unknown commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage("unknown command or argument %q: see `%s --help`", args[0], cmd.CommandPath())
}

// exactArgs wants the named arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return usage("want %s, got %d arguments: see `%s --help`", strings.Join(names, " "), len(args), cmd.CommandPath())
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

// show prints the result of a call, or returns its error.
func (a *app) show(v any, err error, text func(io.Writer)) error {
	if err != nil {
		return err
	}
	return a.print(v, text)
}

// orEmpty has an empty list be [] in JSON, not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// parseTime reads the time of a flag.
func parseTime(flag, text string) (time.Time, error) {
	t, err := name.ReadTime(text)
	if err != nil {
		return t, usage("--%s %q: %w", flag, text, err)
	}
	return t, nil
}

// usage makes an error of exit code 2.
func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// usageError marks what the caller must change in the command line: exit code 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// errSilent ends with exit code 1 after the command has said all there is to say.
var errSilent = errors.New("")

func codeOf(err error) int {
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// cluster reads the servers and the layout of the config file.
func (a *app) cluster() (tocsin.Config, error) {
	file, err := a.load()
	if err != nil {
		return tocsin.Config{}, err
	}
	return file.Tocsin(), nil
}

// using opens something of the config's cluster, has work use it, and closes it.
func using[T io.Closer](ctx context.Context, a *app, open func(context.Context, tocsin.Config) (T, error), work func(T) error) error {
	cfg, err := a.cluster()
	if err != nil {
		return err
	}
	opened, err := open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	return work(opened)
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of the program and of the schema it expects", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Schema  int    `json:"schema"`
				Go      string `json:"go"`
			}{version, layoutrow.SchemaVersion, runtime.Version()}
			return a.print(v, func(w io.Writer) { fmt.Fprintf(w, "tocsin %s, schema %d, %s\n", v.Version, v.Schema, v.Go) })
		},
	}
}

// completeWithin bounds what a shell waits for.
const completeWithin = 2 * time.Second

// completing completes an argument, or a flag before it, with what names returns. If that can't be read it completes
// nothing: a shell is no place for errors.
func completing(names func(context.Context) []cobra.Completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		return names(ctx), cobra.ShellCompDirectiveNoFileComp
	}
}

// oneNameAtMost takes a NAME or none.
func oneNameAtMost(cmd *cobra.Command, args []string) error {
	if len(args) <= 1 {
		return nil
	}
	return usage("want one NAME, got %d arguments: see `%s --help`", len(args), cmd.CommandPath())
}
