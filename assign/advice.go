package assign

import (
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What to do about an error. Each names the key of a config file; a service has the field of node.Config.Etcd instead.
const (
	doReach    = "start it, or correct etcd.endpoints in the config"
	doRoute    = "let this host reach it (route, firewall), or correct etcd.endpoints in the config"
	doName     = "correct the host name in etcd.endpoints of the config, or the name service of this host"
	doForm     = "correct etcd.endpoints in the config: each is host:port, or a URL with http or https"
	doHost     = "see to this host: it can't open a connection"
	doOther    = "correct etcd.endpoints in the config: what answers there is no etcd, or one without its API of version 3"
	doSecure   = "set etcd.tls in the config"
	doPlain    = "leave etcd.tls out of the config and write no https in etcd.endpoints, or have etcd speak TLS"
	doCA       = "set etcd.tls.ca in the config to the authority that signed etcd's certificate"
	doHostname = "name etcd in etcd.endpoints by a name of its certificate"
	doRenew    = "give etcd a certificate that is valid now and for servers, or correct the clock of this host"
	doRoots    = "install the certificates of authorities on this host, or set etcd.tls.ca in the config"
	doOurs     = "set etcd.tls.cert and etcd.tls.key in the config to a valid certificate of an authority that etcd trusts"
	doTLS      = "compare the versions and ciphers of TLS that etcd allows with those of this program"
	doTLSLog   = "see the log of etcd for the fault of TLS, and correct etcd.tls in the config"
	doPassword = "correct etcd.username and etcd.password in the config"
	doUser     = "set etcd.username and etcd.password in the config: etcd wants a user"
	doNoUser   = "leave etcd.username out of the config, or enable authentication in etcd"
	doGrant    = "let the user of etcd.username read and write the keys below /CLUSTER/, CLUSTER being cluster in the config"
	doToken    = "try again; if it lasts, give all members of etcd the same --auth-token and keys"
	doSpace    = "free space in etcd: compact and defragment it, or raise --quota-backend-bytes, then run `etcdctl alarm disarm`"
	doCorrupt  = "replace the members of etcd whose data differ, then run `etcdctl alarm disarm`"
	doQuorum   = "bring a majority of etcd's members up and have them reach one another: `etcdctl endpoint status --cluster`"
	doLoad     = "give etcd a faster disk, or fewer clients: it is overloaded"
	doLearner  = "leave learners out of etcd.endpoints in the config, or promote them"
	doCluster  = "let etcd.endpoints in the config name members of one cluster only"
	doUpgrade  = "run the same version of etcd, 3.4 or newer, on all members, and end a downgrade"
	doAgain    = "try again: etcd has changed meanwhile"
	doReport   = "report it: Tocsin sends no such request, unless something between it and etcd changes requests"
)

// advice says what to do about each error that etcd itself names, by its text. A test compares the keys with etcd's list.
var advice = map[string]string{}

func init() { // grouped by what to do
	for do, errs := range map[string][]error{
		doPassword: {rpctypes.ErrGRPCAuthFailed, rpctypes.ErrGRPCUserNotFound},
		doUser:     {rpctypes.ErrGRPCUserEmpty},
		doNoUser:   {rpctypes.ErrGRPCAuthNotEnabled},
		doGrant:    {rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCRoleNotGranted, rpctypes.ErrGRPCPermissionNotGranted, rpctypes.ErrGRPCRoleNotFound, rpctypes.ErrGRPCPermissionNotGiven},
		doToken:    {rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCInvalidAuthMgmt, rpctypes.ErrGRPCAuthOldRevision},
		doSpace:    {rpctypes.ErrGRPCNoSpace},
		doCorrupt:  {rpctypes.ErrGRPCCorrupt},
		doQuorum: {rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCNotLeader, rpctypes.ErrGRPCLeaderChanged, rpctypes.ErrGRPCTimeout, rpctypes.ErrGRPCTimeoutDueToLeaderFail,
			rpctypes.ErrGRPCTimeoutDueToConnectionLost, rpctypes.ErrGRPCUnhealthy, rpctypes.ErrGRPCMemberNotEnoughStarted},
		doLoad:    {rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrGRPCTimeoutWaitAppliedIndex, rpctypes.ErrGRPCDeadlineExceeded},
		doLearner: {rpctypes.ErrGRPCNotSupportedForLearner},
		doCluster: {rpctypes.ErrGRPCClusterIDMismatch},
		doReach:   {rpctypes.ErrGRPCStopped},
		doUpgrade: {rpctypes.ErrGRPCNotCapable, rpctypes.ErrGRPCInvalidClientAPIVersion, rpctypes.ErrGRPCClusterVersionUnavailable, rpctypes.ErrGRPCDowngradeInProcess},
		doAgain: {rpctypes.ErrGRPCLeaseNotFound, rpctypes.ErrGRPCLeaseExist, rpctypes.ErrGRPCCompacted, rpctypes.ErrGRPCFutureRev, rpctypes.ErrGRPCWatchCanceled,
			rpctypes.ErrGRPCCanceled, rpctypes.ErrGRPCKeyNotFound},
		doReport: {rpctypes.ErrGRPCEmptyKey, rpctypes.ErrGRPCValueProvided, rpctypes.ErrGRPCLeaseProvided, rpctypes.ErrGRPCTooManyOps, rpctypes.ErrGRPCDuplicateKey,
			rpctypes.ErrGRPCInvalidSortOption, rpctypes.ErrGRPCLeaseTTLTooLarge, rpctypes.ErrGRPCRequestTooLarge,
			rpctypes.ErrGRPCMemberExist, rpctypes.ErrGRPCPeerURLExist, rpctypes.ErrGRPCMemberBadURLs, rpctypes.ErrGRPCMemberNotFound, rpctypes.ErrGRPCMemberNotLearner,
			rpctypes.ErrGRPCLearnerNotReady, rpctypes.ErrGRPCTooManyLearners, rpctypes.ErrGRPCRootUserNotExist, rpctypes.ErrGRPCRootRoleNotExist, rpctypes.ErrGRPCUserAlreadyExist,
			rpctypes.ErrGRPCRoleAlreadyExist, rpctypes.ErrGRPCRoleEmpty, rpctypes.ErrGRPCBadLeaderTransferee, rpctypes.ErrGRPCWrongDowngradeVersionFormat,
			rpctypes.ErrGRPCInvalidDowngradeTargetVersion, rpctypes.ErrGRPCNoInflightDowngrade},
	} {
		for _, err := range errs {
			advice[status.Convert(err).Message()] = do
		}
	}
}

// adviceByCode is for errors that etcd does not name: of gRPC, of a proxy, or of another server.
var adviceByCode = [...]string{
	codes.OK: "", codes.Canceled: doAgain, codes.Unknown: doOther, codes.InvalidArgument: doReport, codes.DeadlineExceeded: doReach, codes.NotFound: doOther,
	codes.AlreadyExists: doReport, codes.PermissionDenied: doGrant, codes.ResourceExhausted: doLoad, codes.FailedPrecondition: doReport, codes.Aborted: doAgain,
	codes.OutOfRange: doReport, codes.Unimplemented: doOther, codes.Internal: doOther, codes.Unavailable: doReach, codes.DataLoss: doCorrupt, codes.Unauthenticated: doPassword,
}

// adviceByAlert says what to do about an alert that etcd sends in answer to our side of TLS; doTLSLog about others.
var adviceByAlert = map[string]string{}

func init() {
	for do, alerts := range map[string][]string{
		doOurs: {"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate",
			"unknown certificate authority", "access denied", "certificate required"},
		doTLS:      {"handshake failure", "protocol version not supported", "insufficient security level", "inappropriate fallback", "missing extension", "unsupported extension", "no application protocol"},
		doHostname: {"unrecognized name"},
	} {
		for _, alert := range alerts {
			adviceByAlert["tls: "+alert] = do
		}
	}
}

// advised is an error with what to do about it.
type advised struct {
	error
	do string
}

// Unwrap returns the error without the advice.
func (a advised) Unwrap() error { return a.error }

// Advice says what to do about an error of etcd, or of the way there, in one clause; "" if err is of neither.
func Advice(err error) string {
	var own advised
	var named rpctypes.EtcdError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &own):
		return own.do
	case errors.As(err, &named):
		if do, known := advice[named.Error()]; known {
			return do
		}
		return adviceOf(named.Code())
	}
	said, is := status.FromError(err)
	if !is {
		return ""
	}
	if do, known := advice[said.Message()]; known {
		return do
	}
	return adviceOf(said.Code())
}

