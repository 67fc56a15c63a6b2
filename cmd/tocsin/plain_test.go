package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// colourful asks for colours in every way that programs know of. command sets it for all tests.
var colourful = []string{"TERM=xterm-256color", "COLORTERM=truecolor", "CLICOLOR=1", "CLICOLOR_FORCE=1", "FORCE_COLOR=1", "NO_COLOR="}

// steersTerminal finds what only a terminal understands: an escape, a carriage return, a backspace, a bell.
func steersTerminal(text string) string {
	at := strings.IndexAny(text, "\x1b\u009b\r\b\a")
	if at < 0 {
		return ""
	}
	return text[max(at-40, 0):min(at+40, len(text))]
}

// everyCommand calls each command once. Only bench is called in vain: its own tests call it on servers, and every call of a test is checked.
var everyCommand = map[string]string{
	"acts": "acts", "audit": "audit", "doctor": "doctor", "purge": "purge", "runs": "runs", "sweep": "sweep", "version": "version", "relay": "relay", "serve": "serve --name -",
	"dev":         "dev --exit --tasks 5 --over 0s --nodes 1 --layout 1x1 --etcd=false",
	"bench drain": "bench drain --server none", "bench idle": "bench idle --server none", "bench insert": "bench insert --server none", "bench lateness": "bench lateness --server none",
	"biz apply": "biz apply biz.yaml", "biz delete": "biz delete none", "biz list": "biz list", "biz pause": "biz pause order.close",
	"biz resume": "biz resume order.close", "biz show": "biz show order.close", "biz stats": "biz stats",
	"cluster adopt": "cluster adopt", "cluster drain": "cluster drain none", "cluster nodes": "cluster nodes", "cluster plan": "cluster plan", "cluster tables": "cluster tables --grid",
	"completion bash": "completion bash", "completion fish": "completion fish", "completion powershell": "completion powershell", "completion zsh": "completion zsh",
	"ddl apply": "ddl apply", "ddl finish": "ddl finish", "ddl grace": "ddl grace 1m", "ddl grants": "ddl grants --role node", "ddl plan": "ddl plan", "ddl verify": "ddl verify",
	"ddl ownership": "ddl ownership etcd", "ddl restore-check": "ddl restore-check",
	"ddl move activate": "ddl move activate", "ddl move check": "ddl move check", "ddl move compare": "ddl move compare", "ddl move retire": "ddl move retire", "ddl move undo": "ddl move undo",
	"outbox apply": "outbox apply", "outbox drop": "outbox drop --all", "outbox forget": "outbox forget", "outbox list": "outbox list",
	"outbox plan": "outbox plan --table none", "outbox retry": "outbox retry --all", "outbox verify": "outbox verify",
	"schedule activate": "schedule activate nightly", "schedule apply": "schedule apply schedules.yaml", "schedule backfill": "schedule backfill nightly --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z",
	"schedule deactivate": "schedule deactivate nightly", "schedule delete": "schedule delete none", "schedule list": "schedule list", "schedule next": "schedule next nightly",
	"schedule run-now": "schedule run-now nightly", "schedule runs": "schedule runs nightly", "schedule show": "schedule show nightly", "sink test": "sink test none",
	"task add":  "task add --type order.close --biz-id 7 --in 1h --payload \x1b[31mred\r\b\a\u009b",
	"task bury": "task bury 513", "task cancel": "task cancel --type order.close --biz-id 8", "task dead": "task dead", "task extend": "task extend 1.0.x", "task get": "task get JOB",
	"task list": "task list --biz-id 7", "task redrive": "task redrive --all", "task reschedule": "task reschedule --type order.close --biz-id 7 --in 2h",
	"task reserve": "task reserve order.close", "task runs": "task runs JOB", "task settle": "task settle 1.0.x --do complete", "task why": "task why JOB",
	"token new": "token new --name desk --scope tasks --types *", "top": "top --once",
}

// Whatever the environment asks for, a file or a pipe gets text alone: no colours, no bars, no moves of the cursor. A file that takes
// nothing is an error.
func TestNoCommandWritesForATerminalIntoAFile(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+"log:\n  format: text\n  level: debug\n")
	s.write("schedules.yaml", "schedules:\n  - {name: nightly, biz_type: order.close, cron: \"0 4 * * *\"}\n")
	s.run("schedule", "apply", "schedules.yaml").ok(t)
	id := s.add(7, "--payload", "\x1b[31mred\r\b\a\u009b")
	s.set(id, "last_error = '\x1b[1mbold'")
	var all []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if !c.HasSubCommands() {
			all = append(all, strings.TrimPrefix(c.CommandPath(), "tocsin "))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root := newRoot(&app{})
	root.InitDefaultCompletionCmd()
	walk(root)
	if listed := slices.Sorted(maps.Keys(everyCommand)); !slices.Equal(slices.Sorted(slices.Values(all)), listed) {
		t.Errorf("the commands are %q, and the test calls %q", all, listed)
	}
	said, unwritten := false, 0
	for name, line := range everyCommand {
		for _, more := range []string{"", " --json"} {
			var args []string
			for _, word := range strings.Split(line+more, " ") {
				args = append(args, strings.ReplaceAll(word, "JOB", id.String()))
			}
			r := s.run(args...) // which fails the test if it meets an escape
			said = said || strings.Contains(r.stdout, `\u001b[1mbold`)
			if r.code == exitOK && r.stdout != "" && more == "" && name != "dev" { // which starts a cluster
				s.failsUnwritten(args)
				unwritten++
			}
		}
	}
	if !said {
		t.Error("no command has shown the last error of the task")
	}
	if unwritten < 30 {
		t.Errorf("only %d commands have printed something", unwritten)
	}
}

// failsUnwritten wants a command that succeeds and prints to fail if its output cannot be written.
func (s *site) failsUnwritten(args []string) {
	s.t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		return // only Linux has one
	}
	defer func() { _ = full.Close() }()
	var stderr strings.Builder
	cmd := command(s.t.Context(), s.dir, args...)
	cmd.Stdout, cmd.Stderr = full, &stderr
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(stderr.String(), "no space left on device") {
		s.t.Errorf("tocsin %s > /dev/full: exit code %d, stderr %q", strings.Join(args, " "), cmd.ProcessState.ExitCode(), stderr.String())
	}
}

// TestALogIntoAFileIsPlain is about a command that stays.
func TestALogIntoAFileIsPlain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+"log:\n  format: text\n  level: debug\n")
	n := s.serve("one", "--group", "orders")
	n.end(t)
	if text := n.log.String(); !strings.Contains(text, "INF ") || steersTerminal(text) != "" {
		t.Errorf("the log: %q", text)
	}
}
