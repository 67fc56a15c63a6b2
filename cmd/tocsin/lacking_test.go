package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// signedSite makes a site with one callback, whose secret is looked for in a
// directory that the config names.
func signedSite(t *testing.T) (s *site, received *callbacks, secret string) {
	t.Helper()
	s, received = bareSite(t), newCallbacks(t)
	s.applyDDL()
	s.write("biz.yaml", fmt.Sprintf(`biz_types:
  - name: coupon.remind
    number: 2
    timeout: 5s
    webhook:
      url: %s
      secrets: [TOCSIN_TEST_HOOK]
      allow: [127.0.0.0/8]
`, received.URL))
	s.run("biz", "apply", "biz.yaml").ok(t)
	dir := filepath.Join(s.dir, "secrets")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+fmt.Sprintf("node:\n  secrets_dir: %q\n", dir))
	return s, received, filepath.Join(dir, "TOCSIN_TEST_HOOK")
}

// delivered returns doctor's checks of what nodes deliver: level and text.
func (s *site) delivered() string {
	s.t.Helper()
	for _, c := range decodeText[examined](s.t, s.run("doctor", "--json").stdout).Checks {
		if c.Check == "delivered" {
			return c.Level + " " + c.Is
		}
	}
	return ""
}

func TestANodeWithoutASecretSaysSoAndTakesItWithoutARestart(t *testing.T) {
	t.Parallel()
	s, received, secret := signedSite(t)
	first := s.serve("first")
	s.ownedBy(map[string]int{"first": 8})
	s.waitFor("the log says that nobody delivers it", func() bool { return strings.Contains(first.log.String(), "by any node of the group: its tasks wait") })
	s.fill(8, 0)
	s.run("cluster", "nodes").says(t, "can't deliver coupon.remind", "TOCSIN_TEST_HOOK is neither a file in", "no node of its group can: such tasks wait")
	if is := s.delivered(); !strings.HasPrefix(is, "fail no node of group callback delivers coupon.remind") {
		t.Errorf("doctor says %q", is)
	}
	if err := os.WriteFile(secret, []byte("whsec_dG9jc2luLWRldi1zZWNyZXQtbm90LXNlY3JldA==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.waitFor("the tasks that waited are done", func() bool { return s.notDone() == 0 })
	if seen, again, _ := received.counts(); seen != 8 || again != 0 {
		t.Errorf("%d tasks were delivered, %d of them again", seen, again)
	}
	if out := s.run("cluster", "nodes").ok(t); strings.Contains(out, "can't deliver") {
		t.Errorf("it still lacks something:\n%s", out)
	}
	if is := s.delivered(); !strings.HasPrefix(is, "ok ") {
		t.Errorf("doctor says %q", is)
	}
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())) // as on a host that lacks the secret
	second := s.serve("second")
	s.ownedBy(map[string]int{"first": 4, "second": 4})
	s.waitFor("the log says that the other stands in", func() bool {
		return strings.Contains(second.log.String(), "other nodes of the group stand in") && strings.Contains(first.log.String(), "standing in for a node that lacks biz types")
	})
	s.run("cluster", "nodes").says(t, "can't deliver coupon.remind", "others of its group stand in for it")
	if is := s.delivered(); !strings.HasPrefix(is, "warn some nodes lack coupon.remind, and others stand in for them; second-") {
		t.Errorf("doctor says %q", is)
	}
}

// The nodes' secrets_dir may be absent for a sweep on the same host: systemd gives each unit a directory of its own.
func TestAMissingSecretsDirectoryCostsSignedTypesOnly(t *testing.T) {
	t.Parallel()
	s, received, secret := signedSite(t)
	dir := filepath.Dir(secret)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	s.write("biz.yaml", s.text("biz.yaml")+fmt.Sprintf("  - {name: open.remind, number: 3, timeout: 5s, webhook: {url: %q, allow: [127.0.0.0/8]}}\n", received.URL))
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.overdue("coupon.remind", 2)
	s.overdue("open.remind", 3)
	why := "the webhook's secret TOCSIN_TEST_HOOK is neither a file in " + dir + ", which does not exist, nor an environment variable"
	swept := s.run("sweep", "--once")
	if swept.code != exitFailed || !strings.Contains(swept.stderr, why) || !strings.Contains(swept.stderr, "are left: coupon.remind (no handler here): 2") || !strings.Contains(swept.stdout, "3 delivered") {
		t.Errorf("exit code %d, stdout:\n%sstderr:\n%s", swept.code, swept.stdout, swept.stderr)
	}
	n := s.serve("node")
	s.waitFor("the node's log says what is missing", func() bool { return strings.Contains(n.log.String(), why) })
	given := t.TempDir()
	if err := os.WriteFile(filepath.Join(given, "TOCSIN_TEST_HOOK"), []byte("whsec_dG9jc2luLWRldi1zZWNyZXQtbm90LXNlY3JldA==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := command(t.Context(), s.dir, "sweep", "--once")
	with.Env = append(with.Env, "CREDENTIALS_DIRECTORY="+given)
	if out, err := with.CombinedOutput(); err != nil || !strings.Contains(string(out), "2 overdue, 2 delivered") {
		t.Errorf("with credentials of systemd: %v\n%s", err, out)
	}
}
