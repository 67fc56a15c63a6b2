package loop

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

// Way is what is wrong on the way to a server, be it etcd, a database or a message broker, as what to do about it. What a server says in its
// own protocol is judged where that is spoken.
type Way string

// Each is one clause.
const (
	WaySilent   Way = "start it, or correct {address}" // nothing listens there, or it is any other fault
	WayRoute    Way = "let this host reach it (route, firewall), or correct {address}"
	WayName     Way = "correct the host name in {address}, or the name service of this host"
	WayForm     Way = "correct {address}: an address is host:port"
	WayHere     Way = "see to this host: it opens no connection"
	WayClosed   Way = "start {what} behind what answers there, or correct {address}; some close the connection if the user or {tls} is wrong"
	WayUser     Way = "give the user access, or correct {address}; a user that needs TLS is refused like one with a wrong password"
	WayRefused  Way = "it answers, and refuses connections or statements: mend what it says"
	WayPlain    Way = "leave out {tls}, or have {what} speak TLS" // we speak TLS, and it does not
	WaySecure   Way = "set {tls}: {what} speaks TLS"
	WayCA       Way = "give {tls} the authority that signed the certificate of {what}"
	WayHostname Way = "use a name of its certificate in {address}"
	WayInvalid  Way = "give {what} a certificate that is valid now and for servers, or correct the clock of this host"
	WayRoots    Way = "install the certificates of authorities on this host, or give {tls} an authority"
	WayOurs     Way = "give {tls} a valid certificate and key of an authority that {what} trusts"
	WayVersions Way = "compare the versions and ciphers of TLS that {what} allows with those of this program"
	WayAlert    Way = "see the log of {what} for the fault of TLS, and correct {tls}"
)

// Target is a server by the words for it.
type Target struct {
	What    string // "etcd"
	Address string // what says where it is: "etcd.endpoints in the config"
	TLS     string // the setting of TLS: "etcd.tls in the config"
}

// Broker is a message broker, by the part of the config that names it: "sink orders".
func Broker(what, of string) Target {
	return Target{what, "addresses of " + of + " in the config", "tls of " + of + " in the config"}
}

// Do says what to do.
func (t Target) Do(about Way) string {
	return strings.NewReplacer("{what}", t.What, "{address}", t.Address, "{tls}", t.TLS).Replace(string(about))
}

// Advice says what to do about an error on the way.
func (t Target) Advice(err error) string { return t.Do(WayOf(err)) }

// OfTLS reports whether the two sides do not agree on TLS: a certificate, a version, or whether there is any.
func (w Way) OfTLS() bool {
	return slices.Contains([]Way{WayPlain, WaySecure, WayCA, WayHostname, WayInvalid, WayRoots, WayOurs, WayVersions, WayAlert}, w)
}

// alerts are those with which a server answers our side of TLS. Others are WayAlert.
var alerts = map[Way][]string{
	WayOurs: {"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate",
		"unknown certificate authority", "access denied", "certificate required"},
	WayVersions: {"handshake failure", "protocol version not supported", "insufficient security level", "inappropriate fallback", "missing extension", "unsupported extension", "no application protocol"},
	WayHostname: {"unrecognized name"},
}

// The errors of system calls on a connection, and of its end. Others are WaySilent.
var (
	route  = []error{syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.ETIMEDOUT, syscall.EACCES, syscall.EPERM, syscall.ENOPROTOOPT}
	here   = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EAGAIN, syscall.EAFNOSUPPORT, syscall.EPROTONOSUPPORT}
	closed = []error{syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED, syscall.ENETRESET, syscall.ENOTCONN, syscall.ESHUTDOWN, io.EOF, io.ErrUnexpectedEOF}
)

// WayOf returns what is wrong on the way, by an error of net, crypto/tls or crypto/x509, or by the SQLSTATE that a database has sent.
func WayOf(err error) Way {
	var op *net.OpError
	var url *url.Error
	var said interface{ SQLState() string }
	switch {
	case errors.As(err, &said) && strings.HasPrefix(said.SQLState(), "28"): // invalid authorization
		return WayUser
	case said != nil:
		return WayRefused
	case errors.As(err, &op) && op.Op == "remote error":
		for w, words := range alerts {
			if slices.Contains(words, strings.TrimPrefix(op.Err.Error(), "tls: ")) {
				return w
			}
		}
		return WayAlert
	case is[tls.RecordHeaderError](err):
		return WayPlain
	case is[x509.HostnameError](err):
		return WayHostname
	case is[x509.UnknownAuthorityError](err):
		return WayCA
	case is[x509.SystemRootsError](err):
		return WayRoots
	case is[x509.CertificateInvalidError](err), is[x509.InsecureAlgorithmError](err), is[x509.ConstraintViolationError](err), is[x509.UnhandledCriticalExtension](err),
		is[*tls.CertificateVerificationError](err):
		return WayInvalid
	case is[*net.AddrError](err), is[net.InvalidAddrError](err), is[net.UnknownNetworkError](err), is[*net.ParseError](err), errors.As(err, &url) && url.Op == "parse":
		return WayForm
	case is[*net.DNSError](err):
		return WayName
	case isOneOf(err, here...), op != nil && op.Net == "unix" && isOneOf(err, syscall.EACCES, syscall.EPERM):
		return WayHere
	case isOneOf(err, route...), op != nil && op.Op == "dial" && op.Timeout():
		return WayRoute
	case isOneOf(err, closed...):
		return WayClosed
	case err != nil && strings.HasSuffix(err.Error(), "server refused TLS connection"): // of pgx
		return WayPlain
	case err != nil && strings.Contains(err.Error(), "tls: "):
		return WayVersions
	}
	return WaySilent
}

// is reports whether the error is, or wraps, one of a type.
func is[T error](err error) bool { return errors.As(err, new(T)) }

func isOneOf(err error, some ...error) bool {
	return slices.ContainsFunc(some, func(one error) bool { return errors.Is(err, one) })
}
