package webhook

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var quiet = log.New(io.Discard, "", 0)

// open makes a Sink with short time-outs to a receiver on this machine.
func open(t *testing.T, url string) *Sink {
	return openSink(t, SinkConfig{URL: url + "/hook?token=secret", Allow: append(loopback, "255.255.255.255/32"), Timeout: 12 * time.Second})
}

// trust has a Sink accept the certificate of a server.
func trust(s *Sink, of *httptest.Server) *Sink {
	if of.TLS != nil {
		for _, c := range []*http.Transport{s.client, s.fresh} {
			c.TLSClientConfig = of.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		}
	}
	return s
}

func to(url string) func(*testing.T) *Sink {
	return func(t *testing.T) *Sink { return open(t, url) }
}

func forbidden(url string) func(*testing.T) *Sink {
	return func(t *testing.T) *Sink { return openSink(t, SinkConfig{URL: url, Allow: []string{"10.0.0.0/8"}}) }
}

// toClosed sends to a port on which nobody listens.
func toClosed(url string) func(*testing.T) *Sink {
	return func(t *testing.T) *Sink {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		return open(t, url+port)
	}
}

// toFull sends to a listener that accepts nobody, and whose queue is full.
func toFull(t *testing.T) *Sink {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*unix.SockaddrInet4).Port)).String()
	for { // until one more has to wait
		c, err := net.DialTimeout("tcp", address, time.Second/2)
		if err != nil {
			return open(t, "http://"+address)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

// fromNowhere sends from an address that this machine does not have, as if it had no port left.
func fromNowhere(t *testing.T) *Sink {
	s := open(t, "http://127.0.0.1:1")
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}}
	s.client.DialContext = dialer.DialContext
	return s
}

// toTLS sends to a server with a changed configuration, by a name of its own or another.
func toTLS(trusted bool, host string, change func(*tls.Config)) func(*testing.T) *Sink {
	return func(t *testing.T) *Sink {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.Config.ErrorLog, server.TLS = quiet, &tls.Config{}
		if change != nil {
			change(server.TLS)
		}
		server.StartTLS()
		t.Cleanup(server.Close)
		url := server.URL
		if host != "" {
			url = strings.Replace(url, "127.0.0.1", host, 1)
		}
		s := open(t, url)
		if trusted {
			trust(s, server)
		}
		return s
	}
}

// expire gives a server a certificate of yesterday.
func expire(c *tls.Config) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(0, 0, -1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, _ := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	c.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
}

func toTLSless(t *testing.T) *Sink {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return open(t, strings.Replace(server.URL, "http:", "https:", 1))
}

// toRaw sends to a server that does one thing with a connection.
func toRaw(scheme string, serve func(net.Conn)) func(*testing.T) *Sink {
	return func(t *testing.T) *Sink { return open(t, scheme+"://"+listen(t, serve)) }
}

func hangUp(c net.Conn) { _ = c.Close() }

func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Write([]byte(text))
		_ = c.Close()
	}
}

// heard reads something before it goes on.
func heard(then func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Read(make([]byte, 64<<10))
		then(c)
	}
}

// toClosing sends over a new connection whose end is there before the request.
func toClosing(end func(net.Conn)) func(*testing.T) *Sink {
	return func(t *testing.T) *Sink {
		made, ended := make(chan struct{}), make(chan struct{})
		s := open(t, "http://"+listen(t, func(c net.Conn) {
			<-made
			end(c)
			ended <- struct{}{}
		}))
		transport := s.client
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			made <- struct{}{}
			<-ended
			return c, err
		}
		return s
	}
}

// toKept makes a Sink with a kept connection, which the receiver ends before the next request or after it, and no other can be made.
func toKept(after bool, end func(net.Conn)) func(*testing.T) *Sink {
	return func(t *testing.T) *Sink {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_ = l.Close()
			read := bufio.NewReader(c)
			request := func() {
				if r, err := http.ReadRequest(read); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
				}
			}
			request()
			_, _ = c.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
			if after {
				request()
			}
			end(c)
		}()
		s := open(t, "http://"+l.Addr().String())
		if err := s.Deliver(t.Context(), tasks(1))[0]; err != nil {
			t.Fatal(err)
		}
		if !after {
			<-ended // TestAReceiverMayCloseIdleConnections has the requests that cross the end
		}
		return s
	}
}

// frameOf makes one of HTTP/2.
func frameOf(kind byte, stream uint32, payload ...uint32) []byte {
	b := []byte{0, 0, byte(4 * len(payload)), kind, 0}
	b = binary.BigEndian.AppendUint32(b, stream)
	for _, p := range payload {
		b = binary.BigEndian.AppendUint32(b, p)
	}
	return b
}

func resetStream(code uint32) func(stream uint32) []byte {
	return func(stream uint32) []byte { return frameOf(3, stream, code) }
}

func goAway(code uint32) func(stream uint32) []byte {
	return func(uint32) []byte { return frameOf(7, 0, 0, code) }
}

// toHTTP2 sends to a server that answers each request with a frame. Without one it closes the connection.
func toHTTP2(answer func(stream uint32) []byte) func(*testing.T) *Sink {
	return func(t *testing.T) *Sink {
		of := httptest.NewUnstartedServer(nil)
		of.EnableHTTP2 = true
		of.StartTLS()
		t.Cleanup(of.Close)
		address := listen(t, func(plain net.Conn) {
			go func() {
				c := tls.Server(plain, of.TLS)
				defer c.Close()
				read := bufio.NewReader(c)
				_, _ = read.Discard(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
				_, _ = c.Write(frameOf(4, 0)) // SETTINGS
				for {
					head := make([]byte, 9)
					if _, err := io.ReadFull(read, head); err != nil {
						return
					}
					_, _ = read.Discard(int(head[0])<<16 | int(head[1])<<8 | int(head[2]))
					if head[3] != 0 { // DATA: the request is here
						continue
					}
					if answer == nil {
						return
					}
					_, _ = c.Write(answer(binary.BigEndian.Uint32(head[5:])))
				}
			}()
		})
		return trust(open(t, "https://"+address), of)
	}
}

// hasty does not wait for a silent server as long as the resolver would, whose lookup goes on after its caller has left.
type hasty struct{ *net.UDPConn }

func (h hasty) SetDeadline(time.Time) error {
	return h.UDPConn.SetDeadline(time.Now().Add(time.Second / 4))
}

// names answers for what ends in .test, by its first word.
func names() (stop func()) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
		if err != nil {
			return nil, err
		}
		return hasty{c.(*net.UDPConn)}, nil
	}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		query := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(query)
			if err != nil {
				return
			}
			if reply := named(query[:n]); reply != nil {
				_, _ = server.WriteTo(reply, from)
			}
		}
	}()
	return func() {
		_ = server.Close()
		<-ended
	}
}

// named answers a question to a server of names; nil: it is silent.
func named(query []byte) []byte {
	end, word := 12, string(query[13:13+query[12]])
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	question := query[12 : end+5]
	kind := binary.BigEndian.Uint16(query[end+1:])
	code, address := byte(3), []byte(nil)
	switch word {
	case "silent":
		return nil
	case "servfail":
		code = 2
	case "refused":
		code = 5
	case "empty":
		code = 0
	case "both":
		code = 0
		address = map[uint16][]byte{1: {127, 0, 0, 1}, 28: net.IPv6loopback}[kind]
	}
	reply := []byte{query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, byte(min(len(address), 1)), 0, 0, 0, 0}
	reply = append(reply, question...)
	if address != nil {
		reply = append(reply, 0xC0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 60, 0, byte(len(address)))
		reply = append(reply, address...)
	}
	return reply
}
