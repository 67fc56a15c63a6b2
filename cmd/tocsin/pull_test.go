package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

const pullPage = "../../docs/pull.md"

// The steps of docs/pull.md lead from nothing to a task that somebody has asked for and settled.
func TestTheStepsOfThePageOfWorkersCanBePasted(t *testing.T) {
	t.Parallel()
	r := newAPIReader(t, pullPage)
	r.blocks["settle"] = r.blocks["reserve"] + r.blocks["extend"] + r.blocks["settle"] // in one shell, for its variable
	r.terminal("cluster")
	r.waitWithin(upWithin, "the cluster is up", func() bool { _, err := os.Stat(filepath.Join(r.dir, "tocsin.yaml")); return err == nil })
	node := r.terminal("node")
	r.waitFor("the API listens", func() bool { return strings.Contains(node.String(), "the API listens") })
	if out := r.paste("add"); !strings.Contains(out, `"status":"pending"`) {
		t.Errorf("added %s", out)
	}
	var out string
	r.waitFor("the task is settled", func() bool {
		out = r.paste("settle")
		return strings.Contains(out, `"result":"done"`)
	})
	if !strings.Contains(out, `"lease_ms":30000`) || !strings.Contains(out, `"result":"ok"`) {
		t.Errorf("reserved, extended and settled %s", out)
	}
	if out := r.paste("nodes"); !strings.Contains(out, `{"nodes":[`) {
		t.Errorf("the nodes are %s", out)
	}
	if out := r.paste("token"); !strings.Contains(out, "toc_") || !strings.Contains(out, "scope: work") {
		t.Errorf("the token is\n%s", out)
	}
}

// lossy passes requests on to an API. The answer to the first that settles anything gets lost.
type lossy struct {
	to string

	mu                          sync.Mutex
	lost                        bool
	already, extended, unwanted int
}

func (l *lossy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		panic(err)
	}
	l.mu.Lock()
	lose := !l.lost && len(in["settle"]) > len("[]")
	l.lost = l.lost || lose
	l.mu.Unlock()
	if lose {
		delete(in, "reserve") // its tasks would be lost as well, until their leases run out
	}
	body, _ := json.Marshal(in)
	req, err := http.NewRequestWithContext(r.Context(), r.Method, l.to+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header = r.Header
	resp, err := http.DefaultClient.Do(req)
	if err != nil || lose {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	l.mu.Lock()
	l.already += strings.Count(string(text), `"already"`)
	l.extended += strings.Count(string(text), `"ok"`)
	l.unwanted += strings.Count(string(text), `"cancel_wanted"`)
	l.mu.Unlock()
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(text)
}

func (l *lossy) count(of *int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *of
}

// newPrinter serves the biz type that the programs of docs/pull.md ask for, and returns a token for them, and their way to the API.
func newPrinter(t *testing.T) (s *site, token string, way *lossy) {
	t.Helper()
	s = bareSite(t)
	s.applyDDL()
	s.applyBiz("biz_types:\n  - {name: report.print, number: 1, pull: {lease: 5s}}\n")
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"node:\n  api: {tokens_file: "+s.dir+"/tokens.yaml}\n")
	token = s.newToken("tokens.yaml", "--name", "printers", "--scope", "work", "--types", "report.*")
	return s, token, &lossy{to: "http://" + s.apiOf(s.serve("node", "--api", "127.0.0.1:0"))}
}

// print adds a task that is due.
func (s *site) print(report string) tocsin.JobID {
	s.t.Helper()
	return decode[taskJSON](s.t, s.run("task", "add", "--json", "--type", "report.print", "--biz-id", "42", "--in", "0s", "--payload", report)).JobID
}

// ended waits until a task has a status and a number of attempts.
func (s *site) ended(id tocsin.JobID, status string, attempts int) {
	s.t.Helper()
	s.waitFor("the task is "+status, func() bool {
		got := decode[taskJSON](s.t, s.run("task", "get", "--json", id.String()))
		return got.Status == status && got.Attempts == attempts
	})
}

// Each program of docs/pull.md does its tasks, repeats a settle whose answer was lost, drops a task that was cancelled, keeps
// one for longer than its lease lasts, and ends that one when it is to stop.
func TestTheProgramsOfThePageOfWorkers(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(pullPage)
	if err != nil {
		t.Fatal(err)
	}
	for kind, interpreter := range map[string]string{"python worker.py": "python3", "js worker.mjs": "node", "php worker.php": "php"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			program := regexp.MustCompile("(?ms)^```" + kind + "\n(.*?)^```").FindSubmatch(page)
			if program == nil || bytes.Count(program[1], []byte("\n")) > 60 {
				t.Fatalf("docs/pull.md has no block %q of 60 lines at most", kind)
			}
			s, token, way := newPrinter(t)
			server := httptest.NewServer(way)
			t.Cleanup(server.Close)
			run := exec.CommandContext(t.Context(), interpreter, s.write(strings.Fields(kind)[1], string(program[1])))
			run.Env = append(os.Environ(), "TOCSIN_API="+server.URL, "TOCSIN_TOKEN="+token)
			worker := s.serveBy(run, interpreter)

			s.ended(s.print(`{"pages":1}`), "done", 0)
			s.waitFor("the settle is repeated", func() bool { return way.count(&way.already) == 1 })
			busy, empty := s.print(`{"pages":1,"printer":"busy"}`), s.print(`{"pages":0}`)
			s.ended(busy, "pending", 1)
			s.ended(empty, "dead", 1)
			if got := decode[taskJSON](t, s.run("task", "get", "--json", busy.String())); time.Until(got.ActionTime) < 0 {
				t.Errorf("the busy one is due again at %s", got.ActionTime)
			}
			unwanted := s.print(`{"pages":3600}`)
			s.waitFor("the endless one is extended", func() bool { return way.count(&way.extended) > 0 })
			s.run("task", "cancel", unwanted.String()).ok(t)
			s.waitFor("its worker knows", func() bool { return way.count(&way.unwanted) > 0 })
			long, extended := s.print(`{"pages":12}`), way.count(&way.extended)
			s.waitFor("the long one is extended", func() bool { return way.count(&way.extended) > extended })
			worker.end(t)
			s.ended(long, "done", 0)
			s.ended(unwanted, "cancelled", 0)
			s.run("task", "get", empty.String()).says(t, "no pages")
		})
	}
}
