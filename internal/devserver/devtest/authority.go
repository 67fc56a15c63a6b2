package devtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for one test.
type Authority struct {
	File string // its own certificate, PEM

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that nobody knows yet. Its files go when the test ends.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir(), key: newKey(tb)}
	a.cert = template("test authority")
	a.cert.IsCA, a.cert.BasicConstraintsValid, a.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	a.File = a.write(tb, "authority.pem", "CERTIFICATE", der)
	return a
}

// Issue makes the PEM files of a certificate and its key, for a server on 127.0.0.1 and for a client.
func (a *Authority) Issue(tb testing.TB, name string) (cert, key string) {
	tb.Helper()
	return a.issue(tb, template(name))
}

// IssueExpired is Issue for a certificate that expired a minute ago.
func (a *Authority) IssueExpired(tb testing.TB, name string) (cert, key string) {
	tb.Helper()
	wanted := template(name)
	wanted.NotAfter = time.Now().Add(-time.Minute)
	return a.issue(tb, wanted)
}

func (a *Authority) issue(tb testing.TB, wanted *x509.Certificate) (cert, key string) {
	tb.Helper()
	own, name := newKey(tb), wanted.Subject.CommonName
	wanted.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	wanted.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, wanted, a.cert, own.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		tb.Fatal(err)
	}
	return a.write(tb, name+".pem", "CERTIFICATE", der), a.write(tb, name+".key", "EC PRIVATE KEY", secret)
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

func (a *Authority) write(tb testing.TB, name, kind string, der []byte) string {
	tb.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}
