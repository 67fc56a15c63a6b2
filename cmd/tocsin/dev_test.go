package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver"
)

func TestDevDeliversItsSamplesAndExits(t *testing.T) {
	t.Parallel()
	for layout, etcd := range map[string]bool{"8x16": true, "4x2": false} {
		t.Run(fmt.Sprint("with etcd: ", etcd), func(t *testing.T) {
			t.Parallel()
			s := decodeText[devcluster.Summary](t, call(t, "dev", fmt.Sprint("--etcd=", etcd), "--layout", layout, "--tasks", "200", "--over", "1s", "--exit", "--json").ended(t))
			half := map[bool]int{true: 64, false: 4}[etcd]
			if s.Delivered != 200 || s.Seen != 200 || !etcd && s.Again != 0 || s.Early != 0 || s.Dead != 0 || s.Unsettled != 0 {
				t.Errorf("%+v", s)
			}
			if len(s.Nodes) != 2 || s.Nodes[0].Tables != half || s.Nodes[1].Tables != half || s.Nodes[0].Delivered+s.Nodes[1].Delivered < 200 {
				t.Errorf("nodes: %+v", s.Nodes)
			}
		})
	}
}

// startDev starts tocsin dev in a folder, and waits until its output has a text. stop sends it a Ctrl-C and waits.
func startDev(t *testing.T, dir, text string, env []string, args ...string) (out *output, stop func()) {
	t.Helper()
	cmd, out := command(context.WithoutCancel(t.Context()), dir, append([]string{"dev", "--tasks", "10", "--over", "0s"}, args...)...), &output{}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	prints(t, out, text)
	return out, func() {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("exit after Ctrl-C: %v", err)
		}
	}
}

// prints waits until an output has a text, and returns the rest of that line.
func prints(t *testing.T, out *output, text string) string {
	t.Helper()
	(&site{t: t}).waitWithin(upWithin, "it prints "+text, func() bool { return strings.Contains(out.String(), text) })
	_, rest, _ := strings.Cut(out.String(), text)
	rest, _, _ = strings.Cut(rest, "\n")
	return rest
}

func TestDevWithTheBizTypesOfAProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "tocsin.yaml")
	if err := os.WriteFile(filepath.Join(dir, "biz.yaml"), []byte("biz_types:\n  - {name: parcel.lost, number: 1, group: parcels}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--biz", "biz.yaml", "--config-out", "tocsin.yaml", "--layout", "1x1", "--etcd=false"}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cluster: mine\n")
	callIn(t, dir, "", append([]string{"dev"}, flags...)...).refused(t, exitUsage, "--config-out tocsin.yaml: a file of that name is there")
	if text, err := os.ReadFile(path); string(text) != "cluster: mine\n" {
		t.Errorf("%q, %v", text, err)
	}
	write("# Of a private cluster that was killed\n")
	_, stop := startDev(t, dir, "Until your program, or `tocsin serve` for webhooks, runs a node, tasks wait.", nil, flags...)
	call(t, "dev", "--biz", "none.yaml").refused(t, exitFailed, "none.yaml: no such file")
	call(t, "--config", path, "doctor").says(t, " 0 failed")
	call(t, "--config", path, "biz", "list").says(t, "parcel.lost  1       parcels  Go handler")
	call(t, "--config", path, "task", "add", "--type", "parcel.lost", "--biz-id", "7", "--in", "0s").says(t, "pending")
	stop()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is left behind", path)
	}
}

func TestDevRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"a layout that is none":   {[]string{"--layout", "8by16"}, exitUsage, []string{`layout "8by16"`, "8x16"}},
		"a layout too large":      {[]string{"--layout", "9x1024"}, exitUsage, []string{"9216 tables, more than 8192"}},
		"tasks below zero":        {[]string{"--tasks=-1"}, exitUsage, []string{"--tasks -1"}},
		"a server that is none":   {[]string{"--server", "oracle"}, exitUsage, []string{`--server: unknown server "oracle"`, "want mariadb, mariadb-11.8 or mysql"}},
		"a load that has no end":  {[]string{"--load", "5"}, exitUsage, []string{"--load goes on until Ctrl-C"}},
		"biz types with an end":   {[]string{"--biz", "x.yaml"}, exitUsage, []string{"--biz stays up for your program"}},
		"a load too high":         {[]string{"--load", "1001"}, exitUsage, []string{"--load 1001", "0 to 1000"}},
		"more servers than dbs":   {[]string{"--servers", "9"}, exitUsage, []string{"--servers 9", "1 to 8"}},
		"MySQL's port in use":     {[]string{"--mysql-port", port}, exitFailed, []string{port, "in use"}},
		"etcd's port in use":      {[]string{"--etcd-port", port}, exitFailed, []string{port, "in use"}},
		"the receiver's port too": {[]string{"--http-port", port}, exitFailed, []string{port, "in use", "--http-port"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call(t, append([]string{"dev", "--tasks", "1", "--exit"}, c.args...)...).refused(t, c.code, c.says...)
		})
	}
}

