package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/tocsinhq/tocsin/assign"
)

// EtcdConfig says where etcd is, and reads the files of etcd.tls. No endpoints:
// the file names none.
func (f File) EtcdConfig() (assign.EtcdConfig, error) {
	e := f.Etcd
	cfg := assign.EtcdConfig{Endpoints: e.Endpoints, Username: e.Username, Password: e.Password}
	if e.TLS == (TLS{}) {
		return cfg, nil
	}
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if e.TLS.CA != "" {
		pem, err := os.ReadFile(e.TLS.CA)
		if err != nil {
			return cfg, fmt.Errorf("etcd.tls.ca: %w", err)
		}
		cfg.TLS.RootCAs = x509.NewCertPool()
		if !cfg.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return cfg, fmt.Errorf("etcd.tls.ca: %s holds no certificate in PEM form", e.TLS.CA)
		}
	}
	if e.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(e.TLS.Cert, e.TLS.Key)
		if err != nil {
			return cfg, fmt.Errorf("etcd.tls.cert and key: %w", err)
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
