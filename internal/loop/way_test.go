package loop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// errorsOf returns the exported types of a package's shipped files that have a method Error.
func errorsOf(t *testing.T, path string) (names []string) {
	t.Helper()
	p, err := build.Import(path, ".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			m, is := d.(*ast.FuncDecl)
			if !is || m.Recv == nil || m.Name.Name != "Error" {
				continue
			}
			of := m.Recv.List[0].Type
			if star, is := of.(*ast.StarExpr); is {
				of = star.X
			}
			if name, is := of.(*ast.Ident); is && name.IsExported() {
				names = append(names, path+"."+name.Name)
			}
		}
	}
	return names
}

// Each type of error of net, crypto/tls and crypto/x509 is known.
func TestEachTypeOfErrorIsJudged(t *testing.T) {
	t.Parallel()
	cert := &x509.Certificate{}
	judged := map[string]struct {
		err error
		is  Way
	}{
		"crypto/x509.CertificateInvalidError":     {x509.CertificateInvalidError{Cert: cert, Reason: x509.Expired}, WayInvalid},
		"crypto/x509.HostnameError":               {x509.HostnameError{Certificate: cert, Host: "x"}, WayHostname},
		"crypto/x509.UnknownAuthorityError":       {x509.UnknownAuthorityError{}, WayCA},
		"crypto/x509.SystemRootsError":            {x509.SystemRootsError{}, WayRoots},
		"crypto/x509.InsecureAlgorithmError":      {x509.InsecureAlgorithmError(x509.MD5WithRSA), WayInvalid},
		"crypto/x509.ConstraintViolationError":    {x509.ConstraintViolationError{}, WayInvalid},
		"crypto/x509.UnhandledCriticalExtension":  {x509.UnhandledCriticalExtension{}, WayInvalid},
		"crypto/tls.RecordHeaderError":            {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, WayPlain},
		"crypto/tls.CertificateVerificationError": {&tls.CertificateVerificationError{Err: errors.New("of a program's own check")}, WayInvalid},
		"crypto/tls.AlertError":                   {tls.AlertError(40), WayVersions},       // of QUIC
		"crypto/tls.ECHRejectionError":            {&tls.ECHRejectionError{}, WayVersions}, // no config of ours asks for it
		"net.OpError":                             {&net.OpError{Op: "dial", Err: errors.New("any")}, WaySilent},
		"net.ParseError":                          {&net.ParseError{Type: "CIDR address", Text: "x"}, WayForm},
		"net.AddrError":                           {&net.AddrError{Err: "missing port in address"}, WayForm},
		"net.UnknownNetworkError":                 {net.UnknownNetworkError("x"), WayForm},
		"net.InvalidAddrError":                    {net.InvalidAddrError("x"), WayForm},
		"net.DNSConfigError":                      {&net.DNSConfigError{Err: errors.New("x")}, WaySilent}, // no package returns it
		"net.DNSError":                            {&net.DNSError{Err: "no such host", IsNotFound: true}, WayName},
	}
	for _, path := range []string{"net", "crypto/tls", "crypto/x509"} {
		for _, name := range errorsOf(t, path) {
			c, known := judged[name]
			err := c.err
			if strings.HasPrefix(name, "crypto/x509.") {
				err = &tls.CertificateVerificationError{Err: err}
			}
			if !known || WayOf(&net.OpError{Op: "dial", Err: err}) != c.is {
				t.Errorf("%s is not judged, or as another fault", name)
			}
			delete(judged, name)
		}
	}
	for name := range judged {
		t.Errorf("%s is none of Go's", name)
	}
}

// Each alert of TLS.
func TestEachAlertIsJudged(t *testing.T) {
	t.Parallel()
	known, left := 0, map[string]bool{}
	for _, words := range alerts {
		for _, word := range words {
			left["tls: "+word] = true
		}
	}
	for n := range 256 {
		text := tls.AlertError(n).Error()
		if strings.HasPrefix(text, "tls: alert(") {
			continue
		}
		known++
		delete(left, text)
		got := WayOf(&net.OpError{Op: "remote error", Err: tls.AlertError(n)})
		if about := strings.Contains(text, "certificate") && !strings.Contains(text, "status") && !strings.Contains(text, "hash") && !strings.Contains(text, "unobtainable"); about != (got == WayOurs) && text != "tls: access denied" {
			t.Errorf("alert %q: %q", text, got)
		}
	}
	if known < 30 || len(left) > 0 {
		t.Errorf("%d alerts; not among them: %v", known, left)
	}
}