func TestDevWithoutAProgramSaysHowToInstallIt(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, c := range []struct {
		server string
		env    []string
		says   []string
	}{
		{"mariadb", []string{devserver.ProductMariaDB.EnvDir() + "=" + empty}, []string{"mariadbd not found", "apt-get install mariadb-server-core"}},
		{"mysql", []string{devserver.Product("mysql").EnvDir() + "=" + empty}, []string{"no MySQL found", "scripts/install-server.sh mysql"}},
		{"mariadb-11.8", []string{devserver.Product("mariadb-11.8").EnvDir() + "=" + empty}, []string{"no MariaDB 11.8 found", "scripts/install-server.sh mariadb-11.8"}},
		// MariaDB is found in the folders of system programs, as Debian has it.
		{"mariadb", []string{devserver.EnvEtcd + "=", "PATH=" + empty}, []string{"etcd not found", "apt-get install etcd-server", devserver.EnvEtcd}},
		{"mariadb", []string{devserver.EnvEtcd + "=none/etcd", "PATH=" + empty}, []string{devserver.EnvEtcd, "none/etcd is not a program"}},
	} {
		callWith(t, empty, "", c.env, "dev", "--exit", "--server", c.server).refused(t, exitFailed, c.says...)
	}
}

// hinted is a running `tocsin dev` with two nodes, and what it prints for a second terminal.
type hinted struct {
	t        *testing.T
	set      string   // export and alias lines
	commands []string // "tocsin task add ...", "curl ..."
}

// startHinted starts it where no Prometheus is installed.
func startHinted(t *testing.T) (*hinted, *output) {
	t.Helper()
	etcd := os.Getenv(devserver.EnvEtcd)
	if etcd == "" {
		var err error
		if etcd, err = exec.LookPath("etcd"); err != nil {
			t.Fatal(err)
		}
	}
	empty := []string{"PATH=" + t.TempDir(), devserver.EnvEtcd + "=" + etcd}
	out, stop := startDev(t, t.TempDir(), "Ctrl-C stops everything", empty, "--layout", "1x4", "--kafka")
	if said := prints(t, out, "The metrics are "); !strings.Contains(said, "not collected") || !strings.Contains(said, "apt-get install prometheus") {
		t.Errorf("it says %q", said)
	}
	h := &hinted{t: t}
	_, hint, _ := strings.Cut(out.String(), "It is still up.")
	for line := range strings.Lines(hint) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "export "), strings.HasPrefix(line, "alias "):
			h.set += line + "\n"
		case strings.HasPrefix(line, "tocsin "), strings.HasPrefix(line, "curl "), strings.HasPrefix(line, "kcat "):
			h.commands = append(h.commands, line)
		}
	}
	config := prints(t, out, "export TOCSIN_CONFIG=")
	t.Cleanup(func() {
		stop()
		if _, err := os.Stat(config); !os.IsNotExist(err) {
			t.Errorf("%s is left behind", config)
		}
	})
	return h, out
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

