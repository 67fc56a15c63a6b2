package devserver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Ticks of a single member, in milliseconds. It has nobody to lose an election to, so they are short: the start is
// fast, and leases may be as short as one second (etcd allows none below one and a half elections).
const (
	etcdTick     = 20
	etcdElection = 200
)

// etcdServing begins the message of every etcd since 3.4 when it has joined its cluster and its clients are served; the
// rest says whether with TLS.
const etcdServing = `"msg":"serving client traffic`

// EtcdConfig says how to run an etcd. The zero value is a temporary one on ports of its own choice.
type EtcdConfig struct {
	// Dir is etcd's folder; it is made if missing. One that holds data is started again with its data.
	// "" makes a temporary one, which Stop removes; it is not synced to the disk.
	Dir string
	// ClientPort and PeerPort are TCP ports on 127.0.0.1; 0 picks free ones.
	ClientPort, PeerPort int
	// Name and Members make it one of several: Members is "name=http://127.0.0.1:peer port,..." of all of them, and PeerPort
	// is needed then. It serves once most of them are up, so start them concurrently. Zero: it is alone.
	Name, Members string
	// TLS makes clients speak TLS and show a certificate; the zero value is plain text.
	TLS EtcdTLS
}

// EtcdTLS names PEM files, all three or none.
type EtcdTLS struct {
	Cert, Key string // of the server, for 127.0.0.1
	ClientCA  string // who must have signed the clients' certificates
}

// Etcd is a private etcd, or a member of one.
type Etcd struct {
	server
	cfg EtcdConfig
}

// StartEtcd starts an etcd and returns when it serves. ctx bounds the start, not its life.
// It returns ErrNoEtcd, ErrPortInUse or ErrFolderInUse, or an error with the last error of etcd's log.
func StartEtcd(ctx context.Context, cfg EtcdConfig) (*Etcd, error) {
	path, err := findEtcd(os.Getenv(EnvEtcd), systemDirs())
	if err != nil {
		return nil, err
	}
	e := &Etcd{cfg: cfg}
	e.spec = spec{
		name: "etcd", path: path, dir: cfg.Dir, env: etcdEnv(os.Environ(), cfg.Dir == ""),
		ports: []int{cfg.ClientPort, cfg.PeerPort}, args: e.serverArgs, ready: etcdServing, failure: etcdFailure,
	}
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// serverArgs translates cfg into etcd's own words. bcrypt's cost is the least there is: passwords protect nothing here,
// and each sign-in would cost 50 ms of a processor.
func (e *Etcd) serverArgs() []string {
	client, peer := loopback(e.bound[0]), loopback(e.bound[1])
	name, members := "tocsin", "tocsin=http://"+peer
	tick, election := etcdTick, etcdElection
	if e.cfg.Members != "" { // they do elect: etcd's own patience, on a machine that has other things to do
		name, members, tick, election = e.cfg.Name, e.cfg.Members, 100, 1000
	}
	scheme := "http"
	var tls []string
	if own := e.cfg.TLS; own != (EtcdTLS{}) {
		scheme = "https"
		tls = []string{"--cert-file=" + own.Cert, "--key-file=" + own.Key, "--trusted-ca-file=" + own.ClientCA, "--client-cert-auth"}
	}
	return append([]string{
		"--name=" + name,
		"--data-dir=" + filepath.Join(e.folder.path, dataName),
		"--listen-client-urls=" + scheme + "://" + client,
		"--advertise-client-urls=" + scheme + "://" + client,
		"--listen-peer-urls=http://" + peer,
		"--initial-advertise-peer-urls=http://" + peer,
		"--initial-cluster=" + members,
		fmt.Sprintf("--heartbeat-interval=%d", tick),
		fmt.Sprintf("--election-timeout=%d", election),
		"--bcrypt-cost=4",
		"--enable-grpc-gateway=false",
		"--logger=zap",
		"--log-outputs=stderr",
	}, tls...)
}

// etcdEnv returns the environment without etcd's own variables, which it would read as further options, and adds two: etcd
// 3.4 does not start on arm64 unless told to, and a release without the option not to sync ignores it as a variable only.
func etcdEnv(env []string, temporary bool) []string {
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "ETCD_") })
	env = append(env, "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
	if temporary {
		env = append(env, "ETCD_UNSAFE_NO_FSYNC=true")
	}
	return env
}

// etcdFailure returns the error that a line of the log tells, or "". The line is a JSON object, except before etcd has read
// its options.
func etcdFailure(line string) string {
	var entry struct{ Level, Msg, Error string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		if strings.HasPrefix(line, "flag provided but not defined") {
			return line + ": etcd 3.4 or newer is needed"
		}
		return ""
	}
	switch {
	case !slices.Contains([]string{"error", "dpanic", "panic", "fatal"}, entry.Level):
		return ""
	case entry.Error != "":
		return entry.Error
	}
	return entry.Msg
}
