package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/operator"
)

// A word too many is often a mistyped flag, so no command passes over it.
func TestEveryCommandHasHelpAndTheGlobalFlagsAndRefusesAStrayArgument(t *testing.T) {
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
		stray := []string{"one", "two", "three"}
		own := strings.Contains(c.Use, "(JOB_ID") // it refuses them in its own words: see badTasks
		names := strings.Contains(c.Use, "...")
		if err := c.ValidateArgs(stray); !own && !names && (c.Args == nil || codeOf(err) != exitUsage) {
			t.Errorf("%s takes the arguments %q: %v", c.CommandPath(), stray, err)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&app{}))
}

// Counts and durations of flags that would overflow, or that are out of their range, are refused before a command begins. A new type of flag is to be judged here.
func TestFlagsAtTheEdgesAreRefused(t *testing.T) {
	t.Parallel()
	edges := map[string][]string{
		"duration": {"-1ns", "-1s", "2562047h47m16.854775807s", "-2562047h47m16.854775808s", "87601h", "9223372036854775808h", "1e300s", "NaN", ".inf"},
		"int":      {"-1", "1000000001", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e9", "NaN"},
		"float64":  {"-1", "NaN", "Inf", "-Inf", "1e300", "1e999"},
		"uint64":   {"-1", "18446744073709551616", "1e9", "NaN"}, // ids: the largest is one
	}
	unbounded := []string{"string", "bool", "stringArray", "stringSlice", "jobID", "stringToString"}
	root, tried, ranges := newRoot(&app{}), 0, 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			values, known := edges[f.Value.Type()]
			if !known && !slices.Contains(unbounded, f.Value.Type()) {
				t.Errorf("%s --%s: nobody has judged flags of type %s", c.CommandPath(), f.Name, f.Value.Type())
			}
			for _, value := range values {
				tried++
				if c.Flags().Set(f.Name, value) == nil && codeOf(root.PersistentPreRunE(c, nil)) != exitUsage {
					t.Errorf("%s takes --%s %s", c.CommandPath(), f.Name, value)
				}
			}
			if bounds := f.Annotations[rangeKey]; len(bounds) == 2 {
				ranges++
				endsAtItsRange(t, c, f, bounds)
			}
			if known && len(f.Annotations[rangeKey]) == 0 { // it stays among the flags that were given: a value in range
				_ = f.Value.Set(f.DefValue)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if tried < 300 || ranges < 20 {
		t.Errorf("only %d values, and %d ranges", tried, ranges)
	}
	for args, says := range map[string]string{
		"task redrive --all --per-second 0": "--per-second 0: use 1 to 1000000000", "task reserve a --wait -1ms": "--wait -1ms: use 0s to 25s", "dev --mysql-port 65536": "--mysql-port 65536: use 0 to 65535",
		"schedule next --cron @daily -n -1": "--count -1: use 1 to 10000", "acts --limit -1": "--limit -1: use 1 to 100", "cluster drain a --wait --timeout 0s": "--timeout 0s: use 1ms to 87600h0m0s",
	} {
		call(t, strings.Fields(args)...).refused(t, exitUsage, says)
	}
	call(t, "task", "add", "--type", "a", "--biz-id", "1", "--in", "2562047h").refused(t, exitUsage, "--in 2562047h0m0s: use 0s to 87600h0m0s")
}

// endsAtItsRange expects a flag to take both ends of its range, and nothing beyond them.
func endsAtItsRange(t *testing.T, c *cobra.Command, f *pflag.Flag, bounds []string) {
	set := func(value string) error {
		return errors.Join(c.Flags().Set(f.Name, value), c.Root().PersistentPreRunE(c, nil))
	}
	for i, end := range bounds {
		beyond := strconv.Itoa(int(amount(end)) + 2*i - 1)
		if f.Value.Type() == "duration" {
			beyond = (time.Duration(amount(end)) + time.Duration(2*i-1)*time.Millisecond).String()
		}
		if err := set(beyond); codeOf(err) != exitUsage {
			t.Errorf("%s --%s %s: %v", c.CommandPath(), f.Name, beyond, err)
		}
		if err := set(end); err != nil {
			t.Errorf("%s refuses the end of its range: %v", c.CommandPath(), err)
		}
	}
	if at := amount(f.DefValue); at != 0 && (at < amount(bounds[0]) || at > amount(bounds[1])) {
		t.Errorf("%s --%s: its default %s is none of %s to %s", c.CommandPath(), f.Name, f.DefValue, bounds[0], bounds[1])
	}
}

func TestHelpGoesToStandardOutput(t *testing.T) {
	t.Parallel()
	call(t).says(t, "Usage:", "cluster", "doctor")
	call(t, "task").says(t, "Usage:", "reschedule")
	call(t, "task", "add", "--help").says(t, "--biz-id", "Examples:")
	call(t, "schedule", "delete", "--help").says(t, "--id SCHEDULE_ID ")
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

// documented finds the uses of this program in a text: in code spans, and on
// lines of their own in blocks.
var documented = regexp.MustCompile("(?m)(?:`|^)tocsin ([a-z][^`#\n]*)")

func TestTheDocsNameCommandsAndFlagsThatThereAre(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "docs/architecture.md", "docs/operations.md", "docs/performance.md", "docs/faults.md", "docs/sql.md", "docs/api.md", "docs/security.md", "docs/deployment.md", "docs/runbook.md", "docs/sizing.md", "docs/schedules.md",
		"configs/biz.yaml", "configs/schedules.yaml", "configs/dev.yaml", "configs/production.yaml"} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, use := range documented.FindAllStringSubmatch(string(text), -1) {
			if why := unknownIn(strings.Fields(use[1])); why != "" {
				t.Errorf("%s: `tocsin %s`: %s", page, strings.TrimSpace(use[1]), why)
			}
		}
	}
}

// unknownIn says which word of a use is neither a command nor a flag of it.
func unknownIn(words []string) string {
	c, rest, err := newRoot(&app{}).Find(words)
	if err != nil || !c.HasParent() {
		return "no such command"
	}
	if c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return "no command " + rest[0] + " of it"
	}
	for _, word := range rest {
		if name, is := strings.CutPrefix(word, "--"); is && !hasFlag(c, strings.SplitN(name, "=", 2)[0]) {
			return "no flag --" + name
		}
	}
	return ""
}

