package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Ticks of a single member, in milliseconds. It has nobody to lose an election to, so they are short: the start is
// fast, and leases may be as short as one second (etcd allows none below one and a half elections).
const (
	etcdTick     = 20
	etcdElection = 200
)

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
	// Log takes etcd's log from level info; a slow writer slows etcd. nil keeps it in Dir/etcd.log.
	Log io.Writer
}

// EtcdTLS names PEM files, all three or none.
type EtcdTLS struct {
	Cert, Key string // of the server, for 127.0.0.1
	ClientCA  string // who must have signed the clients' certificates
}

// Etcd is an etcd, or a member of one, in a process of its own. Its methods may be called at any time from any goroutine.
type Etcd struct {
	cfg     EtcdConfig
	path    string // of the program
	folder  *folder
	log     *etcdLog
	logFile *os.File // nil if the caller takes the log
	port    int
	proc    *process // nil until a server has been launched; constant once StartEtcd has returned

	stopOnce sync.Once
	stopErr  error
}

// StartEtcd starts an etcd and returns when it serves. ctx bounds the start, not its life.
// It returns ErrNoEtcd, ErrPortInUse or ErrFolderInUse, or an error with the last error of etcd's log.
func StartEtcd(ctx context.Context, cfg EtcdConfig) (*Etcd, error) {
	path, err := findEtcd(os.Getenv(EnvEtcd), systemDirs())
	if err != nil {
		return nil, err
	}
	for _, port := range []int{cfg.ClientPort, cfg.PeerPort} {
		if port == 0 {
			continue
		}
		if err := probePort(port); err != nil {
			return nil, err
		}
	}
	folder, err := openFolder(ctx, cfg.Dir, "etcd")
	if err != nil {
		return nil, err
	}
	e := &Etcd{cfg: cfg, path: path, folder: folder}
	if err := e.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", folder.path, err), e.Stop())
	}
	return e, nil
}

// start opens the log unless the caller takes it, and launches etcd.
func (e *Etcd) start(ctx context.Context) (err error) {
	if e.cfg.Log == nil {
		e.logFile, err = os.OpenFile(filepath.Join(e.folder.path, "etcd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		e.cfg.Log = e.logFile
	}
	return e.launchOnPorts(ctx)
}

// launchOnPorts launches etcd, with other ports if somebody else was faster and we may choose.
func (e *Etcd) launchOnPorts(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		e.port = cmp.Or(e.cfg.ClientPort, FreePort())
		peer := e.cfg.PeerPort
		for peer == 0 || peer == e.port {
			peer = FreePort()
		}
		err := e.launch(ctx, peer)
		if err == nil || e.cfg.ClientPort != 0 && e.cfg.PeerPort != 0 || attempt == portAttempts || !e.log.portTaken() {
			return err
		}
	}
}

// launch starts the process and waits until it serves; on an error the process has ended.
func (e *Etcd) launch(ctx context.Context, peer int) error {
	e.log = newEtcdLog(e.cfg.Log)
	proc, err := startProcess(e.command(peer), e.folder.leave)
	if err != nil {
		return err
	}
	e.proc = proc
	select {
	case <-e.log.ready:
		return nil
	case <-proc.done:
		return e.log.explain(cmp.Or(proc.err, errEnded))
	case <-ctx.Done():
		proc.kill()
		return fmt.Errorf("not ready: %w", context.Cause(ctx))
	}
}

// command returns a call of etcd, which inherits the folder's lock: the folder is in use until both are gone.
func (e *Etcd) command(peer int) *exec.Cmd {
	cmd := exec.Command(e.path, etcdArgs(e.cfg, e.folder, e.port, peer)...)
	cmd.Env = etcdEnv(os.Environ(), e.folder.temporary)
	cmd.Stdout, cmd.Stderr = e.log, e.log
	cmd.ExtraFiles = []*os.File{e.folder.lockFile()}
	return cmd
}

// etcdArgs translates cfg into etcd's own words. bcrypt's cost is the least there is: passwords protect nothing here,
// and each sign-in would cost 50 ms of a processor.
func etcdArgs(cfg EtcdConfig, f *folder, client, peer int) []string {
	name, members := "tocsin", "tocsin=http://"+loopback(peer)
	tick, election := etcdTick, etcdElection
	if cfg.Members != "" { // they do elect: etcd's own patience, on a machine that has other things to do
		name, members, tick, election = cfg.Name, cfg.Members, 100, 1000
	}
	scheme := "http"
	var tls []string
	if cfg.TLS != (EtcdTLS{}) {
		scheme = "https"
		tls = []string{"--cert-file=" + cfg.TLS.Cert, "--key-file=" + cfg.TLS.Key, "--trusted-ca-file=" + cfg.TLS.ClientCA, "--client-cert-auth"}
	}
	return append([]string{
		"--name=" + name,
		"--data-dir=" + filepath.Join(f.path, dataName),
		"--listen-client-urls=" + scheme + "://" + loopback(client),
		"--advertise-client-urls=" + scheme + "://" + loopback(client),
		"--listen-peer-urls=http://" + loopback(peer),
		"--initial-advertise-peer-urls=http://" + loopback(peer),
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

// Endpoint returns the address of its clients, "127.0.0.1:port".
func (e *Etcd) Endpoint() string { return loopback(e.port) }

// Dir returns etcd's folder.
func (e *Etcd) Dir() string { return e.folder.path }

// Pid returns the process id of etcd.
func (e *Etcd) Pid() int { return e.proc.pid }

// Done is closed when the process has ended, for whatever reason, and its folder may be started again.
func (e *Etcd) Done() <-chan struct{} { return e.proc.done }

// Kill ends etcd with SIGKILL and waits. The data stays: StartEtcd with the same Dir and ports brings it back, if Dir is
// the caller's. Stop is still to be called.
func (e *Etcd) Kill() { e.proc.kill() }

// Stop shuts etcd down, waits, and removes a temporary folder. An etcd with a temporary folder is killed, as nobody will
// see its data again; elsewhere a client that is still connected holds it up for seconds. Stop may be called again and
// then returns the same.
func (e *Etcd) Stop() error {
	e.stopOnce.Do(func() { e.stopErr = e.stop() })
	return e.stopErr
}

func (e *Etcd) stop() error {
	var errs []error
	switch {
	case e.proc == nil:
	case e.folder.temporary:
		e.proc.kill()
	default:
		errs = append(errs, e.proc.shutDown("etcd in "+e.folder.path))
	}
	if e.logFile != nil {
		errs = append(errs, e.logFile.Close())
	}
	return errors.Join(append(errs, e.folder.close())...)
}
