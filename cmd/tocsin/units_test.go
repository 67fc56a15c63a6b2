package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
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
)

// booted is a systemd in namespaces of its own.
type booted struct {
	t   *testing.T
	pid string // of its process 1
}

func bootSystemd(t *testing.T) booted {
	t.Helper()
	if os.Getenv("TOCSIN_TEST_SYSTEMD") == "" {
		t.Skip("boots systemd, as root: make units")
	}
	script, err := filepath.Abs("../../scripts/boot-systemd.sh")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(script, t.TempDir())
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := booted{t: t}
	t.Cleanup(func() {
		journal, _ := b.command("journalctl --no-pager --lines 60").CombinedOutput()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("boot:\n%s\njournal:\n%s", out.String(), journal)
		}
	})
	(&site{t: t}).waitFor("systemd runs", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
		b.pid = strings.TrimSpace(string(children))
		name, _ := os.ReadFile("/proc/" + b.pid + "/comm")
		return b.pid != "" && string(name) == "systemd\n" && b.command("systemctl is-system-running --wait").Run() == nil
	})
	return b
}

func (b booted) command(script string) *exec.Cmd {
	return exec.Command("nsenter", "-t", b.pid, "-m", "-p", "-u", "-i", "-C", "-r", "-w", "sh", "-euc", script)
}

// sh runs a script there and returns what it printed.
func (b booted) sh(script string) string {
	b.t.Helper()
	out, err := b.command(script).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// write makes a file there.
func (b booted) write(path, text string) {
	b.t.Helper()
	cmd := b.command("mkdir -p $(dirname " + path + "); umask 077; cat >" + path)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%s: %v\n%s", path, err, out)
	}
}

// signers counts callbacks by the secret that signed them.
type signers struct {
	mu   sync.Mutex
	seen map[string]int
}

func (s *signers) receiver(secrets ...string) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for _, secret := range secrets {
			key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
			mac := hmac.New(sha256.New, key)
			fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
			if r.Header.Get("webhook-signature") == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
				s.mu.Lock()
				s.seen[secret]++
				s.mu.Unlock()
			}
		}
	}
}

func (s *signers) by(secret string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[secret]
}

// unitsSite has a signed callback, and a user of the database with a password.
func unitsSite(t *testing.T, url string) (s *site, config, env string) {
	s = bareSite(t)
	s.applyDDL()
	s.applyBiz(fmt.Sprintf("biz_types:\n  - {name: coupon.remind, number: 2, timeout: 5s, webhook: {url: %q, secrets: [coupon], allow: [127.0.0.0/8]}}\n", url))
	s.exec("CREATE USER '" + s.prefix + "'@'%' IDENTIFIED BY 'of-units'")
	t.Cleanup(func() { _, _ = s.db.Exec("DROP USER '" + s.prefix + "'@'%'") })
	s.exec("GRANT ALL ON `" + s.prefix + "\\_%`.* TO '" + s.prefix + "'@'%'")
	_, server, _ := strings.Cut(s.dsn(), "@")
	return s, s.yaml(s.layout, "${TOCSIN_DB_USER}:${TOCSIN_DB_PASSWORD}@"+server), "TOCSIN_DB_USER=" + s.prefix + "\nTOCSIN_DB_PASSWORD=of-units\n"
}

// The commands of docs/deployment.md, word by word, then a task, a new secret, a sweep, purge and audit, and the stop.
func TestTheUnitsWorkUnderSystemd(t *testing.T) {
	b := bootSystemd(t)
	page, err := os.ReadFile("../../docs/deployment.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := regexp.MustCompile("(?s)## systemd\n\n```sh\n(.*?)```").FindStringSubmatch(string(page))
	if steps == nil {
		t.Fatal("docs/deployment.md has no commands for systemd")
	}
	install, enable, ok := strings.Cut(steps[1], "systemctl enable --now")
	if !ok {
		t.Fatal("docs/deployment.md enables no unit")
	}
	const former, latter = "whsec_dG9jc2luLWRldi1zZWNyZXQtbm90LXNlY3JldA==", "whsec_YW5vdGhlci1zZWNyZXQtb2YtdGVzdHMtbm90LXNlY3JldA=="
	s := &signers{seen: map[string]int{}}
	receiver := httptest.NewServer(s.receiver(former, latter))
	t.Cleanup(receiver.Close)
	site, config, env := unitsSite(t, receiver.URL)

	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b.write("/tmp/clone/tocsin.yaml", config)
	b.sh("cp -r " + repository + "/deploy " + repository + "/bin /tmp/clone")
	b.sh("cd /tmp/clone\n" + install)
	for _, role := range []string{"node", "sweep", "purge", "audit"} {
		b.write("/etc/tocsin/"+role+".env", env)
	}
	b.write("/etc/tocsin/secrets/coupon", former)
	for _, unit := range []string{"tocsin", "tocsin-sweep"} {
		b.write("/etc/systemd/system/"+unit+".service.d/secrets.conf", "[Service]\nLoadCredential=coupon:/etc/tocsin/secrets/coupon\n")
	}
	b.sh("systemctl daemon-reload\nsystemctl enable --now" + enable)

	site.fill(3, 0)
	site.waitFor("the node delivers with the secret", func() bool { return s.by(former) == 3 && site.notDone() == 0 })
	b.write("/etc/tocsin/secrets/coupon", latter)
	b.sh("systemctl restart tocsin.service")
	site.fill(4, 0)
	site.waitFor("the node delivers with the new secret", func() bool { return s.by(latter) == 4 && site.notDone() == 0 })
	t.Log("started; 3 callbacks with the secret, after a restart 4 with the new one")
	b.stopsAndSweeps(site, s, latter)
}

// stopsAndSweeps stops the node, runs the other units once, and leaves five tasks to the sweep, signed with the secret.
func (b booted) stopsAndSweeps(site *site, s *signers, secret string) {
	t := b.t
	t.Helper()
	b.sh("systemctl stop tocsin.service")
	if state := b.sh("systemctl show -p Result -p ExecMainStatus -p ActiveState tocsin.service"); state != "ExecMainStatus=0\nResult=success\nActiveState=inactive\n" &&
		state != "Result=success\nExecMainStatus=0\nActiveState=inactive\n" {
		t.Errorf("after the stop: %s", state)
	}
	t.Log("stopped with code 0")
	b.sh("systemctl start tocsin-purge.service tocsin-audit.service tocsin-audit-outbox.service")
	site.overdue("coupon.remind", 5)
	b.sh("systemctl start tocsin-sweep.service")
	if s.by(secret) != 9 {
		t.Errorf("%d deliveries with the new secret; want 9", s.by(secret))
	}
	for _, command := range []string{"sweep", "purge", "audit_" + site.prefix, "audit_outbox"} {
		if files := b.sh("ls /var/lib/prometheus/node-exporter"); !strings.Contains(files, command) {
			t.Errorf("no metrics of %s: %s", command, files)
		}
	}
	printed := b.sh("journalctl --sync; journalctl --no-pager --output cat _SYSTEMD_UNIT=tocsin-audit-outbox.service + _SYSTEMD_UNIT=tocsin-sweep.service")
	if !strings.Contains(printed, "the config has no outboxes") || !strings.Contains(printed, "5 delivered") {
		t.Errorf("sweep and audit of outboxes printed: %s", printed)
	}
	t.Log("sweep, purge, audit and audit of outboxes have run:\n" + printed)
}
