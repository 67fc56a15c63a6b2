package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// apiAddress finds the address of the API in the log.
var apiAddress = regexp.MustCompile(`"address":"([^"]+)"[^\n]*"the API listens"|the API listens[^\n]*address=(\S+)`)

// apiOf waits until a process serves its API, and returns its URL.
func (s *site) apiOf(n *serving) string {
	s.t.Helper()
	var found []string
	s.waitFor("the API listens", func() bool {
		found = apiAddress.FindStringSubmatch(n.log.String())
		return found != nil
	})
	return found[1] + found[2]
}

// request sends a request with a token, and returns the status and the answer.
func (s *site) request(client *http.Client, token, method, url, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// newToken makes a token, and adds what the config keeps of it to a file.
func (s *site) newToken(file string, args ...string) string {
	s.t.Helper()
	out := s.run(append([]string{"token", "new"}, args...)...).ok(s.t)
	token := regexp.MustCompile(`toc_[a-z2-7]{8}_[a-z2-7]{52}`).FindString(out)
	if token == "" || strings.Count(out, token) != 1 {
		s.t.Fatalf("no token in\n%s", out)
	}
	s.write(file, strings.ReplaceAll(out, token, "(gone)"))
	return token
}

func TestTheAPIIsServedWithTokensThatMayChange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	authority := devtest.NewAuthority(t)
	cert, key := authority.Issue(t, "api")
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+fmt.Sprintf("node:\n  api:\n    tokens_file: %s/tokens.yaml\n    tls: {cert: %s, key: %s}\nconsole: {base: /ops/}\n", s.dir, cert, key))
	first := s.newToken("tokens.yaml", "--name", "shop", "--scope", "write", "--types", "order.*")
	n := s.serve("api", "--api", "127.0.0.1:0", "--group", "orders")
	client, url := trusting(t, authority), "https://"+s.apiOf(n)+"/v1/tasks"
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	body := `{"biz_type": "order.close", "biz_id": "42", "delay_ms": 3600000}`
	if status, text := s.request(client, first, "POST", url, body); status != http.StatusCreated {
		t.Fatalf("%d %s", status, text)
	}
	second := s.newToken("tokens.yaml", "--name", "shop", "--scope", "write", "--types", "order.*", "--expires", "1h")
	for token, want := range map[string]int{first: http.StatusUnauthorized, second: http.StatusCreated, "": http.StatusUnauthorized} {
		if status, text := s.request(client, token, "POST", url, body); status != want {
			t.Errorf("%d %s, want %d", status, text, want)
		}
	}
	s.write("tokens.yaml", "tokens: [{}]")
	if status, text := s.request(client, second, "POST", url, body); status != http.StatusCreated || !strings.Contains(n.log.String(), "the API keeps its last tokens") {
		t.Errorf("with a wrong file: %d %s", status, text)
	}
	if status, text := s.request(client, "", "GET", strings.Replace(url, "/v1/tasks", "/ops/", 1), ""); status != http.StatusOK || !strings.Contains(text, `action="/ops/login"`) {
		t.Errorf("the console answers %d %s", status, text)
	}
	if n.end(t); strings.Contains(n.log.String(), first) {
		t.Errorf("the log has the token:\n%s", n.log)
	}
	if s.rows() != 3 {
		t.Errorf("%d tasks", s.rows())
	}
}