func adviceOf(code codes.Code) string {
	if int(code) < len(adviceByCode) {
		return adviceByCode[code]
	}
	return doOther
}

// onTheWay says what to do about an error of a connection, of its name, or of TLS on it.
func onTheWay(err error) string {
	var op *net.OpError
	var urlForm *url.Error
	var name *net.DNSError
	switch {
	case errors.As(err, &op) && op.Op == "remote error":
		if do, known := adviceByAlert[op.Err.Error()]; known {
			return do
		}
		return doTLSLog
	case isAny(err, new(x509.HostnameError)):
		return doHostname
	case isAny(err, new(x509.UnknownAuthorityError)):
		return doCA
	case isAny(err, new(x509.SystemRootsError)):
		return doRoots
	case isAny(err, new(x509.CertificateInvalidError)), isAny(err, new(x509.InsecureAlgorithmError)), isAny(err, new(x509.ConstraintViolationError)), isAny(err, new(x509.UnhandledCriticalExtension)):
		return doRenew
	case isAny(err, new(*net.AddrError)), isAny(err, new(net.InvalidAddrError)), isAny(err, new(net.UnknownNetworkError)), isAny(err, new(*net.ParseError)), errors.As(err, &urlForm):
		return doForm
	case errors.As(err, &name):
		return doName
	case isOneOf(err, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.ETIMEDOUT, syscall.EACCES, syscall.EPERM):
		return doRoute
	case isOneOf(err, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EAGAIN, syscall.EAFNOSUPPORT):
		return doHost
	case strings.Contains(err.Error(), "tls: "):
		return doTLS
	}
	return doReach
}

// isAny reports whether err is, or wraps, one of a type.
func isAny[T error](err error, target *T) bool { return errors.As(err, target) }

func isOneOf(err error, numbers ...syscall.Errno) bool {
	return slices.ContainsFunc(numbers, func(n syscall.Errno) bool { return errors.Is(err, n) })
}