// pagesOf finds the addresses that `cluster nodes` prints.
var pagesOf = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// All lines that `tocsin dev` prints for a second terminal reach its nodes, and so do those of README.
func TestDevsCommandsReachItsNodes(t *testing.T) {
	t.Parallel()
	h, out := startHinted(t)
	prints(t, out, "delivered coupon.remind biz_id 700001") // by the schedule
	if status, text := (&site{t: t}).request(http.DefaultClient, "", "GET", prints(t, out, "Look at it in a browser: "), ""); status != http.StatusOK || !strings.Contains(text, ">coupon.remind</a>") {
		t.Errorf("the console answers %d %s", status, text)
	}
	said, id := map[string]string{}, ""
	for _, line := range h.commands {
		printed := h.run(strings.NewReplacer("JOB_ID", id, "tocsin top", "tocsin top --once --interval 5s", "kcat ", "kcat -q -c 1 ").Replace(line))
		if m := addedID.FindStringSubmatch(printed); m != nil && strings.HasPrefix(line, "tocsin task add ") && strings.Contains(line, devcluster.CouponRemind.Name()) {
			id = m[1]
		}
		words := strings.Fields(line)
		if words[0] != "tocsin" {
			said[words[0]] += printed
			continue
		}
		said[strings.Join(words[1:min(3, len(words))], " ")] = printed
	}
	said["trial"] = h.run("tocsin task dead --type refund.send") + h.run("tocsin task list --biz-id 42") // what docs/console.md looks for
	said["biz show"] = h.run("tocsin biz show label.print | tee biz.yaml; tocsin biz apply --dry-run biz.yaml")
	for command, parts := range map[string][]string{
		"trial":         {"Service Unavailable", "there is no such account", "order.close"},
		"task add":      {"job_id"},
		"curl":          {`"status":"pending"`, `{"tasks":[`}, // of a worker: one, unless the sample's was first
		"biz show":      {"name: label.print", "pull:", "lease: 30s", "# node-1", "workers that wait: ", "# node-2", "lacking, no worker has asked", "nothing was written"},
		"kcat":          {`700044 {"order_id":700044,"cents":990}`, "ce_type=order.notify"},
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
	prints(t, out, "delivered order.close biz_id 700042")
	stored := map[string]float64{}
	for _, page := range pagesOf.FindAllString(said["cluster nodes"], -1) {
		for _, of := range []string{`records_total{result="stored",sink="kafka"}`, `ack_seconds_count{sink="kafka"}`} {
			stored[of] += (&site{t: t}).metric(page, "tocsin_sink_"+of)
		}
	}
	if stored[`records_total{result="stored",sink="kafka"}`] != 1 || stored[`ack_seconds_count{sink="kafka"}`] != 1 {
		t.Errorf("one record is in the topic, and the nodes tell of %v", stored)
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

// asked reports whether Prometheus answers a query with a value that is not 0.
func asked(ctx context.Context, t *testing.T, prometheus, query string) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, prometheus+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return len(answer.Data.Result) > 0 && answer.Data.Result[0].Value[1] != "0"
}

func TestDevStartsNoPrometheusWhenItIsToldNotTo(t *testing.T) {
	t.Parallel()
	var f devFlags // as --prometheus=false leaves it
	c := &devcluster.Cluster{}
	if url, err := f.watch(t.Context(), c); url != "" || err != nil {
		t.Errorf("%q, %v", url, err)
	}
	if said := f.closing(c); strings.Contains(said, "metrics") {
		t.Errorf("it says %q", said)
	}
}

// What make observe runs: Prometheus sees the nodes, types that fail and hang, a sweep, and the rules, until Ctrl-C.
func TestDevUnderLoadIsWatchedByPrometheus(t *testing.T) {
	t.Parallel()
	const says = "Prometheus collects the metrics: "
	rules, err := filepath.Abs("../../deploy/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	out, stop := startDev(t, t.TempDir(), says, nil, "--layout", "2x2", "--load", "50", "--servers", "2", "--nodes", "3", "--rules", rules)
	prometheus, path := prints(t, out, says), prints(t, out, "export TOCSIN_CONFIG=")
	for _, c := range decodeText[examined](t, call(t, "--config", path, "doctor", "--json").stdout).Checks {
		if (c.Level == "fail" || c.Check == "secrets" && c.Level != "ok") && !strings.Contains(c.Is, "invoice.print has no handler") { // a demo has one such biz type
			t.Errorf("doctor, with the config that was written: %+v", c)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), upWithin)
	defer cancel()
	for _, query := range []string{
		`count(tocsin_build_info{job="tocsin", cluster="dev"}) == bool 3`,
		`min(tocsin_node_server_up)`,
		`sum(tocsin_dispatcher_failures_total{biz_type="refund.send", cause="error"})`,
		`sum(tocsin_dispatcher_failures_total{biz_type="stock.sync", cause="timeout"})`,
		`sum(tocsin_sweeper_sweeps_total{job="node"})`,
		`sum(tocsin_client_tasks_total{job="services", result="new"})`,
		`count({__name__=~".+:tocsin_.+"})`, // what rules record
	} {
		for !asked(ctx, t, prometheus, query) {
			time.Sleep(200 * time.Millisecond)
		}
	}
	stop()
	if response, err := http.Get(prometheus); err == nil {
		_ = response.Body.Close()
		t.Errorf("Prometheus still answers after the end: %s", response.Status)
	}
}