func TestTheAPIWithoutTokensKeepsToLoopback(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, address := range []string{"0.0.0.0:0", ":8481", "10.0.0.7:8481", "example.com:8481"} {
		s.run("serve", "--listen", "off", "--api", address).refused(t, exitUsage, "address of the API", "without tokens it must be a loopback address", "tocsin token new")
	}
	s.run("serve", "--listen", "off", "--api", "here").refused(t, exitUsage, "want host:port")
	yaml := s.yaml(s.layout, s.dsn())
	s.write("tocsin.yaml", yaml+"node:\n  api: {listen: '0.0.0.0:8481'}\n")
	s.run("serve", "--listen", "off").refused(t, exitFailed, "tocsin.yaml:", "without tokens it must be a loopback address")
	s.write("tocsin.yaml", yaml)
	s.write("tocsin.yaml", yaml+"inserts:\n  order.close: {rate: 0.01, burst: 2, spread: 1h}\n")
	page := devtest.FreeAddress()
	url := "http://" + s.apiOf(s.serve("api", "--api", "localhost:0", "--listen", page)) + "/v1/"
	if status, text := s.request(http.DefaultClient, "", "GET", url+"biz-types", ""); status != http.StatusOK || !strings.Contains(text, "coupon.remind") {
		t.Errorf("%d %s", status, text)
	}
	if n := s.metric(page, `tocsin_api_requests_total{class="2xx",operation="list_biz_types"}`); n != 1 {
		t.Errorf("the node's page counts %v requests of the API", n)
	}
	s.limitsAndSpreads(t, url+"tasks")
}

// limitsAndSpreads adds what the config limits and spreads.
func (s *site) limitsAndSpreads(t *testing.T, url string) {
	t.Helper()
	body := `{"biz_type": "order.close", "biz_id": "42", "due_time": "2030-01-02T09:00:00Z"}`
	for i, want := range []int{http.StatusCreated, http.StatusCreated, http.StatusTooManyRequests} {
		if status, text := s.request(http.DefaultClient, "", "POST", url, body); status != want || strings.Contains(text, `"insert_limit"`) != (i == 2) {
			t.Errorf("add %d: %d %s", i, status, text)
		}
	}
	s.run("task", "add", "--type", "order.close", "--biz-id", "42", "--at", "2030-01-02T09:00:00Z").ok(t)
	times := map[time.Time]bool{}
	for _, task := range decode[[]taskJSON](t, s.run("task", "list", "--biz-id", "42", "--json")) {
		times[task.ActionTime] = true
		if by := task.ActionTime.Sub(time.Date(2030, 1, 2, 9, 0, 0, 0, time.UTC)); by < 0 || by >= time.Hour {
			t.Errorf("task %+v", task)
		}
	}
	if len(times) != 3 {
		t.Errorf("times %v", times)
	}
}

func TestTokensAreMadeWithWhatTheConfigKeeps(t *testing.T) {
	t.Parallel()
	made := decode[madeToken](t, call(t, "token", "new", "--name", "shop", "--scope", "read", "--types", "order.*,coupon.remind", "--expires", "2090-01-02T15:04:05Z", "--json"))
	if !strings.HasPrefix(made.Text, "toc_"+made.ID+"_") || made.Expires.Format(time.RFC3339) != "2090-01-02T15:04:05Z" || len(made.BizTypes) != 2 || made.Scope != "read" || len(made.SHA256) != 64 {
		t.Errorf("%+v", made)
	}
	for want, args := range map[string][]string{
		"--name, --scope, --types are missing: see `tocsin token new --help`": nil,
		"--scope is missing":                              {"--name", "shop", "--types", "*"},
		`scope "wirte": use read, work, write or operate`: {"--name", "shop", "--scope", "wirte", "--types", "*"},
		`--expires "tomorrow": want a time in the future`: {"--name", "shop", "--scope", "read", "--types", "*", "--expires", "tomorrow"},
		`--expires "2020-01-02T15:04:05Z": want a time`:   {"--name", "shop", "--scope", "read", "--types", "*", "--expires", "2020-01-02T15:04:05Z"},
	} {
		call(t, append([]string{"token", "new"}, args...)...).refused(t, exitUsage, want)
	}
}

// shellBlock is a block of a page that is to be pasted: its name and its text.
var shellBlock = regexp.MustCompile("(?ms)^```sh ([a-z]+)\n(.*?)^```")

// apiReader is somebody who pastes blocks of a page, such as docs/api.md, into terminals, in one folder.
type apiReader struct {
	*site
	blocks map[string]string
}

