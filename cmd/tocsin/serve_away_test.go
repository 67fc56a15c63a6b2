package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// A server that is there and can't be used is a mistake of the config; one that is not there may come.
func TestServeWaitsForTheServersAndBeginsWhenOneAnswers(t *testing.T) {
	t.Parallel()
	s, cfg := bareSite(t), devserver.MariaDBConfig{Dir: filepath.Join(t.TempDir(), "db1")}
	start := func() *devserver.MariaDB {
		server, err := devserver.StartMariaDB(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Stop() })
		return server
	}
	server := start()
	cfg.Port = server.Port()
	config := s.yaml(s.layout, server.DSN())
	s.write("tocsin.yaml", config)
	s.applyDDL()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}

	page, unknown := devtest.FreeAddress(), strings.Replace(config, "127.0.0.1:", "db.invalid:", 1)
	n, stopped := s.serve("early", "--listen", page), s.serve("stopped", "--config", s.write("unknown.yaml", unknown))
	for _, waiting := range []*serving{n, stopped} {
		s.waitFor("it says that it waits", func() bool { return strings.Contains(waiting.log.String(), "no server answers: waiting") })
	}
	if err := stopped.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Wait(); err != nil || strings.Count(stopped.log.String(), "\n") != 1 {
		t.Errorf("after SIGTERM: %v, log:\n%s", err, stopped.log)
	}
	ask := func(path string) (int, string) { return get(t, http.DefaultClient, "http://"+page+path, "") }
	s.waitFor("the page names the server that is away", func() bool {
		code, said := ask("/status")
		return code == http.StatusServiceUnavailable && strings.Contains(said, `"mode":"waiting"`) && strings.Contains(said, "server db1 can't be used")
	})
	alive, _ := ask("/healthz")
	ready, _ := ask("/readyz")
	if alive != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("alive %d, ready %d", alive, ready)
	}
	if _, said := ask("/metrics"); !strings.Contains(said, `tocsin_node_server_up{server="db1"} 0`) || !strings.Contains(said, `tocsin_node_mode{mode="waiting"} 1`) {
		t.Errorf("metrics:\n%s", said)
	}

	start()
	s.waitFor("the node is ready", func() bool { ready, _ := ask("/readyz"); return ready == http.StatusOK })
	if log := n.log.String(); strings.Count(log, "no server answers") > 1 || !strings.Contains(log, "a server answers: starting") {
		t.Errorf("log:\n%s", log)
	}
	for mistake, wrong := range map[string]string{
		"Access denied":            strings.Replace(config, "root@", "nobody:wrong@", 1),
		"cluster of the config is": strings.Replace(config, "cluster: ", "cluster: other", 1),
		"layout of the config is":  strings.Replace(config, fmt.Sprintf("tables: %d", s.layout.Tables), "tables: 64", 1),
	} {
		s.run("serve", "--listen", "off", "--config", s.write("wrong.yaml", wrong)).refused(t, exitFailed, mistake)
	}
}
