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

func TestAMissingSecretsDirectoryIsOneLine(t *testing.T) {
	t.Parallel()
	s, _, secret := signedSite(t)
	if err := os.Remove(filepath.Dir(secret)); err != nil {
		t.Fatal(err)
	}
	s.run("serve", "--listen", "off").refused(t, exitFailed, "secrets directory", filepath.Dir(secret))
	s.run("sweep", "--once").refused(t, exitFailed, "secrets directory", filepath.Dir(secret))
}