func newAPIReader(t *testing.T, page string) *apiReader {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	receiver, api := devtest.FreeAddress(), devtest.FreeAddress()
	port := func(address string) string { return address[strings.LastIndex(address, ":")+1:] }
	ports := strings.NewReplacer("127.0.0.1:8000", receiver, "127.0.0.1:8481", api, "--api-port 8481", "--api-port "+port(api),
		`("127.0.0.1", 8000)`, `("127.0.0.1", `+port(receiver)+`)`)
	r := &apiReader{&site{t: t, dir: t.TempDir()}, map[string]string{}}
	for _, b := range shellBlock.FindAllStringSubmatch(ports.Replace(string(text)), -1) {
		r.blocks[b[1]] = b[2]
	}
	if err := os.Mkdir(filepath.Join(r.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	tocsin := fmt.Sprintf("#!/bin/sh\n%s=1 TOCSIN_CONFIG= exec %s \"$@\"\n", asCommand, os.Args[0])
	if err := os.WriteFile(filepath.Join(r.dir, "bin/tocsin"), []byte(tocsin), 0o700); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *apiReader) shell(block string) *exec.Cmd {
	r.t.Helper()
	if r.blocks[block] == "" {
		r.t.Fatalf("the page has no block %q", block)
	}
	cmd := exec.Command("sh", "-c", r.blocks[block])
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), "PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// terminal pastes a block that stays, and ends it with the test.
func (r *apiReader) terminal(block string) *output {
	r.t.Helper()
	cmd, out := r.shell(block), &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
		if r.t.Failed() {
			r.t.Logf("terminal %s:\n%s", block, out)
		}
	})
	return out
}

// paste pastes a block that ends.
func (r *apiReader) paste(block string) string {
	r.t.Helper()
	out, err := r.shell(block).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", block, err, out)
	}
	return string(out)
}

// The steps of docs/api.md lead from nothing to a delivered task.
func TestTheStepsOfTheAPIsPageCanBePasted(t *testing.T) {
	t.Parallel()
	r := newAPIReader(t, "../../docs/api.md")
	r.terminal("cluster")
	r.waitWithin(upWithin, "the cluster is up", func() bool { _, err := os.Stat(filepath.Join(r.dir, "tocsin.yaml")); return err == nil })
	node := r.terminal("node")
	r.waitFor("the API listens", func() bool { return strings.Contains(node.String(), "the API listens") })
	added := r.paste("add")
	id := regexp.MustCompile(`"job_id":"(\d+)","status":"pending","existing":false`).FindStringSubmatch(added)
	if id == nil {
		t.Fatalf("added %s", added)
	}
	r.waitFor("the receiver has the task", func() bool {
		return strings.Contains(node.String(), "received ") && strings.Contains(node.String(), id[1]) && strings.Contains(node.String(), `{\"order\":42}`)
	})
	r.waitFor("the task is done", func() bool { return strings.Contains(r.paste("list"), `"status":"done"`) })
	if out := r.paste("groups"); !strings.Contains(out, `"groups":[],"tasks":0,"more":false`) {
		t.Errorf("dead are %s", out)
	}
	if out := r.paste("act"); strings.Count(out, `"code":"not_found"`) != 2 {
		t.Errorf("buried %s", out)
	}
	if out := r.paste("dead"); !strings.Contains(out, `"tasks":[]`) {
		t.Errorf("the dead tasks of a night: %s", out)
	}
	if out := r.paste("schedule"); !strings.Contains(out, `"state":"active"`) {
		t.Errorf("created %s", out)
	}
	r.waitFor("the receiver has a run", func() bool { return strings.Contains(node.String(), `{\"check\":true}`) })
	r.waitFor("the history has a run", func() bool { return strings.Contains(r.paste("runs"), `"outcome":"completed"`) })
	if out := r.paste("change"); !strings.Contains(out, `{"field":"cron","old":"@every 2s","new":"0 4 * * *"}`) {
		t.Errorf("changed %s", out)
	}
	if out := r.paste("stop"); !strings.Contains(out, `"state":"inactive"`) || strings.Contains(out, `"status"`) {
		t.Errorf("stopped %s", out)
	}
	if out := r.paste("token"); !strings.Contains(out, "toc_") || !strings.Contains(out, "scope: write") {
		t.Errorf("the token is\n%s", out)
	}
}
