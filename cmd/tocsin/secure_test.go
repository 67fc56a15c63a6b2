package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/devserver/etcdtest"
)

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
	client, err := assign.Dial(s.t.Context(), assign.EtcdConfig(cfg))
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	etcdtest.WantPasswords(s.t, client, s.prefix)
}

func TestNodesAndCommandsReachAnEtcdThatWantsTLSAndAPassword(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	authority, stranger := devtest.NewAuthority(t), devtest.NewAuthority(t)
	etcd, rest := secureEtcd(t, authority), s.yaml(s.layout, s.dsn())
	rest = rest[:strings.Index(rest, "etcd:")]
	s.write("tocsin.yaml", rest+etcd)
	s.wantPasswords()
	user := fmt.Sprintf("  username: %s\n  password: pass-%s\n", s.prefix, s.prefix)
	s.write("tocsin.yaml", rest+etcd+user)
	page := s.servePage("safe")
	s.ownedBy(map[string]int{"safe": 8})
	wantExpiry(t, page, `tocsin_node_certificate_expires_timestamp_seconds{of="etcd"}`)
	s.run("cluster", "plan", "--add", "1").says(t, "group callback: 4 of 8 tables would move, the least possible is 4")
	if r := s.run("doctor"); !strings.Contains(r.stdout, "answers; groups with nodes: callback") { // it fails for other reasons
		t.Errorf("doctor: %s%s", r.stdout, r.stderr)
	}
	for yaml, want := range map[string]string{
		strings.Replace(etcd+user, authority.File, stranger.File, 1): "certificate signed by unknown authority",
		etcd[:strings.Index(etcd, "  tls:")]:                         "it wants TLS, and the config gives none",
		etcd + strings.Replace(user, "pass-", "hunter-", 1):          "authentication failed, invalid user ID or password",
		etcd + strings.ReplaceAll(user, s.prefix, "root"):            "",
		etcd: "permission denied",
	} {
		s.write("tocsin.yaml", rest+yaml)
		r := s.run("cluster", "nodes")
		if want == "" {
			r.ok(t)
			continue
		}
		if r.refused(t, exitFailed, "etcd", want); strings.Contains(r.stderr, "hunter-") {
			t.Errorf("the password is told: %s", r.stderr)
		}
	}
}
