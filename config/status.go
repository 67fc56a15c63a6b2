package config

import (
	"crypto/tls"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
)

// tokenForm is what fits into an Authorization header, and takes long to guess.
var tokenForm = regexp.MustCompile(`^[!-~]{16,256}$`)

// tokenWords describes tokenForm.
const tokenWords = "16 to 256 visible ASCII characters without spaces"

// TokenSource returns the function that returns the present token. It reads token_file for the first time; nil: the page
// has no token. If the file can't be read later, or holds no token, the last one stays.
func (s StatusPage) TokenSource() (func() string, error) {
	if s.TokenFile == "" {
		if s.Token == "" {
			return nil, nil
		}
		return func() string { return s.Token }, nil
	}
	first, err := s.readToken()
	if err != nil {
		return nil, err
	}
	var last atomic.Value
	last.Store(first)
	return func() string {
		if token, err := s.readToken(); err == nil {
			last.Store(token)
		}
		return last.Load().(string)
	}, nil
}

func (s StatusPage) readToken() (string, error) {
	text, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("node.status.token_file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if !tokenForm.MatchString(token) {
		return "", fmt.Errorf("node.status.token_file: %s holds no token: want %s", s.TokenFile, tokenWords)
	}
	return token, nil
}

// ServerTLS reads the page's certificate, and again for each connection; nil: the page is plain text.
func (s StatusPage) ServerTLS() (*tls.Config, error) { return s.TLS.serve("node.status.tls") }

// serve reads the certificate of a listener, and again for each connection; nil: it is plain text. key names the files in
// messages.
func (t TLS) serve(key string) (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	c := &renewed{cert: t.Cert, key: t.Key}
	if _, err := c.read(); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil },
	}, nil
}

// ClientTLS is for those who ask the page; nil: it is plain text.
func (s StatusPage) ClientTLS() (*tls.Config, error) {
	if s.TLS.Cert == "" {
		return nil, nil
	}
	pool, err := s.TLS.authorities("node.status.tls")
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, err
}
