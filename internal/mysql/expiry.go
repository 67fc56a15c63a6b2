package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
	"time"
)

// Expiry is when the first of the certificates that connections use expires: those that the other side showed and the one of
// this side, as of the last connection. The zero Expiry has seen none. Safe for concurrent use.
type Expiry struct{ theirs, ours atomic.Int64 } // in Unix time; 0: none seen

// At returns the time; the zero time if no certificate was seen.
func (f *Expiry) At() time.Time {
	theirs, ours := f.theirs.Load(), f.ours.Load()
	if theirs == 0 || ours != 0 && ours < theirs {
		theirs = ours
	}
	if theirs == 0 {
		return time.Time{}
	}
	return time.Unix(theirs, 0)
}

// Watch returns a copy of a client's cfg that notes the certificates of each new connection; nil if cfg is nil.
func (f *Expiry) Watch(cfg *tls.Config) *tls.Config {
	if cfg == nil {
		return nil
	}
	watched := cfg.Clone()
	for i := range cfg.Certificates {
		f.noteOurs(&cfg.Certificates[i])
	}
	if get := cfg.GetClientCertificate; get != nil {
		watched.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := get(asked)
			f.noteOurs(cert)
			return cert, err
		}
	}
	watched.VerifyConnection = func(state tls.ConnectionState) error {
		f.theirs.Store(earliest(state.PeerCertificates))
		if cfg.VerifyConnection == nil {
			return nil
		}
		return cfg.VerifyConnection(state)
	}
	return watched
}

// noteOurs notes the certificate of this side; cert may be nil or empty.
func (f *Expiry) noteOurs(cert *tls.Certificate) {
	if cert == nil || len(cert.Certificate) == 0 {
		return
	}
	if leaf, err := x509.ParseCertificate(cert.Certificate[0]); err == nil {
		f.ours.Store(leaf.NotAfter.Unix())
	}
}

// earliest returns when the first of the certificates expires, in Unix time; 0 if there are none.
func earliest(all []*x509.Certificate) (first int64) {
	for _, cert := range all {
		if at := cert.NotAfter.Unix(); first == 0 || at < first {
			first = at
		}
	}
	return first
}
