package assign

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// etcd says where to correct the way to it.
var etcd = loop.Target{What: "etcd", Address: "etcd.endpoints in the config", TLS: "etcd.tls in the config"}

var doReach = etcd.Do(loop.WaySilent)

// What to do about an error. Each names the key of a config file; a service has the field of node.Config.Etcd instead.
const (
	doOther    = "correct etcd.endpoints in the config: what answers there is no etcd, or one without its API of version 3"
	doPlain    = "leave etcd.tls out of the config and write no https in etcd.endpoints, or have etcd speak TLS"
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
