package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
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

func TestNodesAndCommandsReachAnEtcdThatWantsTLS(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	authority, stranger := devtest.NewAuthority(t), devtest.NewAuthority(t)
	etcd, rest := secureEtcd(t, authority), s.yaml(s.layout, s.dsn())
	rest = rest[:strings.Index(rest, "etcd:")]
	s.write("tocsin.yaml", rest+etcd)
	s.serve("safe")
	s.ownedBy(map[string]int{"safe": 8})
	s.run("cluster", "plan", "--add", "1").says(t, "group callback: 4 of 8 tables would move, the least possible is 4")
	if r := s.run("doctor"); !strings.Contains(r.stdout, "answers; groups with nodes: callback") { // it fails for other reasons
		t.Errorf("doctor: %s%s", r.stdout, r.stderr)
	}
	s.write("tocsin.yaml", rest+strings.Replace(etcd, authority.File, stranger.File, 1))
	s.run("cluster", "nodes").refused(t, exitFailed, "no TLS with it", "certificate signed by unknown authority")
	s.write("tocsin.yaml", rest+etcd[:strings.Index(etcd, "  tls:")])
	s.run("serve", "--listen", "off").refused(t, exitFailed, "it wants TLS, and the config gives none")
	s.write("tocsin.yaml", rest+etcd+"  username: shop\n  password: hunter2\n")
	r := s.run("cluster", "nodes")
	r.refused(t, exitFailed, "authentication is not enabled")
	if strings.Contains(r.stderr, "hunter2") {
		t.Errorf("the password is told: %s", r.stderr)
	}
}
