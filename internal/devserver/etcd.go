package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"sync"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Ticks of a single member, in milliseconds. It has nobody to lose an election to, so they are short: the start is
// fast, and leases may be as short as one second (etcd allows none below one and a half elections).
const (
	etcdTick     = 20
	etcdElection = 200
)

// etcdBcryptCost is the least there is: passwords protect nothing here, and each sign-in would cost 50 ms of a processor.
const etcdBcryptCost = 4

// EtcdConfig says how to run an etcd. The zero value is a temporary one on ports of its own choice.
type EtcdConfig struct {
	// Dir is etcd's folder; it is made if missing. One that holds data is started again with its data.
	// "" makes a temporary one, which Stop removes; it is not synced to the disk.
	Dir string
	// ClientPort and PeerPort are TCP ports on 127.0.0.1; 0 picks free ones.
	ClientPort, PeerPort int
	// Name and Members make it one of several: Members is "name=http://127.0.0.1:peer port,..." of all of them, and PeerPort
	// is needed then. It serves once most of them are up. Zero: it is alone.
	Name, Members string
	// TLS makes clients speak TLS and show a certificate; the zero value is plain text.
	TLS EtcdTLS
	// Log takes etcd's log from level info; nil drops it.
	Log io.Writer
}

// EtcdTLS names PEM files, all three or none.
type EtcdTLS struct {
	Cert, Key string // of the server, for 127.0.0.1
	ClientCA  string // who must have signed the clients' certificates
}

// Etcd is an etcd, or a member of one, inside this process.
type Etcd struct {
	folder *folder
	server *embed.Etcd // nil until started; constant once StartEtcd has returned
	port   int

	stopOnce sync.Once
	stopErr  error
}

// StartEtcd starts an etcd and returns when it serves. ctx bounds the start, not its life.
// It returns ErrPortInUse or ErrFolderInUse if that is the reason.
func StartEtcd(ctx context.Context, cfg EtcdConfig) (*Etcd, error) {
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
	e := &Etcd{folder: folder}
	if err := e.startOnPorts(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", folder.path, err), e.Stop())
	}
	return e, nil
}

// startOnPorts starts etcd, with other ports if somebody else was faster and we may choose.
func (e *Etcd) startOnPorts(ctx context.Context, cfg EtcdConfig) error {
	for attempt := 1; ; attempt++ {
		client, peer := cfg.ClientPort, cfg.PeerPort
		if client == 0 {
			client = freePort()
		}
		for peer == 0 || peer == client {
			peer = freePort()
		}
		err := e.start(ctx, embedConfig(cfg, e.folder, client, peer))
		if !errors.Is(explainListen(err), ErrPortInUse) || attempt == portAttempts {
			e.port = client
			return err
		}
	}
}

func (e *Etcd) start(ctx context.Context, cfg *embed.Config) error {
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	e.server = server
	select {
	case <-server.Server.ReadyNotify():
		return nil
	case err := <-server.Err():
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// embedConfig translates cfg into etcd's own words.
func embedConfig(cfg EtcdConfig, f *folder, client, peer int) *embed.Config {
	c := embed.NewConfig()
	c.Name = "tocsin"
	c.Dir = filepath.Join(f.path, dataName)
	clients, peers := loopbackURL("http", client), loopbackURL("http", peer)
	if cfg.TLS != (EtcdTLS{}) {
		clients = loopbackURL("https", client)
		info := &c.ClientTLSInfo
		info.CertFile, info.KeyFile, info.TrustedCAFile, info.ClientCertAuth = cfg.TLS.Cert, cfg.TLS.Key, cfg.TLS.ClientCA, true
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = clients, clients
	c.ListenPeerUrls, c.AdvertisePeerUrls = peers, peers
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.TickMs, c.ElectionMs = etcdTick, etcdElection
	if cfg.Members != "" { // they do elect: etcd's own patience, on a machine that has other things to do
		c.Name, c.InitialCluster = cfg.Name, cfg.Members
		c.TickMs, c.ElectionMs = embed.NewConfig().TickMs, embed.NewConfig().ElectionMs
	}
	c.EnableGRPCGateway = false
	c.BcryptCost = etcdBcryptCost
	c.UnsafeNoFsync = f.temporary
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdLogger(cfg.Log))
	return c
}

func loopbackURL(scheme string, port int) []url.URL {
	return []url.URL{{Scheme: scheme, Host: loopback(port)}}
}

// etcdLogger writes JSON lines to w, or nothing.
func etcdLogger(w io.Writer) *zap.Logger {
	if w == nil {
		return zap.NewNop()
	}
	enc := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(w)), zap.InfoLevel))
}

// Endpoint returns the address of its clients, "127.0.0.1:port".
func (e *Etcd) Endpoint() string { return loopback(e.port) }

// Dir returns etcd's folder.
func (e *Etcd) Dir() string { return e.folder.path }

// Stop ends etcd, waits, and removes a temporary folder. A client that is still connected holds it up for seconds.
// Stop may be called again and then returns the same.
func (e *Etcd) Stop() error {
	e.stopOnce.Do(func() {
		if e.server != nil {
			e.server.Close()
		}
		e.stopErr = e.folder.close()
	})
	return e.stopErr
}
