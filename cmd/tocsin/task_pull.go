package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/pull"
)

// apiClient calls the HTTP API of a node.
type apiClient struct{ url, token string }

// Variables that stand for flags of commands that call the API.
const (
	envAPI   = "TOCSIN_API"
	envToken = "TOCSIN_TOKEN"
)

func (c *apiClient) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.url, "url", "", "the HTTP API of a node, https://tocsin-1:8481 (default $"+envAPI+", then node.api.listen of the config, on this host)")
	cmd.Flags().StringVar(&c.token, "token", "", "token with the scope work (default $"+envToken+", which other users of the host can't see)")
}

// base returns the URL of the API.
func (c *apiClient) base(a *app) (string, error) {
	base := cmp.Or(c.url, os.Getenv(envAPI))
	if base == "" {
		file, err := a.load()
		if err != nil {
			return "", usage("no API: give --url, set $%s, or name node.api.listen in a config: %w", envAPI, err)
		}
		listen := file.Node.API.Listen
		if host, port, err := net.SplitHostPort(listen); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
			listen = net.JoinHostPort("localhost", port)
		}
		if base = file.Node.API.URL(listen); base == "" {
			return "", usage("no API: give --url or set $%s: the config has no node.api.listen", envAPI)
		}
	}
	if u, err := url.Parse(base); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", usage("the API's URL %q: want one such as https://tocsin-1:8481", base)
	}
	return strings.TrimSuffix(base, "/"), nil
}

// callWithin is how long a call may take, beside the time that it waits in the API.
const callWithin = 30 * time.Second

// post calls an operation.
func (c *apiClient) post(ctx context.Context, a *app, path string, wait time.Duration, body, answer any) error {
	base, err := c.base(a)
	if err != nil {
		return err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait+callWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if token := cmp.Or(c.token, os.Getenv(envToken)); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err != nil { // to its end: who goes before gives reserved tasks back
		return err
	}
	if resp.StatusCode == http.StatusOK {
		return json.Unmarshal(text, answer)
	}
	var p api.Problem
	_ = json.Unmarshal(text, &p) // the answer of a proxy has no detail
	return fmt.Errorf("the API answered %s: %s", resp.Status, cmp.Or(p.Detail, "and did not say why"))
}

// some wants arguments of one name, at least one and at most most.
func some(name string, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) > most {
			return usage("want %s, 1 to %d of them, got %d arguments: see `%s --help`", name, most, len(args), cmd.CommandPath())
		}
		return nil
	}
}

// Bounds of the API.
const (
	maxPullTypes = 64
	maxLeases    = 500
)

func newTaskReserve(a *app) *cobra.Command {
	var c apiClient
	var most int
	var wait time.Duration
	var worker string
	cmd := &cobra.Command{
		Use: "reserve TYPE...", Short: "Wait for due tasks of biz types with pull, and take them", Args: some("TYPE", maxPullTypes), ValidArgsFunction: completing(a.typeNames),
		Long: `Takes due tasks by the HTTP API, for scripts that work on them. Each task is the script's until its lease ends:
extend or settle the lease by then, or the task is delivered again, after a failed attempt. Without a task the
command ends after --wait, with exit code 0. With --json each task is a line.`,
		Example: `  tocsin task reserve order.close --max 10 --json | while read -r task; do
    lease=$(printf %s "$task" | jq -r .lease)
    if close-order "$(printf %s "$task" | jq -r .payload)"; then
      tocsin task settle "$lease" --do complete
    else
      tocsin task settle "$lease" --do retry --error "close-order ended with $?"
    fi
  done`,
		RunE: func(cmd *cobra.Command, types []string) error {
			waitMS := api.Int(wait.Milliseconds())
			var got api.Reserved
			err := c.post(cmd.Context(), a, "/v1/pull:reserve", wait, api.Reserve{BizTypes: types, Max: api.Int(most), WaitMS: &waitMS, Worker: worker}, &got)
			if err != nil {
				return err
			}
			return a.printReserved(got.Tasks)
		},
	}
	c.flags(cmd)
	cmd.Flags().IntVar(&most, "max", 1, "tasks at most, 1 to 100")
	within(cmd, "max", 1, pull.MaxTasks)
	cmd.Flags().DurationVar(&wait, "wait", pull.MaxWait, "how long to wait for the first task, at most 25s")
	within(cmd, "wait", 0, pull.MaxWait)
	cmd.Flags().StringVar(&worker, "worker", "", "who takes the tasks, for the history: at most 64 characters")
	return cmd
}

// printReserved writes a task a line, so that a script can read them one by one.
func (a *app) printReserved(tasks []api.ReservedTask) error {
	if !a.json {
		if len(tasks) == 0 {
			fmt.Fprintln(a.out, "no task has come")
			return nil
		}
		table(a.out, []string{"JOB_ID", "BIZ TYPE", "BIZ ID", "ATTEMPTS", "LEASE", "UNTIL", "PAYLOAD"}, tasks, func(t api.ReservedTask) []any {
			return []any{t.JobID, t.BizType, cmp.Or(name.KeyLine(t.BizKey), string(t.BizID)), t.Attempts, t.Lease, t.LeaseUntil.UTC().Format(timeText), shortened(oneCell(t.Payload))}
		})
		return nil
	}
	enc := json.NewEncoder(a.out)
	for _, t := range tasks {
		if err := enc.Encode(t); err != nil {
			return err
		}
	}
	return nil
}

