package assign

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/devserver/etcdtest"
)

// startSecureEtcd starts one that wants client certificates of the authority.
func startSecureEtcd(t *testing.T, authority *devtest.Authority) *devserver.Etcd {
	t.Helper()
	cert, key := authority.Issue(t, "etcd")
	return startEtcd(t, &devserver.EtcdConfig{TLS: devserver.EtcdTLS{Cert: cert, Key: key, ClientCA: authority.File}})
}

// trusting gives a client's TLS: it trusts ca, and shows a certificate of by unless that is nil.
func trusting(t *testing.T, ca, by *devtest.Authority) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AppendCertsFromPEM(pem)
	if by == nil {
		return cfg
	}
	pair, err := tls.LoadX509KeyPair(by.Issue(t, "client"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg
}

// dialAs makes a client that is closed with the test.
func dialAs(t *testing.T, cfg EtcdConfig) *clientv3.Client {
	t.Helper()
	cfg.Timeout = 20 * time.Second
	client, err := Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestClustersShareAnEtcdWithTLSAndPasswords(t *testing.T) {
	t.Parallel()
	authority := devtest.NewAuthority(t)
	etcd := startSecureEtcd(t, authority)
	at := EtcdConfig{Endpoints: []string{etcd.Endpoint()}, TLS: trusting(t, authority, authority)}
	etcdtest.WantPasswords(t, dialAs(t, at), "shop", "shop-2")
	crowdOf := func(cluster string) *crowd {
		at.Username, at.Password = cluster, "pass-"+cluster
		return &crowd{t: t, cluster: cluster, client: dialAs(t, at), changed: make(chan struct{}), last: make(map[string]int64)}
	}
	one, two := crowdOf("shop"), crowdOf("shop-2")
	asUser := func(c *crowd) func(*Config) {
		return func(cfg *Config) { cfg.Client = c.client; cfg.TTL = 6 * time.Second }
	}
	a, b, alone := one.join(asUser(one)), one.join(asUser(one)), two.join(asUser(two))
	one.awaitCounts(map[*desk]int{a: 16, b: 16})
	two.awaitCounts(map[*desk]int{alone: 32})
	at.Username, at.Password = "root", "pass-root"
	root := dialAs(t, at)
	if _, err := root.UserAdd(t.Context(), "somebody", "else"); err != nil { // etcd refuses older tokens from here on
		t.Fatal(err)
	}
	renewed := []*grant{a.trust.granted.Load(), b.trust.granted.Load(), alone.trust.granted.Load()}
	one.drain(b)
	one.awaitCounts(map[*desk]int{a: 32, b: 0})
	checkForeign(t, two.client, "shop")
	if d, err := one.registry().Try(t.Context(), "g", Change{Add: 1}); err != nil || d.Moves != 16 {
		t.Errorf("%+v, %v", d, err)
	}
	for i, d := range []*desk{a, b, alone} {
		poll(t, "the lease is renewed", func() bool { return d.trust.granted.Load() != renewed[i] })
	}
	if one.state(a).Tables != 32 || two.state(alone).Tables != 32 {
		t.Error("the tables were not kept")
	}
	a.leave()
	b.leave()
	if n := one.keys(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	two.awaitCounts(map[*desk]int{alone: 32})
}

// checkForeign wants a cluster's keys to be closed to another cluster's user.
func checkForeign(t *testing.T, client *clientv3.Client, cluster string) {
	t.Helper()
	r := &Registry{client: client, cluster: cluster, tables: 32}
	for what, err := range map[string]error{
		"groups": second(r.Groups(t.Context())), "nodes": second(r.Nodes(t.Context(), "g")),
		"drain": r.Drain(t.Context(), "g", "x"), "undrain": r.Undrain(t.Context(), "g", "x"),
	} {
		if err == nil || !strings.Contains(err.Error(), "permission denied") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// containsOne reports whether the text contains one of the alternatives, "x|y".
func containsOne(text, alternatives string) bool {
	return slices.ContainsFunc(strings.Split(alternatives, "|"), func(want string) bool { return strings.Contains(text, want) })
}

func second[T any](_ T, err error) error { return err }

func TestDialSaysWhyASecureEtcdRefuses(t *testing.T) {
	t.Parallel()
	authority, stranger := devtest.NewAuthority(t), devtest.NewAuthority(t)
	etcd := startSecureEtcd(t, authority)
	good := trusting(t, authority, authority)
	etcdtest.WantPasswords(t, dialAs(t, EtcdConfig{Endpoints: []string{etcd.Endpoint()}, TLS: good}), "shop")
	plain := devtest.Etcd(t)
	for name, c := range map[string]struct {
		cfg  EtcdConfig
		want string
	}{
		"no TLS on our side":          {EtcdConfig{}, "it wants TLS, and the config gives none"},
		"no TLS on its side":          {EtcdConfig{Endpoints: []string{plain}, TLS: good}, "the config asks for TLS, and it speaks none"},
		"signed by somebody else":     {EtcdConfig{TLS: trusting(t, stranger, authority)}, "certificate signed by unknown authority"},
		"an https URL, and no CA":     {EtcdConfig{Endpoints: []string{"https://" + etcd.Endpoint()}}, "certificate signed by unknown authority"},
		"no certificate of ours":      {EtcdConfig{TLS: trusting(t, authority, nil)}, "tls: certificate required|tls: bad certificate"}, // as etcd's Go calls it
		"a certificate of a stranger": {EtcdConfig{TLS: trusting(t, authority, stranger)}, "remote error: tls: "},
		"a wrong password":            {EtcdConfig{TLS: good, Username: "shop", Password: "hunter2"}, "authentication failed, invalid user ID or password"},
		"an unknown user":             {EtcdConfig{TLS: good, Username: "nobody", Password: "hunter2"}, "authentication failed, invalid user ID or password"},
		"a user, and a wrong CA":      {EtcdConfig{TLS: trusting(t, stranger, authority), Username: "shop", Password: "pass-shop"}, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.cfg.Timeout = 3 * time.Second; c.cfg.Endpoints == nil {
				c.cfg.Endpoints = []string{etcd.Endpoint()}
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			client, err := Dial(ctx, c.cfg)
			if err == nil {
				_ = client.Close()
			}
			if err == nil || !strings.HasPrefix(err.Error(), "etcd "+c.cfg.Endpoints[0]+": ") || !containsOne(err.Error(), c.want) ||
				strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
