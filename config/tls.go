package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// TLS names PEM files of a connection. All "" is plain text, unless the address or
// the dsn itself asks for TLS.
type TLS struct {
	CA   string `yaml:"ca"`   // certificates of one or more authorities that sign the server's; "": the system's
	Cert string `yaml:"cert"` // this client's certificate, which needs key
	Key  string `yaml:"key"`
}

// lacksHalf reports whether one of cert and key is given without the other.
func (t TLS) lacksHalf() bool { return (t.Cert == "") != (t.Key == "") }

// load reads the files; nil if there are none. Its errors begin with key, such as
// "etcd.tls".
func (t TLS) load(key string) (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if cfg.RootCAs, err = t.authorities(key); err != nil {
		return nil, err
	}
	if t.Cert != "" {
		c := &renewed{cert: t.Cert, key: t.Key}
		if _, err := c.read(); err != nil {
			return nil, fmt.Errorf("%s.cert and key: %w", key, err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.get(), nil }
	}
	return cfg, nil
}

// authorities reads the file ca; nil if there is none.
func (t TLS) authorities(key string) (*x509.CertPool, error) {
	if t.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("%s.ca: %w", key, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s.ca: %s holds no certificate in PEM form", key, t.CA)
	}
	return pool, nil
}

// renewed is a pair of files that is read again for each connection, so that a
// certificate may be renewed while the process runs.
type renewed struct {
	cert, key string
	last      atomic.Pointer[tls.Certificate] // the last pair that could be read
}

func (c *renewed) read() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, err
	}
	c.last.Store(&pair)
	return &pair, nil
}

// get returns the last pair that could be read: one file may be written before the
// other.
func (c *renewed) get() *tls.Certificate {
	if pair, err := c.read(); err == nil {
		return pair
	}
	return c.last.Load()
}