func hasFlag(c *cobra.Command, name string) bool {
	return c.Flags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil
}

func TestAnUnknownCommandOrFlagInTheDocsIsFound(t *testing.T) {
	t.Parallel()
	for use, known := range map[string]bool{
		"sweep --grace 0s": true, "task list --biz-id N --json": true, "dev": true,
		"sweeep": false, "sweep --race 0s": false, "task lists": false,
	} {
		if got := unknownIn(strings.Fields(use)); (got == "") != known {
			t.Errorf("%s: %q", use, got)
		}
	}
}

// refusal is a call and all that it says. {prefix} stands for that of the site's databases, {unknown} for the server's
// error for a database that is not there.
type refusal struct {
	args string // separated by blanks
	code int
	says string // the whole line, without "tocsin: " before it
}

const addFor = "task add --type order.close --biz-id 42 "

// badTasks are refused on a whole site.
var badTasks = map[string]refusal{
	"no action time":              {addFor, exitUsage, "no action time: use --in 30m or --at 2030-01-02T15:04:05Z"},
	"a time no one can read":      {addFor + "--at tomorrow", exitUsage, `--at "tomorrow": want RFC 3339, as 2030-01-02T15:04:05Z`},
	"a zone of a day":             {addFor + "--at 2030-01-02T15:04:05+24:00", exitUsage, `--at "2030-01-02T15:04:05+24:00": want RFC 3339, as 2030-01-02T15:04:05Z`},
	"a duration of a day":         {addFor + "--in 1d", exitUsage, "--in \"1d\": want a duration such as 90s, 10m or 24h (a day is 24h): see `tocsin task add --help`"},
	"a biz_id of letters":         {"task add --type order.close --in 1h --biz-id abc", exitUsage, "--biz-id \"abc\": want a whole number from 0 to 2^64-1: see `tocsin task add --help`"},
	"more than 10 years at":       {addFor + "--at 2137-01-01T00:00:00Z", exitUsage, "action time 2137-01-01T00:00:00Z: more than 10 years away"},
	"both times":                  {addFor + "--in 1h --at 2030-01-02T15:04:05Z", exitUsage, "use --in or --at, not both"},
	"no duration":                 {addFor + "--in soon", exitUsage, "--in \"soon\": want a duration such as 90s, 10m or 24h (a day is 24h): see `tocsin task add --help`"},
	"no biz_id":                   {"task add --type order.close --in 1h", exitUsage, "--type and one of --biz-id and --key are needed: see `tocsin task add --help`"},
	"an unknown biz type":         {"task add --type order.clsoe --biz-id 1 --in 1h", exitFailed, "unknown biz type \"order.clsoe\": apply it with 'tocsin biz apply'"},
	"far more characters":         {addFor + "--in 1h --payload @megabyte", exitUsage, "payload has over 32768 bytes: at most 8192 characters"},
	"a payload file missing":      {addFor + "--in 1h --payload @none", exitUsage, "--payload: open none: no such file or directory"},
	"a webhook-id":                {"task get 513.1", exitUsage, `job_id "513.1": want a decimal number from 1 to 2^63-1; if it is a webhook-id, its job_id is "513"`},
	"a job_id that is none":       {"task get abc", exitUsage, `job_id "abc": want a decimal number from 1 to 2^63-1`},
	"a job_id of no task":         {"task get 513", exitFailed, "no task 513 in {prefix}_0.task_0001 on db1"},
	"redrive of no task":          {"task redrive 513", exitFailed, "no task 513 in {prefix}_0.task_0001 on db1"},
	"cancel of no task":           {"task cancel 513", exitFailed, "no task 513 in {prefix}_0.task_0001 on db1"},
	"cancel of nothing":           {"task cancel", exitUsage, "name a JOB_ID, or --type and one of --biz-id and --key"},
	"cancel of both":              {"task cancel 513 --type order.close", exitUsage, "name a JOB_ID, or --type and --biz-id or --key, not both"},
	"reschedule without time":     {"task reschedule 513", exitUsage, "no action time: use --in 30m or --at 2030-01-02T15:04:05Z"},
	"a list of biz_id 0":          {"task list", exitUsage, "name the tasks: --biz-id N, not 0, --key KEY, or --status dead, with --type NAME or without"},
	"a status that is none":       {"task list --status died", exitUsage, "--status \"died\": want one of pending, claimed, done, cancelled, dead"},
	"a list without limit":        {"task list --status dead --limit 0", exitUsage, "--limit 0: use 1 to 10000"},
	"a list from no time":         {"task list --status dead --from yesterday", exitUsage, "--from \"yesterday\": want RFC 3339, as 2030-01-02T15:04:05Z, or how long ago, such as 2h"},
	"a list of swapped times":     {"task list --status dead --from 2030-01-02T15:00:00Z --to 2030-01-02T14:00:00Z", exitUsage, "from 2030-01-02T15:00:00Z is after to 2030-01-02T14:00:00Z: swap them"},
	"a list of an unknown type":   {"task list --status dead --type x", exitFailed, "unknown biz type \"x\": `tocsin biz list` names those that are applied"},
	"redrive of nothing":          {"task redrive", exitUsage, "name a JOB_ID, --type or --all"},
	"redrive of one and all":      {"task redrive 513 --all", exitUsage, "name a JOB_ID, --type or --all"},
	"redrive with a limit alone":  {"task redrive --limit 5", exitUsage, "name a JOB_ID, --type or --all"},
	"redrive of one, limited":     {"task redrive 513 --limit 5", exitUsage, "--limit is for --type and --all: leave it out for a JOB_ID"},
	"redrive of at most none":     {"task redrive --all --limit 0", exitUsage, "--limit 0: use 1 to 1000000000"},
	"redrive of no rate":          {"task redrive --all --per-second 0", exitUsage, "--per-second 0: use 1 to 1000000000"},
	"redrive of no error":         {"task redrive --all --error=", exitUsage, "--error is empty: name a part of the last error"},
	"redrive since a while":       {"task redrive --all --since yesterday", exitUsage, "--since \"yesterday\": want RFC 3339, as 2030-01-02T15:04:05Z, or how long ago, such as 2h"},
	"redrive of an unknown type":  {"task redrive --type x", exitFailed, "unknown biz type \"x\": `tocsin biz list` names those that are applied"},
	"burial of no task":           {"task bury 513", exitFailed, "no task 513 in {prefix}_0.task_0001 on db1"},
	"a reserve of nothing":        {"task reserve", exitUsage, "want TYPE, 1 to 64 of them, got 0 arguments: see `tocsin task reserve --help`"},
	"a reserve of too many":       {"task reserve order.close --max 101", exitUsage, "--max 101: use 1 to 100"},
	"a reserve for a minute":      {"task reserve order.close --wait 1m", exitUsage, "--wait 1m0s: use 0s to 25s"},
	"a reserve of no API":         {"task reserve order.close", exitUsage, "no API: give --url or set $TOCSIN_API: the config has no node.api.listen"},
	"a reserve of a bad URL":      {"task reserve order.close --url 127.0.0.1:8481", exitUsage, "the API's URL \"127.0.0.1:8481\": want one such as https://tocsin-1:8481"},
	"an extend of nothing":        {"task extend", exitUsage, "want LEASE, 1 to 500 of them, got 0 arguments: see `tocsin task extend --help`"},
	"a settle of nothing":         {"task settle --do complete", exitUsage, "want LEASE, 1 to 500 of them, got 0 arguments: see `tocsin task settle --help`"},
	"a settle without a verb":     {"task settle 1.0.x", exitUsage, "--do \"\": want one of complete, retry, snooze, bury, release"},
	"a settle of a wrong verb":    {"task settle 1.0.x --do done", exitUsage, "--do \"done\": want one of complete, retry, snooze, bury, release"},
	"a complete with an error":    {"task settle 1.0.x --do complete --error no", exitUsage, "--error is for --do retry and --do bury"},
	"a release with a delay":      {"task settle 1.0.x --do release --delay 5s", exitUsage, "--delay is for --do retry and --do snooze"},
	"a snooze for no time":        {"task settle 1.0.x --do snooze", exitUsage, "--do snooze needs --delay, such as 5m"},
	"a retry in the past":         {"task settle 1.0.x --do retry --delay -5s", exitUsage, "--delay -5s: use 0s to 87600h0m0s"},
	"pause of an unknown type":    {"biz pause x", exitFailed, "unknown biz type \"x\": `tocsin biz list` names those that are applied"},
	"a purge with a bad cron":     {"purge --cron daily", exitUsage, "cron expression \"daily\": there is no daily: write \"@daily\""},
	"a purge once and for ever":   {"purge --once --cron @daily", exitUsage, "--once and --cron exclude each other"},
	"an audit against nothing":    {"audit --type order.close", exitUsage, "--type and --against need each other: see `tocsin audit --help`"},
	"an audit with a stray word":  {"audit now", exitUsage, "unknown command or argument \"now\": see `tocsin audit --help`"},
	"an audit of no time":         {"audit --settled 0s", exitUsage, "--settled 0s: use 1ms to 87600h0m0s"},
	"an audit against no file":    {"audit --type order.close --against none", exitUsage, "--against: open none: no such file or directory"},
	"an audit against no numbers": {"audit --type order.close --against latin1", exitUsage, "latin1:1: \"caf\\xe9\" is no biz_id: want a decimal number in each line"},
	"an unknown command":          {"tsak", exitUsage, "unknown command or argument \"tsak\": see `tocsin --help`"},
	"an unknown command in group": {"task ad", exitUsage, "unknown command or argument \"ad\": see `tocsin task --help`"},
	"an unknown flag":             {"task list --bizid 1", exitUsage, "unknown flag: --bizid: see `tocsin task list --help`"},
	"a missing argument":          {"task get", exitUsage, "want JOB_ID, got 0 arguments: see `tocsin task get --help`"},
	"a bad cluster id":            {"ddl apply --cluster a/b", exitFailed, "cluster id \"a/b\": use letters, digits, '.', '_' and '-', a letter or digit first, at most 64"},
}

