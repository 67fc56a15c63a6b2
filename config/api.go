package config

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/yamlfile"
)

// API is the HTTP API of tocsin serve. The zero value: it is not served.
type API struct {
	Listen     string           `yaml:"listen"`      // host:port; "": none. Without tokens a loopback address
	Tokens     []apitoken.Token `yaml:"tokens"`      // as `tocsin token new` prints them; []: no token is valid; no such key, and no tokens_file: all who reach the address may do everything
	TokensFile string           `yaml:"tokens_file"` // YAML file with the key tokens instead, read again when it changes; absolute
	CORS       []string         `yaml:"cors"`        // origins of web pages that may call the API, https://admin.example.com; none: no page may
	Limits     APILimits        `yaml:"limits"`
	TLS        TLS              `yaml:"tls"` // cert and key, read again for each connection; none: plain text
}

// APILimits bounds what requests may cost.
type APILimits struct {
	BodyKiB int              `yaml:"body_kib"` // of a request's body, 1 to 65536; 0: 1024
	Rate    float64          `yaml:"rate"`     // requests a second of each token, 0.1 to 1000000; 0: 1000. As many may come at once
	Timeout biztype.Duration `yaml:"timeout"`  // of a request, 1s to 10m; 0: 30s
}

// Bounds and defaults of node.api.limits.
const (
	defaultBodyKiB    = 1024
	maxBodyKiB        = 65536
	defaultRate       = 1000
	minRate           = 0.1
	maxRate           = 1_000_000
	defaultAPITimeout = 30 * time.Second
	minAPITimeout     = time.Second
	maxAPITimeout     = 10 * time.Minute
)

func (l APILimits) withDefaults() APILimits {
	fill(&l.BodyKiB, defaultBodyKiB)
	fill(&l.Rate, defaultRate)
	fill(&l.Timeout, biztype.Duration(defaultAPITimeout))
	return l
}

// HasTokens reports whether the file names tokens, be it in another file. An empty list allows nobody.
func (a API) HasTokens() bool { return a.Tokens != nil || a.TokensFile != "" }

// URL is that of the API at an address; "" if there is none.
func (a API) URL(listen string) string {
	switch {
	case listen == "" || listen == Off:
		return ""
	case a.TLS.Cert != "":
		return "https://" + listen
	}
	return "http://" + listen
}

// LoopbackOnly returns why the API can't listen on an address: without tokens everybody who reaches it may do everything.
func (a API) LoopbackOnly(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	switch ip := net.ParseIP(host); {
	case err != nil || listenError(listen) != nil:
		return fmt.Errorf("address of the API %q: want host:port, such as 127.0.0.1:8481", listen)
	case a.HasTokens(), host == "localhost", ip != nil && ip.IsLoopback():
		return nil
	}
	return fmt.Errorf("address of the API %q: without tokens it must be a loopback address, such as 127.0.0.1:8481: make a token with `tocsin token new`", listen)
}

// TokenSource returns the function that returns the present tokens. It reads tokens_file for the first time; nil: the API has
// no tokens. If the file can't be read later, or is wrong, its last tokens stay, and told is called with the reason, once for
// each state of the file.
func (a API) TokenSource(told func(error)) (func() apitoken.Set, error) {
	if a.TokensFile == "" {
		set, err := apitoken.NewSet(a.Tokens)
		if !a.HasTokens() || err != nil {
			return nil, err
		}
		return func() apitoken.Set { return set }, nil
	}
	f := &tokensFile{path: a.TokensFile, told: told}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(); err != nil {
		return nil, err
	}
	return f.current, nil
}

// tokensFile is a file of tokens that may change.
type tokensFile struct {
	path string
	told func(error)

	mu   sync.Mutex
	text []byte // as it was read last; its time and size may stay when it is replaced
	err  error  // of reading it
	last apitoken.Set
}

// current returns the tokens, after it has read the file.
func (f *tokensFile) current() apitoken.Set {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(); err != nil && f.told != nil {
		f.told(err)
	}
	return f.last
}

// read reads the file. It returns what is wrong with it, once for each state of the file. Callers hold mu.
func (f *tokensFile) read() error {
	text, err := os.ReadFile(f.path)
	if bytes.Equal(text, f.text) && (err == nil) == (f.err == nil) && (f.last != nil || f.err != nil) {
		return nil
	}
	if f.text, f.err = text, err; err != nil {
		return fmt.Errorf("node.api.tokens_file: %w", err)
	}
	source, err := yamlfile.Parse(text, f.path)
	if err != nil {
		return err
	}
	var content struct {
		Tokens []apitoken.Token `yaml:"tokens"`
	}
	if err := source.Decode(&content); err != nil {
		return err
	}
	set, err := apitoken.NewSet(content.Tokens)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.last = set
	return nil
}

// ServerTLS reads the API's certificate, and again for each connection; nil: the API is plain text.
func (a API) ServerTLS() (*tls.Config, error) { return a.TLS.serve("node.api.tls") }

// api checks node.api.
func (c *check) api(a API) {
	const path = "node.api"
	if a.Listen != "" && a.Listen != Off {
		c.Note(path+".listen", a.LoopbackOnly(a.Listen))
	}
	c.Refuse(a.Tokens != nil && a.TokensFile != "", path+".tokens_file", "node.api has tokens too: use one of them")
	c.Refuse(a.TokensFile != "" && !filepath.IsAbs(a.TokensFile), path+".tokens_file", "node.api.tokens_file %q: want an absolute path", a.TokensFile)
	before := len(c.Found)
	for i, t := range a.Tokens {
		c.Note(fmt.Sprintf("%s.tokens[%d]", path, i), t.Check())
	}
	if _, err := apitoken.NewSet(a.Tokens); len(c.Found) == before {
		c.Note(path+".tokens", err)
	}
	for _, origin := range a.CORS {
		c.Refuse(!isOrigin(origin), path+".cors", "node.api.cors %q: want an origin, such as https://admin.example.com", origin)
	}
	l := a.Limits
	c.Refuse(l.BodyKiB < 1 || l.BodyKiB > maxBodyKiB, path+".limits.body_kib", "node.api.limits.body_kib %d: use 1 to %d", l.BodyKiB, maxBodyKiB)
	c.Refuse(!(l.Rate >= minRate && l.Rate <= maxRate), path+".limits.rate", "node.api.limits.rate %.15g: use %g to %d", l.Rate, minRate, maxRate)
	c.Between(path+".limits.timeout", l.Timeout.D(), minAPITimeout, maxAPITimeout)
	c.Refuse(a.TLS.lacksHalf(), path+".tls", "node.api.tls needs both cert and key, or neither")
	c.Refuse(a.TLS.CA != "", path+".tls", "node.api.tls: ca is not used: callers keep it")
}

// isOrigin reports whether the text is what a browser sends as Origin.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Scheme+"://"+u.Host == text
}
