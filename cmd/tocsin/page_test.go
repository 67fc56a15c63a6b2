package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// statusSite has a node whose status page is guarded by these lines of node.status, and returns the page's address.
func statusSite(t *testing.T, lines string, flags ...string) (*site, string) {
	t.Helper()
	s, _ := callbackSite(t)
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"node:\n  status:\n"+lines)
	page := devtest.FreeAddress()
	s.serve("guarded", append(flags, "--listen", page)...)
	s.ownedBy(map[string]int{"guarded": 8})
	return s, page
}

// get asks a page and returns the code and the text of the answer; 0: there is none.
func get(t *testing.T, client *http.Client, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestTheStatusPageWantsItsTokenAndFollowsTheFile(t *testing.T) {
	t.Parallel()
	const first, second = "first-token-0123456789", "second-token-0123456789"
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first)
	profiles := devtest.FreeAddress()
	s, page := statusSite(t, "    token_file: "+file+"\n", "--pprof", profiles)
	codes := func(token string) (all []int) {
		for _, path := range []string{"/status", "/metrics", "/readyz", "/healthz"} {
			code, _ := get(t, http.DefaultClient, "http://"+page+path, token)
			all = append(all, code)
		}
		return all
	}
	expect := func(token, want string) {
		t.Helper()
		if got := fmt.Sprint(codes(token)); got != want {
			t.Errorf("with %q: %s, want %s", token, got, want)
		}
	}
	const open, closed = "[200 200 200 200]", "[401 401 200 200]"
	expect("Bearer "+first, open)
	expect("bearer "+first, open)
	expect("", closed)
	expect("Basic "+first, closed)
	expect("Bearer "+second, closed)
	if code, text := get(t, http.DefaultClient, "http://"+profiles+"/debug/pprof/", ""); code != 200 || !strings.Contains(text, "goroutine") {
		t.Errorf("profiles: %d %s", code, text)
	}
	for _, address := range []string{page + "/debug/pprof/", profiles + "/status"} {
		if code, _ := get(t, http.DefaultClient, "http://"+address, "Bearer "+first); code != 404 {
			t.Errorf("%s: %d", address, code)
		}
	}
	s.run("cluster", "nodes", "--ask", page).says(t, page)
	write(second)
	expect("Bearer "+second, open)
	expect("Bearer "+first, closed)
	write("short")
	expect("Bearer "+second, open)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect("Bearer "+second, open)
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn()))
	s.run("cluster", "nodes", "--ask", page).says(t, "the status page wants another token")
	if code, text := get(t, http.DefaultClient, "http://"+page+"/readyz", ""); code != 200 || text != "ok\n" {
		t.Errorf("/readyz says %d %q", code, text)
	}
}

// trusting is a client that makes a new connection for each request, and trusts an authority.
func trusting(t *testing.T, authority *devtest.Authority) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(authority.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

func TestTheStatusPageHasTLSAndFollowsItsFiles(t *testing.T) {
	t.Parallel()
	authority, next := devtest.NewAuthority(t), devtest.NewAuthority(t)
	cert, key := authority.Issue(t, "page")
	lines := fmt.Sprintf("    token: ${"+envStatus+"}\n    tls: {cert: %s, key: %s, ca: %s}\n", cert, key, authority.File)
	s, page := statusSite(t, lines)
	const token = "Bearer " + statusToken
	status := func(a *devtest.Authority) int {
		code, _ := get(t, trusting(t, a), "https://"+page+"/status", token)
		return code
	}
	if old, renewed := status(authority), status(next); old != 200 || renewed != 0 {
		t.Errorf("codes %d and %d", old, renewed)
	}
	if code, text := get(t, http.DefaultClient, "http://"+page+"/status", token); code != 400 {
		t.Errorf("in plain text: %d %s", code, text)
	}
	s.run("cluster", "nodes", "--ask", page).says(t, page)
	newCert, newKey := next.Issue(t, "renewed")
	if err := errors.Join(os.Rename(newCert, cert), os.Rename(newKey, key)); err != nil {
		t.Fatal(err)
	}
	if old, renewed := status(authority), status(next); old != 0 || renewed != 200 {
		t.Errorf("after the files have changed: codes %d and %d", old, renewed)
	}
	s.run("cluster", "nodes", "--ask", page).says(t, "certificate signed by unknown authority")
}

// TestAPageIsNotReadByRebinding: a website whose name leads to this machine asks with its own name.
func TestAPageIsNotReadByRebinding(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]func() string{"without a token": nil, "with one": func() string { return "" }} {
		p, err := listen("127.0.0.1:0", guard{token: token})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.serve(ctx, pprofMux()) }()
		port := p.listener.Addr().(*net.TCPAddr).Port
		for host, want := range map[string]int{
			"evil.example": http.StatusMisdirectedRequest, fmt.Sprint("evil.example:", port): http.StatusMisdirectedRequest,
			"localhost": http.StatusOK, fmt.Sprint("127.0.0.1:", port): http.StatusOK, "[::1]": http.StatusOK, fmt.Sprint("LocalHost:", port): http.StatusOK,
		} {
			if token != nil {
				want = http.StatusOK // a website does not have the token
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/cmdline", port), nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host, req.Close = host, true
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s, for %s: %d, want %d", name, host, resp.StatusCode, want)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