func TestBadInputIsOneClearLineAndNothingIsStored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("megabyte", strings.Repeat("x", 1<<20))
	s.write("latin1", "caf\xe9")
	for name, bad := range badTasks {
		t.Run(name, func(t *testing.T) {
			s.refuses(t, bad)
			if n := s.rows(); n != 0 {
				t.Errorf("%d tasks are stored", n)
			}
		})
	}
}

// refuses wants exactly the line.
func (s *site) refuses(t *testing.T, bad refusal) {
	t.Helper()
	unknown := "Error 1146 (42S02): Table 'x{prefix}_0.layout' doesn't exist"
	if devtest.IsMySQL(t) {
		unknown = "Error 1049 (42000): Unknown database 'x{prefix}_0'"
	}
	r := callIn(t, s.dir, "", strings.Fields(bad.args)...)
	says := strings.ReplaceAll(bad.says, "{unknown}", unknown)
	want := "tocsin: " + strings.ReplaceAll(says, "{prefix}", s.prefix) + "\n"
	if r.code != bad.code || r.stderr != want || r.stdout != "" {
		t.Errorf("tocsin %s: exit code %d, want %d\ngot  %swant %s%s", bad.args, r.code, bad.code, r.stderr, want, r.stdout)
	}
}

var dsnLine = regexp.MustCompile(`dsn: .*`)

