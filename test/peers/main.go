// Command peers runs the same work on Tocsin and on what a user would pick
// instead, in rounds, and prints one table: see package contest. Each system has
// a file of its own, and says there how it is tuned. All servers are started and
// removed by the command.
//
//	peers --rounds 3                       every system, three times, in turn
//	peers --only tocsin,river --json       two of them, for other programs
//	peers --merge monday.json,today.json   the table of what earlier runs wrote
//
// It exits with 0 if all was measured, 1 if not, 2 if it was called wrongly; an
// error is one line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tocsinhq/tocsin/test/peers/contest"
)

// entries are all that can be measured.
var entries = []contest.Entry{
	{Name: contest.Reference, Open: openTocsin},
	{Name: "tocsin-pull", Open: openTocsinPull, Workers: true},
	{Name: "river", Open: openRiver},
	{Name: "asynq", Open: openAsynq, Inserters: asynqInserters, Batch: 100, Workers: true},
	{Name: "beanstalkd", Open: openBeanstalkd, Inserters: beanstalkInserters, Workers: true},
	{Name: "redis-zset", Open: openZset},
}

// errUsage marks what the caller must change in the command line.
var errUsage = errors.New("wrong call")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the command.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	c, err := parse(args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = c.do(ctx, out)
	}
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	fmt.Fprintln(errs, "peers:", strings.ReplaceAll(strings.TrimSuffix(err.Error(), "\n"+errUsage.Error()), "\n", "; "))
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// call is what the command line says.
type call struct {
	contest.Options
	entries []contest.Entry
	merge   []string // files; none: measure
	json    bool
}

// parse reads the command line; errs takes the help.
func parse(args []string, errs io.Writer) (c call, err error) {
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.IntVar(&c.Tasks, "tasks", 100_000, "of insert and of drain")
	rates := f.String("rate", "500,1000", "tasks a second for lateness, each its own work; \"\" for none")
	f.DurationVar(&c.Adding, "adding", 5*time.Second, "how long tasks are added at each rate")
	f.IntVar(&c.Rounds, "rounds", 3, "turns of each system")
	only := f.String("only", "", "systems to measure, such as tocsin,river; all: "+strings.Join(names(), ","))
	layout := f.String("layout", "8x16", "of Tocsin's tables, databases x tables")
	f.IntVar(&c.Workers, "workers", 0, "each system delivers with so many workers, one task each; without those that have no such; 0: as suits each best")
	f.BoolVar(&c.Strict, "strict", false, "Redis and beanstalkd, too, flush every write before they answer")
	f.BoolVar(&c.Warm, "warm", true, "drain Tocsin with a node that has been up for a minute, and claims nothing")
	f.BoolVar(&c.json, "json", false, "print JSON, with every round")
	merge := f.String("merge", "", "measure nothing: put together the JSON files of earlier runs")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(errs, "peers: the same work on Tocsin and its peers")
		f.SetOutput(errs)
		f.PrintDefaults()
		return c, err
	} else if err != nil {
		return c, errors.Join(err, errUsage)
	}
	if f.NArg() > 0 {
		return c, errors.Join(fmt.Errorf("unexpected %q: see --help", f.Arg(0)), errUsage)
	}
	c.merge = words(*merge)
	if err = c.complete(*rates, *only, *layout); err == nil {
		err = c.Validate()
	}
	if err != nil {
		return c, errors.Join(err, errUsage)
	}
	c.Progress = func(round int, system, text string) { fmt.Fprintf(errs, "round %d: %s: %s\n", round, system, text) }
	return c, nil
}

// complete reads what flags hold as text.
func (c *call) complete(rates, only, layout string) error {
	for _, text := range words(rates) {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("rate %q: want tasks a second, such as 500,1000", text)
		}
		c.Rates = append(c.Rates, rate)
	}
	l := &c.Layout
	if _, err := fmt.Sscanf(layout, "%dx%d", &l.Databases, &l.Tables); err != nil || l.String() != layout {
		return fmt.Errorf("layout %q: want databases x tables, such as 8x16", layout)
	}
	for _, name := range words(only) {
		i := slices.IndexFunc(entries, func(e contest.Entry) bool { return e.Name == name })
		if i < 0 {
			return fmt.Errorf("unknown system %q: want some of %s", name, strings.Join(names(), ","))
		}
		c.entries = append(c.entries, entries[i])
	}
	if only == "" {
		c.entries = slices.DeleteFunc(slices.Clone(entries), func(e contest.Entry) bool { return c.Workers > 0 && !e.Workers })
	}
	if i := slices.IndexFunc(c.entries, func(e contest.Entry) bool { return !e.Workers }); i >= 0 && c.Workers > 0 {
		return fmt.Errorf("--workers is not for %s", c.entries[i].Name)
	}
	return nil
}

// words cuts a list at its commas.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func names() []string {
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = e.Name
	}
	return all
}

// do measures, or merges, and prints.
func (c call) do(ctx context.Context, out io.Writer) error {
	result, err := c.result(ctx)
	if err != nil {
		return err
	}
	if !c.json {
		_, err = fmt.Fprint(out, result)
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}

func (c call) result(ctx context.Context) (contest.Result, error) {
	if len(c.merge) == 0 {
		return contest.Play(ctx, c.entries, c.Options)
	}
	results := make([]contest.Result, len(c.merge))
	for i, name := range c.merge {
		text, err := os.ReadFile(name)
		if err != nil {
			return contest.Result{}, err
		}
		if err := json.Unmarshal(text, &results[i]); err != nil {
			return contest.Result{}, fmt.Errorf("%s is no result of this command: %w", name, err)
		}
	}
	return contest.Merge(results...)
}
