package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// hinted is a running `tocsin dev` with two nodes, and what it prints for a second terminal.
type hinted struct {
	t        *testing.T
	set      string   // export and alias lines
	commands []string // "tocsin task add ...", "curl ..."
}

func startHinted(t *testing.T) *hinted {
	t.Helper()
	cmd, out := command(context.WithoutCancel(t.Context()), t.TempDir(), "dev", "--tasks", "10", "--over", "0s", "--layout", "1x4", "--prometheus=false"), &output{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("exit after Ctrl-C: %v", err)
		}
	})
	h := &hinted{t: t}
	(&site{t: t}).waitWithin(upWithin, "it is up", func() bool { return strings.Contains(out.String(), "Ctrl-C stops everything") })
	_, hint, _ := strings.Cut(out.String(), "It is still up.")
	for line := range strings.Lines(hint) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "export "), strings.HasPrefix(line, "alias "):
			h.set += line + "\n"
		case strings.HasPrefix(line, "tocsin "), strings.HasPrefix(line, "curl "):
			h.commands = append(h.commands, line)
		}
	}
	return h
}

// run runs a line as the shell of a second terminal does.
func (h *hinted) run(line string) string {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), "sh", "-c", h.set+line)
	cmd.Dir = h.t.TempDir()
	cmd.Env = append(os.Environ(), asCommand+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Errorf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// addedID finds the job_id that `task add` prints.
var addedID = regexp.MustCompile(`job_id (\d+)`)

// All lines that `tocsin dev` prints for a second terminal reach its nodes, and so do those of README.
func TestDevsCommandsReachItsNodes(t *testing.T) {
	t.Parallel()
	h := startHinted(t)
	said, id := map[string]string{}, ""
	for _, line := range h.commands {
		out := h.run(strings.NewReplacer("JOB_ID", id, "tocsin top", "tocsin top --once --interval 5s").Replace(line))
		if m := addedID.FindStringSubmatch(out); m != nil && strings.HasPrefix(line, "tocsin task add ") {
			id = m[1]
		}
		words := strings.Fields(line)
		if words[0] == "curl" {
			said["curl"] = out
			continue
		}
		said[strings.Join(words[1:min(3, len(words))], " ")] = out
	}
	for command, parts := range map[string][]string{
		"task add":      {"job_id"},
		"curl":          {`"status":"pending"`},
		"schedule show": {"@every 5s", "active"},
		"task list":     {"order.close", "coupon.remind"},
		"task why":      {"task " + id, "coupon.remind", "not_due: "},
		"cluster nodes": {"2 nodes", "127.0.0.1:"},
		"top":           {"2 of 2 nodes answer"},
	} {
		for _, part := range append(parts, "\n") {
			if !strings.Contains(said[command], part) {
				t.Errorf("%s does not print %q, but\n%s", command, part, said[command])
			}
		}
		if strings.Contains(said[command], "not asked") {
			t.Errorf("%s reaches no node:\n%s", command, said[command])
		}
	}
	for _, line := range readmeCommands(t) {
		h.run(strings.NewReplacer("JOB_ID", id, "tocsin top", "tocsin top --once --interval 5s").Replace(line))
	}
}

// notForDev are commands of README that a demo has no use for.
var notForDev = map[string]string{
	"tocsin biz":    "its policies are stored already",
	"tocsin doctor": "it fails, since a demo's server does not flush its log at each commit",
	"tocsin outbox": "there is no business database",
	"tocsin serve":  "it does not end",
	"tocsin token":  "it needs a name and a scope",
}

// readmeCommands returns the commands of README's block for production that a demo can run. To drain a node takes its id.
func readmeCommands(t *testing.T) (all []string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(readme)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "  ")
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "tocsin" || strings.HasSuffix(line, " ID") || notForDev[words[0]+" "+words[1]] != "" {
			continue
		}
		all = append(all, line)
	}
	if len(all) < 8 {
		t.Fatalf("README has the commands %q, want at least 8", all)
	}
	return all
}