// badConfigs are refused by whatever reads the config.
var badConfigs = map[string]struct {
	spoil func(yaml string) string
	refusal
}{
	"an unknown key": {
		func(y string) string { return strings.Replace(y, "  tables:", "  tabels:", 1) },
		refusal{"task list --biz-id 1", exitFailed, `tocsin.yaml:4: unknown key "tabels": use databases, tables, prefix, ownership`},
	},
	"another layout": {
		func(y string) string { return strings.Replace(y, "tables: 4", "tables: 8", 1) },
		refusal{addFor + "--in 1h", exitFailed, "layout of the config is 2x8, that of {prefix}_0 on db1 is 2x4"},
	},
	"biz types for another cluster": {
		func(y string) string { return strings.Replace(y, "cluster: ", "cluster: x", 1) },
		refusal{"biz apply biz.yaml", exitFailed, `cluster of the config is "x{prefix}", that of {prefix}_0 on db1 is "{prefix}"`},
	},
	"another layout when applied": {
		func(y string) string { return strings.Replace(y, "databases: 2", "databases: 1", 1) },
		refusal{"ddl apply", exitFailed, "layout of the config is 1x4, that of {prefix}_0 on server db1 is 2x4: the layout is fixed for the life of a cluster"},
	},
	"another cluster": {
		func(y string) string { return strings.Replace(y, "cluster: ", "cluster: x", 1) },
		refusal{addFor + "--in 1h", exitFailed, `cluster of the config is "x{prefix}", that of {prefix}_0 on db1 is "{prefix}"`},
	},
	"no tables yet": {
		func(y string) string { return strings.Replace(y, "prefix: ", "prefix: x", 1) },
		refusal{addFor + "--in 1h", exitFailed, "server db1 has no Tocsin tables ({unknown}): run `tocsin ddl apply`"},
	},
	"a DSN that is none": {
		func(y string) string { return dsnLine.ReplaceAllString(y, "dsn: hunter2") },
		refusal{"task list --biz-id 1", exitFailed, "tocsin.yaml:8: server db1: the dsn is not of the form user:password@tcp(host:port)/"},
	},
	"no etcd for the nodes": {
		func(y string) string { return y[:strings.Index(y, "etcd:")] },
		refusal{"cluster nodes", exitFailed, "the config names no etcd.endpoints, where the nodes are registered"},
	},
	"no cluster for the nodes": {
		func(y string) string { return y[strings.Index(y, "layout:"):] },
		refusal{"cluster tables", exitFailed, "the config names no cluster, under which the nodes are registered in etcd"},
	},
}

