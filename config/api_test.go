package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// apiText is a config with node.api.
func apiText(api string) []byte {
	return []byte("layout: {databases: 1, tables: 1}\nservers:\n  - dsn: root@tcp(h:1)/\nnode:\n  api:\n    " + strings.ReplaceAll(api, "\n", "\n    ") + "\n")
}

const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestTheAPIHasTokensAndLimits(t *testing.T) {
	t.Parallel()
	f := parsed(t, apiText(`listen: 0.0.0.0:8481
cors: [https://admin.example.com]
limits: {rate: 5}
tokens:
  - {id: abcdefgh, name: shop, sha256: `+sum+`, scope: write, biz_types: [order.*], expires: 2027-01-01T00:00:00Z}`))
	source, err := f.Node.API.TokenSource(nil)
	if err != nil || source == nil {
		t.Fatal(err)
	}
	token := source()["abcdefgh"]
	if token.Scope != apitoken.Write || !token.Expires.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) || !token.Sees("order.close") {
		t.Errorf("%+v", token)
	}
	if l := f.Node.API.Limits; l.Rate != 5 || l.BodyKiB != 1024 || l.Timeout.D() != 30*time.Second {
		t.Errorf("%+v", l)
	}
}

func TestAWrongAPIIsRefused(t *testing.T) {
	t.Parallel()
	token := "- {id: abcdefgh, name: shop, sha256: " + sum + ", scope: write, biz_types: [order.*]}"
	for api, want := range map[string]string{
		"listen: 0.0.0.0:8481":       `f.yaml:6: address of the API "0.0.0.0:8481": without tokens it must be a loopback address, such as 127.0.0.1:8481: make a token with ` + "`tocsin token new`",
		"listen: :8481":              "without tokens it must be a loopback address",
		"listen: localhost":          `f.yaml:6: address of the API "localhost": want host:port, such as 127.0.0.1:8481`,
		"limits: {body_kib: 100000}": "f.yaml:6: node.api.limits.body_kib 100000: use 1 to 65536",
		"limits: {rate: 0.01}":       "f.yaml:6: node.api.limits.rate 0.01: use 0.1 to 1000000",
		"limits: {timeout: 1h}":      "f.yaml:6: node.api.limits.timeout 1h0m0s: use 1s to 10m0s",
		"cors: ['*']":                `f.yaml:6: node.api.cors "*": want an origin, such as https://admin.example.com`,
		"cors: [https://a.b/x]":      `node.api.cors "https://a.b/x": want an origin`,
		"tls: {cert: /x}":            "f.yaml:6: node.api.tls needs both cert and key, or neither",
		"tokens_file: tokens.yaml":   `f.yaml:6: node.api.tokens_file "tokens.yaml": want an absolute path`,
		"tokens:\n  - {id: abcdefgh, name: shop, sha256: 12, scope: write, biz_types: [order.*]}": "f.yaml:7: token abcdefgh: sha256: want 64 hexadecimal digits, as `tocsin token new` prints them",
		"tokens:\n  " + token + "\n  " + token:                                                    "f.yaml:7: token abcdefgh: the id stands here twice",
		"tokens:":                                                                                 "f.yaml:6: node.api.tokens has no value: write [] if no token is to be valid",
		"tokens: null":                                                                            "f.yaml:6: node.api.tokens has no value",
		"tokens: ~\nlisten: 127.0.0.1:8481":                                                       "f.yaml:6: node.api.tokens has no value",
		"tokens_file: /t.yaml\ntokens:\n  " + token:                                               "f.yaml:6: node.api has tokens too: use one of them",
	} {
		_, err := Parse(apiText(api), "f.yaml", env)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\ngot  %v\nwant %s", api, err, want)
		}
	}
}

// The file may be replaced by one of the same size and time, as a copy that keeps times does.
func TestATokensFileIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	path, at := filepath.Join(t.TempDir(), "tokens.yaml"), time.Now().Add(-time.Hour)
	write := func(text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	list := func(id string) string {
		return "tokens:\n  - {id: " + id + ", name: shop, sha256: " + sum + ", scope: write, biz_types: [order.*]}\n"
	}
	var told []string
	a := API{TokensFile: path}
	if _, err := a.TokenSource(nil); err == nil {
		t.Error("a file that is not there")
	}
	write(list("aaaaaaaa"))
	source, err := a.TokenSource(func(err error) { told = append(told, err.Error()) })
	if err != nil || source()["aaaaaaaa"].Name != "shop" {
		t.Fatal(err)
	}
	write(list("aaaaaaab"))
	if set := source(); len(set) != 1 || set["aaaaaaab"].Name != "shop" {
		t.Errorf("after a change: %+v", set)
	}
	write("tokens: [{}]\n")
	for range 3 {
		if set := source(); set["aaaaaaab"].Name != "shop" {
			t.Errorf("with a wrong file: %+v", set)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if set := source(); set["aaaaaaab"].Name != "shop" {
			t.Errorf("without a file: %+v", set)
		}
	}
	if len(told) != 2 || !strings.Contains(told[0], "want 8 characters") {
		t.Errorf("told %q", told)
	}
	write("tokens: []\n")
	if set := source(); set == nil || len(set) != 0 {
		t.Errorf("all are revoked: %+v", set)
	}
}

// An empty list of tokens allows nobody; it does not open the API.
func TestAnEmptyListOfTokensAllowsNobody(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"tokens: []", "listen: 0.0.0.0:8481\ntokens: []"} {
		f, err := Parse(apiText(api), "f.yaml", env)
		if err != nil {
			t.Errorf("%q: %v", api, err)
			continue
		}
		source, err := f.Node.API.TokenSource(nil)
		if err != nil || source == nil || len(source()) != 0 {
			t.Errorf("%q: tokens %v, %v", api, source != nil, err)
		}
	}
}
