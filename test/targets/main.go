// Command targets measures every row of the table of targets in
// docs/performance.md with `tocsin bench` or a Go benchmark, one run after
// another, and prints one table: figure, target, median over the rounds, met or
// missed. It is the authority for what is measured for which target, and measures
// nothing itself.
//
// Rounds are interleaved - each row once, then each row again - so that what a
// machine does for some minutes falls on all rows alike. A run that fails is named
// in the table and ends nothing; the exit code is 1 then. A missed target is a
// figure, not a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// options are the flags.
type options struct {
	program string
	rounds  int
	rows    []row
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, out, progress io.Writer) int {
	o, err := parse(args, progress)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(progress, "targets:", err)
		return exitUsage
	}
	failed := 0
	results := measure(ctx, o, func(r row, round int, err error) {
		said := "done"
		if err != nil {
			failed++
			said = err.Error()
		}
		fmt.Fprintf(progress, "round %d: %s: %s\n", round, r.command, said)
	}, call)
	fmt.Fprint(out, results.table(o.rows))
	if failed > 0 || ctx.Err() != nil {
		return exitFailed
	}
	return 0
}

// parse reads the flags. Its errors are one line each.
func parse(args []string, usage io.Writer) (options, error) {
	var o options
	var only string
	flags := flag.NewFlagSet("targets", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.program, "tocsin", "bin/tocsin", "the program to run")
	flags.IntVar(&o.rounds, "rounds", 3, "rounds of the rows that take a ratio; the others have one")
	flags.StringVar(&only, "only", "", "rows to measure, by name and separated by commas: "+names())
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(usage)
		flags.PrintDefaults()
		return o, err
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.rounds < 1 || o.rounds > 100:
		return o, fmt.Errorf("%d rounds: want 1 to 100", o.rounds)
	}
	if only == "" {
		only = names()
	}
	for name := range strings.SplitSeq(only, ",") {
		i := rowNamed(strings.TrimSpace(name))
		if i < 0 {
			return o, fmt.Errorf("no row %q: there are %s", name, names())
		}
		o.rows = append(o.rows, rows[i])
	}
	return o, nil
}

// call runs the command of a row and returns what it prints.
func call(ctx context.Context, program, command string) ([]byte, error) {
	words := strings.Fields(command)
	if words[0] == "tocsin" {
		words = append(words, "--json")
		words[0] = program
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		said.Write(out) // there go test tells what failed, and ends with lines that say no more
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(said.String()), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "FAIL") || strings.HasPrefix(line, "exit status")
		})
		return nil, fmt.Errorf("%w: %s", err, strings.Join(lines[max(len(lines)-1, 0):], ""))
	}
	return out, nil
}