func TestABadConfigIsOneClearLineAndNothingIsStored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	good := s.yaml(s.layout, s.dsn())
	for name, bad := range badConfigs {
		t.Run(name, func(t *testing.T) {
			s.write("tocsin.yaml", bad.spoil(good))
			s.refuses(t, bad.refusal)
			if n := s.rows(); n != 0 {
				t.Errorf("%d tasks are stored", n)
			}
		})
	}
}

func TestWithoutAConfigTheMessageSaysWhereItIsLookedFor(t *testing.T) {
	t.Parallel()
	call(t, "task", "list", "--biz-id", "1").refused(t, exitFailed, "no config: give --config, set $TOCSIN_CONFIG or write ./tocsin.yaml")
	call(t, "ddl", "verify", "--config", "none.yaml").refused(t, exitFailed, "none.yaml: no such file")
}

func TestAnUnreachableServerIsNamedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, "toc:hunter2@tcp(127.0.0.1:1)/"))
	s.write("biz.yaml", bizYAML)
	for _, args := range []string{
		addFor + "--in 1h", "task get 513", "task list --biz-id 1", "task cancel 513", "task redrive 513",
		"ddl apply", "ddl verify", "biz apply biz.yaml", "biz list", "biz show order.close", "doctor", "cluster tables",
		"purge", "purge --dry-run", "audit", "task list --status dead", "task redrive --all", "task bury 513", "biz pause order.close",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			r := s.run(strings.Fields(args)...)
			said := r.stdout + r.stderr
			if r.code != exitFailed || !strings.Contains(said, "db1") || !strings.Contains(said, "refused") {
				t.Errorf("exit code %d: %s", r.code, said)
			}
			if strings.Contains(said, "hunter2") || strings.Count(r.stderr, "\n") > 1 {
				t.Errorf("says too much: %s", said)
			}
		})
	}
}