// elsewhere are the errors of system calls that are WaySilent: those of connect and socket which say no more than ECONNREFUSED, or that no
// call of Go meets, and those of files, processes and devices.
const elsewhere = `ECONNREFUSED ENOENT EINVAL EINTR EINPROGRESS EALREADY EISCONN EBADF EFAULT ENOTSOCK EPROTOTYPE EPROTO ENONET EMSGSIZE EOPNOTSUPP ENOTSUP
EDESTADDRREQ EPFNOSUPPORT ESOCKTNOSUPPORT EWOULDBLOCK ENOSYS EIO
E2BIG EADV EBADE EBADFD EBADMSG EBADR EBADRQC EBADSLT EBFONT EBUSY ECANCELED ECHILD ECHRNG ECOMM EDEADLK EDEADLOCK EDOM EDOTDOT EDQUOT EEXIST EFBIG
EHWPOISON EIDRM EILSEQ EISDIR EISNAM EKEYEXPIRED EKEYREJECTED EKEYREVOKED EL2HLT EL2NSYNC EL3HLT EL3RST ELIBACC ELIBBAD ELIBEXEC ELIBMAX ELIBSCN ELNRNG ELOOP
EMEDIUMTYPE EMLINK EMULTIHOP ENAMETOOLONG ENAVAIL ENOANO ENOCSI ENODATA ENODEV ENOEXEC ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMSG ENOPKG ENOSPC ENOSR ENOSTR
ENOTBLK ENOTDIR ENOTEMPTY ENOTNAM ENOTRECOVERABLE ENOTTY ENOTUNIQ ENXIO EOVERFLOW EOWNERDEAD ERANGE EREMCHG EREMOTE EREMOTEIO ERESTART ERFKILL EROFS ESPIPE
ESRCH ESRMNT ESTALE ESTRPIPE ETIME ETOOMANYREFS ETXTBSY EUCLEAN EUNATCH EUSERS EXDEV EXFULL`

// Each error of a system call that Go knows on Linux.
func TestEachErrorOfASystemCallIsJudged(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(build.Default.GOROOT, "src/syscall/zerrors_linux_amd64.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	none, listed := strings.Fields(elsewhere), 0
	ast.Inspect(f, func(n ast.Node) bool {
		v, is := n.(*ast.ValueSpec)
		if !is || len(v.Values) != 1 || !strings.HasPrefix(v.Names[0].Name, "E") {
			return true
		}
		call, is := v.Values[0].(*ast.CallExpr)
		if !is {
			return true
		}
		listed++
		n64, err := strconv.ParseInt(call.Args[0].(*ast.BasicLit).Value, 0, 0)
		errno := syscall.Errno(n64)
		got := WayOf(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)})
		alias := errno == syscall.EAGAIN
		if err != nil || !alias && (got == WaySilent) != slices.Contains(none, v.Names[0].Name) {
			t.Errorf("%s (%v) is judged as %q, and listed as one of those elsewhere: %t", v.Names[0].Name, errno, got, slices.Contains(none, v.Names[0].Name))
		}
		return true
	})
	if listed < 100 {
		t.Errorf("only %d errors are found", listed)
	}
}

// sqlState is an error of a database.
type sqlState string

func (s sqlState) Error() string    { return "SQLSTATE " + string(s) }
func (s sqlState) SQLState() string { return string(s) }

func TestEachWayInWhichAConnectionFailsIsJudged(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]Way{
		syscall.ECONNREFUSED: WaySilent, syscall.ECONNRESET: WayClosed, syscall.EPIPE: WayClosed, io.EOF: WayClosed, syscall.ENETUNREACH: WayRoute, syscall.EHOSTUNREACH: WayRoute, syscall.ETIMEDOUT: WayRoute,
		syscall.EPERM: WayRoute, syscall.EMFILE: WayHere, syscall.EADDRNOTAVAIL: WayHere, os.ErrDeadlineExceeded: WayRoute, context.DeadlineExceeded: WayRoute,
		sqlState("28P01"): WayUser, sqlState("28000"): WayUser, sqlState("53300"): WayRefused,
		errors.New("tls: server selected unsupported protocol version 301"): WayVersions, errors.New("server refused TLS connection"): WayPlain,
		&url.Error{Op: "parse", URL: "http://%zz", Err: url.EscapeError("%zz")}: WayForm, &url.Error{Op: "Get", Err: syscall.ECONNREFUSED}: WaySilent,
	} {
		if got := WayOf(&net.OpError{Op: "dial", Err: err}); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if got := WayOf(&net.OpError{Op: "dial", Net: "unix", Err: syscall.EACCES}); got != WayHere {
		t.Errorf("a socket of another user: %q", got)
	}
	said, to := map[string]bool{}, Target{What: "the server", Address: "its address", TLS: "its TLS"}
	for _, f := range []Way{WaySilent, WayRoute, WayName, WayForm, WayHere, WayClosed, WayUser, WayRefused, WayPlain, WaySecure, WayCA, WayHostname, WayInvalid, WayRoots, WayOurs, WayVersions, WayAlert} {
		do := to.Do(f)
		if said[do] || strings.Contains(do, "{") {
			t.Errorf("the advice about %q: %q", f, do)
		}
		said[do] = true
	}
}
