package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/operator"
)

func TestTopShowsWhatTheNodesDeliver(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+"node:\n  status: {token: token-0123456789abcdef}\n")
	one, two := devtest.FreeAddress(), devtest.FreeAddress()
	s.serve("one", "--listen", one)
	s.serve("two", "--listen", two)
	s.ownedBy(map[string]int{"one": 4, "two": 4})
	var id string
	if err := s.db.QueryRow("SELECT identity FROM " + s.layout.Database(0) + ".layout").Scan(&id); err != nil {
		t.Fatal(err)
	}
	s.nodeIn(assign.Identity{ID: id, Databases: "toc_0 on db1"}, "orders", "ghost") // which publishes an address where nobody listens
	l := s.startLoad(s.client())
	v := decode[operator.Activity](t, s.run("top", "--once", "--json", "--interval", "5s"))
	l.end()
	if v.Total.Delivered <= 0 || v.Seconds < 1 || len(v.Nodes) != 3 || len(v.Types) != 1 || len(v.Notes) != 0 {
		t.Fatalf("got %+v", v)
	}
	if r := v.Types[0]; r.Name != "coupon.remind" || r.Delivered != v.Total.Delivered || r.Failed != 0 || r.Late99 == nil || r.Limit != 128 {
		t.Errorf("got %+v", r)
	}
	for _, n := range v.Nodes {
		if ghost := strings.HasPrefix(n.ID, "ghost-"); ghost != (n.Error != "") || !ghost && (n.Mode != "ownership" || n.Tables != 4 || n.Group != "callback") {
			t.Errorf("got %+v", n)
		}
	}
	s.run("top", "--once", "--interval", "5s").says(t, "2 of 3 nodes answer; rates over ", "\nBIZ TYPE  ", "\ncoupon.remind  ", "\nNODE  ",
		"\none-", "callback  ownership  4       4", "\nnote: ghost-", " at 127.0.0.1:9 does not answer: ", "connection refused")
	s.run("top", "--once", "--interval", "5s", "--group", "callback").says(t, "2 of 2 nodes answer")

	s.write("noetcd.yaml", withoutEtcd(s.yaml(s.layout, "toc:x@tcp(127.0.0.1:1)/"))+"node:\n  status: {token: token-0123456789abcdef}\n")
	s.run("top", "--once", "--interval", "5s", "--config", "noetcd.yaml", "--status", one+","+two).says(t, "2 of 2 nodes answer", "\none-", "\ntwo-")
	s.run("top", "--once", "--interval", "5s", "--config", "noetcd.yaml").refused(t, exitFailed, "etcd 127.0.0.1:1")
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn()))
	if r := s.run("top", "--once", "--interval", "5s", "--status", one); r.code != exitFailed || !strings.Contains(r.stdout, "does not answer: the status page wants another token") {
		t.Errorf("exit code %d:\n%s", r.code, r.stdout)
	}
}

func TestTopRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.run("top").refused(t, exitUsage, "standard output is no terminal that can be drawn on, or --json is given: use --once")
	s.run("top", "--once", "--interval", "1ms").refused(t, exitUsage, "--interval 1ms: use 500ms to 87600h0m0s")
	s.run("top", "--once", "--status", "nowhere").refused(t, exitUsage, `--status "nowhere": want host:port`)
	s.run("top", "--once", "--status", "127.0.0.1:1", "--group", "a").refused(t, exitUsage, "use --group or --status, not both")
	s.run("top", "now").refused(t, exitUsage, `unknown command or argument "now"`)
}

// TestTopAsksEachNodeOnceInAnInterval, and if a server is in trouble it says so and ends with 1, though the nodes answer.
func TestTopAsksEachNodeOnceInAnInterval(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	var asked atomic.Int32
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); r.URL.Path != "/metrics" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set(operator.NodeHeader, "host-b")
		fmt.Fprint(w, `# TYPE tocsin_node_mode gauge
tocsin_node_mode{mode="claim"} 1
# TYPE tocsin_node_server_up gauge
tocsin_node_server_up{server="db0"} 1
tocsin_node_server_up{server="db1"} 0
# TYPE tocsin_node_server_waiting_seconds gauge
tocsin_node_server_waiting_seconds{server="db0"} 0.2
tocsin_node_server_waiting_seconds{server="db1"} 42
# TYPE tocsin_backlog_overdue gauge
tocsin_backlog_overdue{biz_type="a"} 0
# TYPE tocsin_backlog_overdue_age_seconds gauge
tocsin_backlog_overdue_age_seconds{server="db1"} 190
`)
	}))
	defer page.Close()
	r := s.run("top", "--once", "--interval", "5s", "--status", strings.TrimPrefix(page.URL, "http://"))
	const note = "note: server db1 does not answer a node, and has not answered a statement for 42s, and has overdue figures that are 3m10s old\n"
	if r.code != exitFailed || !strings.Contains(r.stdout, note) || strings.Contains(r.stdout, "db0") || !strings.Contains(r.stdout, " 0? ") || !strings.Contains(r.stdout, "\nhost-b") {
		t.Errorf("exit code %d:\n%s", r.code, r.stdout)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("%d requests for two looks", n)
	}
}

// What a node or an error says can't steer the terminal, and no line is wider than it.
func TestTopFitsItsTerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"q": "quits", "x": "goes on", "\x03": "quits", "": "quits",
	} {
		quit := make(chan struct{})
		keys, press := io.Pipe()
		go awaitQuit(keys, func() { close(quit) })
		if text == "" {
			press.Close()
		} else if _, err := press.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if want == "goes on" {
			if _, err := press.Write([]byte("q")); err != nil { // which nobody would read, if x had quit
				t.Fatal(err)
			}
		}
		<-quit
	}
	got := tidied([][]string{{"a\x1b[2J"}, {"one", "two"}, {"three", "4"}})
	if want := "a [2J|one    two|three  4"; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", strings.Join(got, "|"), want)
	}
}