func TestAwayIsAsPreciseAsPeopleWant(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"in 0s":        0,
		"in 12ms":      12345 * time.Microsecond,
		"in 5.1s":      5123 * time.Millisecond,
		"in 30m0s":     30*time.Minute + 4*time.Millisecond,
		"in 47h59m0s":  47*time.Hour + 59*time.Minute,
		"in 3 days":    73 * time.Hour,
		"7ms ago":      -7 * time.Millisecond,
		"1h0m1s ago":   -time.Hour - time.Second,
		"400 days ago": -400 * 24 * time.Hour,
	} {
		if got := away(d); got != want {
			t.Errorf("away(%s): %q, want %q", d, got, want)
		}
	}
}

func TestATaskIsOneLineInItsOwnWords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	task := tocsin.Info{JobID: 123, BizType: "order.close", BizID: 42, ActionTime: now.Add(5 * time.Second)}
	for want, change := range map[string]func(*tocsin.Info){
		"pending  due 2026-05-04 03:02:06.000Z (in 5s)  attempts 0": func(*tocsin.Info) {},
		"claimed  claimed until 2026-05-04 03:02:06.000Z  attempts 0": func(i *tocsin.Info) {
			i.Status = tocsin.Claimed
		},
		"dead  dead 2026-05-04 03:02:06.000Z  attempts 3  crashes 1  last error: a b [2Jc": func(i *tocsin.Info) {
			i.Status, i.Attempts, i.Crashes, i.LastError = tocsin.Dead, 3, 1, "a\nb\x1b[2Jc"
		},
	} {
		info := task
		change(&info)
		var out bytes.Buffer
		writeTasks(&out, []tocsin.Info{info}, now)
		if got := strings.TrimSuffix(out.String(), "\n"); got != "job_id 123  order.close  biz_id 42  "+want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestManyRangesAreCutForPeople(t *testing.T) {
	t.Parallel()
	if got := ranges([]string{"0-3", "5"}); got != "0-3 5" {
		t.Errorf("got %q", got)
	}
	if got := ranges(strings.Fields("0 2 4 6 8 10 12 14")); got != "0 2 4 6 8 10 and 2 ranges more" {
		t.Errorf("got %q", got)
	}
}

func TestManyErrorsAreOneLineThatEnds(t *testing.T) {
	t.Parallel()
	var errs []error
	for i := range 1000 {
		errs = append(errs, fmt.Errorf("table %d", i))
	}
	for n, want := range map[int]string{
		1:    "table 0",
		5:    "table 0; table 1; table 2; table 3; table 4",
		1000: "table 0; table 1; table 2; table 3; and 996 more",
	} {
		if got := operator.OneLine(errors.Join(errs[:n]...)); got != want {
			t.Errorf("%d errors: %q, want %q", n, got, want)
		}
	}
}

func TestProgressWithoutATerminalIsALineNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &progress{to: &out, verb: "create", unit: "tables", line: time.Now()}
		for i := range 10 {
			p.report(i, 10)
			time.Sleep(time.Second)
		}
		p.end()
		if want := "create tables: 3 of 10\ncreate tables: 6 of 10\ncreate tables: 9 of 10\n"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
		out.Reset()
		silent := &progress{to: &out}
		silent.report(5, 10)
		if silent.end(); out.Len() > 0 {
			t.Errorf("with --json: %q", out.String())
		}
	})
}

// TestForeignTextCantSteerTheTerminal, and JSON has the same meaning.
func TestForeignTextCantSteerTheTerminal(t *testing.T) {
	t.Parallel()
	print := func(text string) string {
		t.Helper()
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		n, err := (printed{file: file}).Write([]byte(text))
		got, read := os.ReadFile(file.Name())
		if err := errors.Join(err, read, file.Close()); err != nil || n != len(text) {
			t.Fatalf("%d, %v", n, err)
		}
		return string(got)
	}
	for text, want := range map[string]string{
		"a line\n\tand\tcells é 漢字 👍\n":              "a line\n\tand\tcells é 漢字 👍\n",
		"\x1b]0;title\x07\x1b[2Jgone\r":              `\u001b]0;title\u0007\u001b[2Jgone\u000d`,
		"user\u202e\u2066gpj.exe\u2069 \u200f\u061c": `user\u202e\u2066gpj.exe\u2069 \u200f\u061c`,
		"\u009b2J \x9b \x7f \xff":                    `\u009b2J \x9b \u007f \xff`,
	} {
		if got := print(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	const payload = "\x1b[2J\u202e\u009b\x7f é"
	text, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(print(string(text))), &got); err != nil || got != payload {
		t.Errorf("%q, %v", got, err)
	}
}
