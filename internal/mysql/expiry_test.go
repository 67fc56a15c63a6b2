package mysql_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// pair makes a certificate of the authority, and tells when it expires.
func pair(t *testing.T, a *devtest.Authority, name string) (tls.Certificate, time.Time) {
	t.Helper()
	cert, key := a.Issue(t, name)
	loaded, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(loaded.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return loaded, leaf.NotAfter
}

// shake has a client and a server greet each other, and returns the client's error.
func shake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, conn) // greets, and waits until the client closes
			_ = conn.Close()
		}
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), client)
	if err == nil {
		_ = conn.Close()
	}
	_ = listener.Close()
	<-done
	return err
}

func TestTheFirstCertificateToExpireCounts(t *testing.T) {
	t.Parallel()
	a := devtest.NewAuthority(t)
	pem, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	ofServer, serverEnds := pair(t, a, "server")
	ofClient, _ := pair(t, a, "client")
	server := &tls.Config{Certificates: []tls.Certificate{ofServer}, ClientAuth: tls.RequestClientCert}
	asked := 0
	client := &tls.Config{
		RootCAs: roots, ServerName: "127.0.0.1",
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { asked++; return &ofClient, nil },
	}

	var f mysql.Expiry
	watched := f.Watch(client)
	if !f.At().IsZero() {
		t.Errorf("%s before any connection", f.At())
	}
	if err := shake(t, server, watched); err != nil {
		t.Fatal(err)
	}
	if asked != 1 || f.At().IsZero() || f.At().After(serverEnds) {
		t.Errorf("expires at %s, want at most %s; the client's certificate was asked for %d times", f.At(), serverEnds, asked)
	}
	client.VerifyConnection = func(tls.ConnectionState) error { return errors.New("not this one") }
	if err := shake(t, server, f.Watch(client)); err == nil {
		t.Error("what the config itself verifies does not count")
	}
}

func TestACertificateOfThisSideCountsBeforeAConnection(t *testing.T) {
	t.Parallel()
	ours, ends := pair(t, devtest.NewAuthority(t), "client")
	var f mysql.Expiry
	if f.Watch(&tls.Config{Certificates: []tls.Certificate{ours}}); f.At().Unix() != ends.Unix() {
		t.Errorf("expires at %s, want %s", f.At(), ends)
	}
	if f.Watch(nil) != nil {
		t.Error("plain text became TLS")
	}
}