func newTaskExtend(a *app) *cobra.Command {
	var c apiClient
	cmd := &cobra.Command{
		Use: "extend LEASE...", Short: "Keep tasks that were reserved for longer", Args: some("LEASE", maxLeases),
		Long: `Has leases last for the time of the policy, from now on. It may be repeated. The exit code is 1 if one is not
extended: it is lost, or cancel_wanted as its task was cancelled or rescheduled. Then stop the work.`,
		RunE: func(cmd *cobra.Command, leases []string) error {
			var got api.Extended
			if err := c.post(cmd.Context(), a, "/v1/pull:extend", 0, api.Extend{Leases: leases}, &got); err != nil {
				return err
			}
			return a.printLeases(got.Results, "extended", "ok")
		},
	}
	c.flags(cmd)
	return cmd
}

// settling are the flags of `task settle`.
type settling struct {
	do, error, output, worker string
	delay                     time.Duration
}

func newTaskSettle(a *app) *cobra.Command {
	var c apiClient
	var s settling
	cmd := &cobra.Command{
		Use: "settle LEASE...", Short: "Say how tasks that were reserved have ended", Args: some("LEASE", maxLeases),
		Long: `Ends leases: --do says how the tasks go on.

  complete  the task is done. It counts after the end of the lease too, unless the task was changed
  retry     a failed attempt: again by the policy, not before --delay; the last one makes the task dead
  snooze    again after --delay, and no attempt is counted
  bury      the task is dead
  release   again at once, and no attempt is counted

It may be repeated. The exit code is 1 if a lease is lost: its task is delivered again, or has ended, and
nothing was changed.`,
		Example: `  tocsin task settle "$lease" --do complete --output "refunded 12.00"
  tocsin task settle "$lease" --do snooze --delay 5m`,
		RunE: func(cmd *cobra.Command, leases []string) error {
			one, err := s.read(cmd)
			if err != nil {
				return err
			}
			body := api.Settle{Worker: s.worker}
			for _, one.Lease = range leases {
				body.Settle = append(body.Settle, one)
			}
			var got api.Settled
			if err := c.post(cmd.Context(), a, "/v1/pull:settle", 0, body, &got); err != nil {
				return err
			}
			return a.printLeases(got.Results, "settled", "done", "already")
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&s.do, "do", "", strings.Join(settleVerbs, ", "))
	cmd.Flags().StringVar(&s.error, "error", "", "of retry and bury: why; the task keeps 255 characters")
	cmd.Flags().DurationVar(&s.delay, "delay", 0, "of snooze, and of retry if it is longer than the policy's wait: until the next attempt")
	cmd.Flags().StringVar(&s.output, "output", "", "for the history, which keeps 1024 characters")
	cmd.Flags().StringVar(&s.worker, "worker", "", "who has done the tasks, for the history: at most 64 characters")
	return cmd
}

var settleVerbs = []string{"complete", "retry", "snooze", "bury", "release"}

// read refuses flags that the verb does not take.
func (s *settling) read(cmd *cobra.Command) (api.SettleOne, error) {
	one := api.SettleOne{Do: s.do, Error: s.error, Output: s.output}
	given := cmd.Flags().Changed
	switch {
	case !slices.Contains(settleVerbs, s.do):
		return one, usage("--do %q: want one of %s", s.do, strings.Join(settleVerbs, ", "))
	case given("error") && s.do != "retry" && s.do != "bury":
		return one, usage("--error is for --do retry and --do bury")
	case given("delay") && s.do != "retry" && s.do != "snooze":
		return one, usage("--delay is for --do retry and --do snooze")
	case !given("delay") && s.do == "snooze":
		return one, usage("--do snooze needs --delay, such as 5m")
	}
	if given("delay") {
		ms := api.Int((s.delay + time.Millisecond - 1).Milliseconds())
		one.DelayMS = &ms
	}
	return one, nil
}

// printLeases writes what became of leases. It fails if one became something else than what is right.
func (a *app) printLeases(results []api.LeaseResult, done string, right ...string) error {
	err := a.print(orEmpty(results), func(w io.Writer) {
		table(w, []string{"LEASE", "RESULT"}, results, func(r api.LeaseResult) []any {
			switch {
			case r.Problem != nil:
				return []any{r.Lease, "repeat it: " + oneCell(r.Problem.Detail)}
			case r.LeaseUntil != nil:
				return []any{r.Lease, r.Result + ", until " + r.LeaseUntil.UTC().Format(timeText)}
			}
			return []any{r.Lease, r.Result}
		})
	})
	counts := map[string]int{}
	for _, r := range results {
		if !slices.Contains(right, r.Result) {
			counts[cmp.Or(r.Result, "not known")]++
		}
	}
	if err != nil || len(counts) == 0 {
		return err
	}
	var parts []string
	for _, what := range []string{"lost", "cancel_wanted", "not known"} {
		if counts[what] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[what], what))
		}
	}
	return fmt.Errorf("not all of %d leases were %s: %s", len(results), done, strings.Join(parts, ", "))
}
