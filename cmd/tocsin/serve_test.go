package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/devserver/etcdtest"
)

// withoutEtcd names an endpoint where nothing listens.
func withoutEtcd(yaml string) string {
	return yaml[:strings.Index(yaml, "etcd:")] + "etcd:\n  endpoints: [\"127.0.0.1:1\"]\n"
}

func TestServeAndSweepRefuseWhatCannotWork(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	s.run("serve", "--listen", address).refused(t, exitFailed, address, "address already in use", "--listen")
	s.run("relay", "--dsn", s.dsn(), "--table", "shop.tocsin_outbox", "--listen", address).refused(t, exitFailed, address, "address already in use", "--listen")
	s.run("sweep", "--cron", "every day").refused(t, exitUsage, `cron expression "every day": `, `write "@every 24h"`)
	for _, command := range []string{"sweep", "purge"} {
		s.run(command, "--cron", "0 0 30 2 *").refused(t, exitUsage, `cron expression "0 0 30 2 *" never fires within five years`)
	}
	s.run("sweep", "--grace=-1s").refused(t, exitUsage, "--grace -1s")
	s.run("sweep", "--timeout=-1s").refused(t, exitUsage, "--timeout -1s: use 0s to 87600h0m0s")
	s.run("sweep", "--cron", "@every 1m", "--once").refused(t, exitUsage, "exclude each other")
	for _, address := range []string{"0.0.0.0:6060", ":6060", "10.0.0.1:6060", "6060", "example.com:6060"} {
		s.run("serve", "--listen", "off", "--pprof", address).refused(t, exitUsage, "want a loopback address with a port, such as 127.0.0.1:6060")
	}
	s.run("serve", "--listen", "off", "--pprof", address).refused(t, exitFailed, "--pprof", "address already in use")
	yaml := s.yaml(s.layout, s.dsn())
	cert, key := devtest.NewAuthority(t).Issue(t, "page")
	for lines, want := range map[string]string{
		"token_file: /no/such/token":                  "node.status.token_file: open /no/such/token: no such file",
		"token_file: " + cert:                         "node.status.token_file: " + cert + " holds no token: want 16 to 256",
		"tls: {cert: /no/such.pem, key: " + key + "}": "node.status.tls: open /no/such.pem: no such file",
		"tls: {cert: " + key + ", key: " + key + "}":  "node.status.tls: tls: failed to find certificate PEM data",
	} {
		s.write("tocsin.yaml", yaml+"node:\n  status:\n    "+lines+"\n")
		s.run("serve", "--listen", "off").refused(t, exitFailed, want)
	}
	s.write("tocsin.yaml", yaml+"node:\n  api:\n    tls: {cert: /no/such.pem, key: "+key+"}\n")
	s.run("serve", "--listen", "off", "--api", "127.0.0.1:0").refused(t, exitFailed, "node.api.tls: open /no/such.pem: no such file")
	s.write("tocsin.yaml", yaml[:strings.Index(yaml, "etcd:")])
	s.run("serve", "--listen", "off").refused(t, exitFailed, "no etcd endpoints", "layout.ownership")
}

// A node in a service serves no page; only tocsin serve listens where the file says.
func TestOnlyServeListensWhereTheFileSays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tocsin.yaml")
	text := "cluster: shop\nlayout: {databases: 1, tables: 1, ownership: rows}\nservers: [{name: db1, dsn: 'root@tcp(127.0.0.1:1)/'}]\nnode: {listen: '127.0.0.1:1'}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{configPath: path, err: printed{file: os.Stderr}}
	for flag, want := range map[string]string{"": "127.0.0.1:1", "127.0.0.1:2": "127.0.0.1:2", "off": "off"} {
		cfg, _, _, err := a.serveConfig(serveFlags{listen: flag}, prometheus.NewRegistry())
		if err != nil || cfg.Listen != want {
			t.Errorf("--listen %q: %q, %v, want %q", flag, cfg.Listen, err, want)
		}
	}
	file, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	if cfg, _, err := a.sweepConfig(file, sweepFlags{}); err != nil || cfg.Listen != "" {
		t.Errorf("a sweeper: %q, %v", cfg.Listen, err)
	}
}

