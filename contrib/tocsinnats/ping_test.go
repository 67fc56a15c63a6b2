package tocsinnats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/sink"
)

// rights are the settings of a broker with users, where shop may publish to a subject.
func rights(subject string) string {
	return fmt.Sprintf(`authorization: {users: [
		{user: admin, password: admin}
		{user: shop, password: secret, permissions: {publish: [%q, "$JS.API.STREAM.NAMES", "$SYS.REQ.USER.INFO"], subscribe: "_INBOX.>"}}
		{user: strict, password: secret, permissions: {publish: "orders.*", subscribe: "_INBOX.>"}}
		{user: barred, password: secret, permissions: {publish: {deny: "orders.*"}}}
		{user: deaf, password: secret, permissions: {publish: ">", subscribe: {deny: "_INBOX.>"}}}
		{nkey: %s}
	]}`, subject, public)
}

var asAdmin = nats.UserInfo("admin", "admin")

func TestEachUserCanDoWhatItMay(t *testing.T) {
	t.Parallel()
	b := newBroker(t, rights("orders.paid"))
	js := b.admin(t, asAdmin)
	create(t, js, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}})
	for name, c := range map[string]struct {
		user, password, mechanism, topic string
		delivered, ping                  string // a part of the error; "": none
	}{
		"a subject that it may publish to":     {"shop", "secret", "", "orders.paid", "", ""},
		"one that it may not":                  {"shop", "secret", "", "orders.late", "may not publish to subject orders.late", "may not publish to subject orders.late"},
		"one that no stream has":               {"admin", "admin", "", "bills", "no stream has subject bills", "no stream has subject bills"},
		"a user that may ask nothing":          {"strict", "secret", "", "orders.paid", "", ""},
		"a user to whom a subject is denied":   {"barred", "secret", "", "orders.paid", "may not publish to subject orders.paid", "may not publish to subject orders.paid"},
		"a user that may not hear of acks":     {"deaf", "secret", "", "orders.paid", "allow it to subscribe to _INBOX.>", "allow it to subscribe to _INBOX.>"},
		"an nkey":                              {public, seed, "nkey", "orders.paid", "", ""},
		"a wrong password":                     {"shop", "secret2", "", "orders.paid", "refuses the user: check username", "refuses the user: check username"},
		"nobody":                               {"", "", "", "orders.paid", "refuses the user: check username", "refuses the user: check username"},
		"a subject that depends on the task":   {"admin", "admin", "", "{header.to}", "", ""},
		"the same for a user that may nothing": {"shop", "secret", "", "{header.to}", "may not publish to subject orders.late", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := b.config()
			cfg.Username, cfg.Password, cfg.Mechanism = c.user, c.password, c.mechanism
			m, to := connect(t, cfg, c.topic)
			for range 2 {
				wantLine(t, m.Ping(t.Context(), policy(c.topic)), c.ping)
				err := deliver(t, to, task(t, "x", map[string]string{"to": "orders.late"}))[0]
				if wantLine(t, err, c.delivered); err != nil && (outcome(err) == unavailable) == strings.Contains(c.topic, "{") {
					t.Error(err)
				}
			}
		})
	}
}

func TestOneForbiddenSubjectLeavesTheOthers(t *testing.T) {
	t.Parallel()
	b := newBroker(t, rights("orders.paid"))
	s := create(t, b.admin(t, asAdmin), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}})
	cfg := b.config()
	cfg.Username, cfg.Password = "shop", "secret"
	_, to := connect(t, cfg, "orders.{header.to}")
	paid, late := map[string]string{"to": "paid"}, map[string]string{"to": "late"}
	errs := deliver(t, to, task(t, "1", paid), task(t, "2", late), task(t, "3", paid), task(t, "4", late))
	for i, want := range []string{taken, failed, taken, failed} {
		if got := outcome(errs[i]); got != want {
			t.Errorf("task %d: %v", i, errs[i])
		}
	}
	if n := count(t, s); n != 2 {
		t.Errorf("%d messages", n)
	}
}

func TestARightThatIsGivenLaterIsEnough(t *testing.T) {
	t.Parallel()
	b := newBroker(t, rights("bills"))
	create(t, b.admin(t, asAdmin), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}})
	cfg := b.config()
	cfg.Username, cfg.Password = "shop", "secret"
	_, to := connect(t, cfg, "orders.paid")
	sent := task(t, "x", nil)
	wantLine(t, deliver(t, to, sent)[0], "may not publish")
	text, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text[:len(text)-len(rights("bills"))-1], rights("orders.*")...)
	if err := os.WriteFile(b.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	b.signal(t, syscall.SIGHUP)
	again(t, to, []tocsin.Info{sent})
}

func TestATokenAndTLS(t *testing.T) {
	t.Parallel()
	authority, stranger := devtest.NewAuthority(t), devtest.NewAuthority(t)
	cert, key := authority.Issue(t, "nats")
	b := newBroker(t, fmt.Sprintf("authorization: {token: secret}\ntls: {cert_file: %q, key_file: %q}", cert, key))
	create(t, b.admin(t, nats.Token("secret"), nats.RootCAs(authority.File)), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	for name, c := range map[string]struct {
		ca, token string
		want      string
	}{
		"both right":           {authority.File, "secret", ""},
		"a wrong token":        {authority.File, "secret2", "refuses the user"},
		"another authority":    {stranger.File, "secret", "certificate signed by unknown authority"},
		"plain text":           {"", "secret", "certificate"},
		"none of the token":    {authority.File, "", "refuses the user"},
		"neither, and no user": {"", "", "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := b.config()
			if c.token != "" {
				cfg.Username, cfg.Password, cfg.Mechanism = "any", c.token, "token"
			}
			if c.ca != "" {
				cfg.TLS = &tls.Config{RootCAs: pool(t, c.ca)}
			}
			m, to := connect(t, cfg, "orders")
			wantLine(t, m.Ping(t.Context(), policy("orders")), c.want)
			wantLine(t, deliver(t, to, task(t, "x", nil))[0], c.want)
		})
	}
}

// pool reads the certificate of an authority.
func pool(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := x509.NewCertPool()
	if !all.AppendCertsFromPEM(text) {
		t.Fatal("no certificate")
	}
	return all
}

func TestAServerWithoutTLSOrJetStream(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "accounts: {SHOP: {users: [{user: shop, password: secret}]}}\nno_auth_user: shop")
	m, to := connect(t, b.config(), "orders")
	wantLine(t, m.Ping(t.Context(), policy("orders")), "JetStream is not enabled")
	wantLine(t, deliver(t, to, task(t, "x", nil))[0], "no stream has subject orders")
	cfg := b.config()
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	_, to = connect(t, cfg, "orders")
	wantLine(t, deliver(t, to, task(t, "x", nil))[0], "secure connection not available; leave out tls of sink ")
}

func TestPingOfAServerThatDoesNotAnswerEndsInTime(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "")
	create(t, b.admin(t), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	m, _ := connect(t, b.config(), "orders")
	wantLine(t, m.Ping(t.Context(), policy("orders")), "")
	b.freeze(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Ping(ctx, policy("orders")); !sink.IsUnavailable(err) {
		t.Error(err)
	}
}