// A relay whose page fails ends with that error; one whose page ends well, as it was not asked for, goes on.
func TestARelayEndsWithItsPage(t *testing.T) {
	t.Parallel()
	wrong := errors.New("the page is gone")
	err := beside(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return nil }, func(context.Context) error { return wrong })
	if !errors.Is(err, wrong) {
		t.Errorf("ended with %v", err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	err = beside(t.Context(), func(ctx context.Context) error {
		close(begun)
		<-ended
		return ctx.Err()
	}, func(ctx context.Context) error {
		<-begun
		close(ended)
		return nil
	})
	if err != nil {
		t.Errorf("ended with %v", err)
	}
	shown := errors.New("shown until the work has ended")
	err = beside(t.Context(), func(context.Context) error { return nil }, func(ctx context.Context) error { <-ctx.Done(); return shown })
	if !errors.Is(err, shown) {
		t.Errorf("ended with %v", err)
	}
}

// A server that is there and can't be used is a mistake of the config; one that is not there may come.
func TestServeWaitsForTheServersAndBeginsWhenOneAnswers(t *testing.T) {
	t.Parallel()
	s, cfg := bareSite(t), devserver.MariaDBConfig{Dir: filepath.Join(t.TempDir(), "db1")}
	server := startServer(t, cfg)
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
	ready, said := ask("/readyz")
	if alive != http.StatusOK || ready != http.StatusServiceUnavailable || said != "service unavailable\n" {
		t.Errorf("alive %d, ready %d %q", alive, ready, said)
	}
	if _, said := ask("/metrics"); !strings.Contains(said, `tocsin_node_server_up{server="db1"} 0`) || !strings.Contains(said, `tocsin_node_mode{mode="waiting"} 1`) {
		t.Errorf("metrics:\n%s", said)
	}

	startServer(t, cfg)
	s.waitFor("the node is ready", func() bool { ready, _ := ask("/readyz"); return ready == http.StatusOK })
	if log := n.log.String(); strings.Count(log, "no server answers") > 1 || !strings.Contains(log, "a server answers: starting") {
		t.Errorf("log:\n%s", log)
	}
	wrong := s.write("wrong.yaml", strings.Replace(config, "root@", "nobody:wrong@", 1))
	s.run("serve", "--listen", "off", "--config", wrong).refused(t, exitFailed, "Access denied")
}

func TestAStopReleasesTheTablesAtOnceAndSettlesALongCallback(t *testing.T) {
	t.Parallel()
	const inHand = 16 // over all tables
	s, h := bareSite(t), newHanging(t)
	s.applyDDL()
	s.applyBiz("biz_types:\n  - {name: coupon.remind, number: 2, timeout: 9m, webhook: {url: \"" + h.URL + "\", allow: [127.0.0.0/8]}}\n")
	s.write("patient.yaml", s.yaml(s.layout, s.dsn())+"node:\n  drain_timeout: 5m\n")
	n := s.serve("leaver", "--config", "patient.yaml")
	s.ownedBy(map[string]int{"leaver": 8})
	s.fill(inHand, time.Millisecond)
	s.waitFor("all deliveries have begun", func() bool { return len(h.begun) == inHand })
	s.serve("heir")
	s.ownedBy(map[string]int{"leaver": 4, "heir": 4})
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.ownedBy(map[string]int{"heir": 8})
	h.goOn()
	if err := n.Wait(); err != nil {
		t.Errorf("exit after SIGTERM: %v", err)
	}
	if s.notDone() != 0 || len(h.begun) != inHand {
		t.Errorf("%d tasks not done, %d second deliveries", s.notDone(), len(h.begun)-inHand)
	}
	for _, part := range []string{`"in_delivery":16`, "all tables are given up", `"left_in_delivery":0`} {
		if !strings.Contains(n.log.String(), part) {
			t.Errorf("the log lacks %s", part)
		}
	}
}

func TestAPausedTypeWaitsUntilItIsResumedOrAppliedAgain(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	for i, resume := range [][]string{{"biz", "resume", "coupon.remind"}, {"biz", "apply", "biz.yaml"}} {
		s.run("biz", "pause", "coupon.remind").says(t, "changed")
		s.fill(1, 0)
		s.run("sweep", "--grace", "0s").says(t, "1 overdue, 0 delivered", "left coupon.remind (paused): 1")
		s.run(resume...).says(t, "changed")
		s.run("sweep", "--grace", "0s").says(t, "1 overdue, 1 delivered")
		if seen, _, _ := c.counts(); seen != i+1 {
			t.Errorf("%d tasks seen, want %d", seen, i+1)
		}
	}
}

// secureEtcd starts one that wants certificates, and gives the config that fits.
func secureEtcd(t *testing.T, authority *devtest.Authority) string {
	t.Helper()
	cert, key := authority.Issue(t, "etcd")
	etcd, err := devserver.StartEtcd(t.Context(), devserver.EtcdConfig{
		TLS: devserver.EtcdTLS{Cert: cert, Key: key, ClientCA: authority.File},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Stop() })
	cert, key = authority.Issue(t, "client")
	return fmt.Sprintf("etcd:\n  endpoints: [%q]\n  tls:\n    ca: %s\n    cert: %s\n    key: %s\n", etcd.Endpoint(), authority.File, cert, key)
}

// wantPasswords has the etcd of the site's config ask for them.
func (s *site) wantPasswords() {
	s.t.Helper()
	file, err := config.Load(s.dir + "/tocsin.yaml")
	if err != nil {
		s.t.Fatal(err)
	}
	cfg, err := file.EtcdConfig()
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := assign.Dial(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	etcdtest.WantPasswords(s.t, client, s.prefix)
}

// secureMySQL starts a server whose user safe must show a certificate, and returns
// the matching lines of the config.
func secureMySQL(t *testing.T, authority *devtest.Authority) string {
	t.Helper()
	cert, key := authority.Issue(t, "mysql")
	server := startServer(t, devserver.MariaDBConfig{
		Args: []string{"--ssl-ca=" + authority.File, "--ssl-cert=" + cert, "--ssl-key=" + key},
	})
	root := openDB(t, server.DSN())
	for _, statement := range []string{"CREATE USER 'safe'@'%' REQUIRE X509", "GRANT ALL ON *.* TO 'safe'@'%'"} {
		if _, err := root.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	cert, key = authority.Issue(t, "tocsin")
	return fmt.Sprintf("    dsn: safe@tcp(127.0.0.1:%d)/\n    tls:\n      ca: %s\n      cert: %s\n      key: %s\n", server.Port(), authority.File, cert, key)
}

func TestNodesAndCommandsReachServersThatWantTLS(t *testing.T) {
	t.Parallel()
	s, c := bareSite(t), newCallbacks(t)
	authority := devtest.NewAuthority(t)
	server, etcd := secureMySQL(t, authority), secureEtcd(t, authority)
	use := func(server, etcd string) {
		yaml := strings.Replace(s.yaml(s.layout, s.dsn()), "    dsn: "+s.dsn()+"\n", server, 1)
		s.write("tocsin.yaml", yaml[:strings.Index(yaml, "etcd:")]+etcd)
	}
	use(server, etcd)
	s.wantPasswords()
	user := fmt.Sprintf("  username: %s\n  password: pass-%s\n", s.prefix, s.prefix)
	use(server, etcd+user)
	s.applyDDL()
	s.applyCallbacks(c)
	add := []string{"task", "add", "--type", "coupon.remind", "--biz-id", "1", "--in", "0s"}
	for _, command := range [][]string{{"ddl", "verify"}, add, {"sweep", "--grace", "0s", "--once"}, {"purge", "--once"}, {"audit"}} {
		s.run(command...).ok(t)
	}
	page := s.servePage("safe")
	s.ownedBy(map[string]int{"safe": 8})
	s.wantExpiry(page, "db1")
	s.wantExpiry(page, "etcd")
	s.run(add...).ok(t)
	s.waitFor("both callbacks", func() bool { seen, _, _ := c.counts(); return seen == 2 })
	s.run("cluster", "plan", "--add", "1").says(t, "group callback: 4 of 8 tables would move, the least possible is 4")
	if r := s.run("doctor"); !strings.Contains(r.stdout, "answers; groups with nodes: callback") { // it fails for other reasons
		t.Errorf("doctor: %s%s", r.stdout, r.stderr)
	}
	s.doctor().finding(t, "ok", "health")
	use(server, etcd+strings.ReplaceAll(user, s.prefix, s.prefix+"-reader"))
	s.doctor().finding(t, "fail", "health", "permission denied", "read and write the keys below")
	decodeText[examined](t, s.run("doctor", "--json", "--role", "sweep").stdout).finding(t, "ok", "health") // a sweeper writes none
	for wrong, want := range map[string]string{
		etcd + strings.Replace(user, "pass-", "hunter-", 1): "authentication failed, invalid user ID or password",
		etcd: "permission denied",
	} {
		use(server, wrong)
		r := s.run("cluster", "nodes")
		if r.refused(t, exitFailed, "etcd", want); strings.Contains(r.stderr, "hunter-") {
			t.Errorf("the password is told: %s", r.stderr)
		}
	}
}

// wantExpiry wants the time of a certificate of devtest, which expires within the hour.
func (s *site) wantExpiry(page, of string) {
	s.t.Helper()
	series := fmt.Sprintf("tocsin_node_certificate_expires_timestamp_seconds{of=%q}", of)
	if left := time.Until(time.Unix(int64(s.metric(page, series)), 0)); left <= 0 || left > time.Hour {
		s.t.Errorf("%s: %s left", series, left)
	}
}

// servePage is serve with a status page, and returns the page's address.
func (s *site) servePage(name string) string {
	s.t.Helper()
	page := devtest.FreeAddress()
	s.serve(name, "--listen", page)
	return page
}
