package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// etcdStart bounds the start of a member, which serves once most of the others run too.
const etcdStart = 3 * time.Minute

// etcdServer is an etcd, or one of its members, which keeps its data.
type etcdServer struct {
	cfg devserver.EtcdConfig

	mu     sync.Mutex
	server *devserver.Etcd
}

// startEtcd starts an etcd of n members, and returns when all of them serve. Those that it
// returns with an error are to be stopped too.
func startEtcd(ctx context.Context, dir string, n int) (all []*etcdServer, err error) {
	var members []string
	for i := range n {
		e := planEtcd(dir, i)
		all = append(all, e)
		members = append(members, fmt.Sprintf("%s=http://%s", e.cfg.Name, upstream(e.cfg.PeerPort)))
	}
	var g errgroup.Group
	for _, e := range all {
		if n > 1 {
			e.cfg.Members = strings.Join(members, ",")
		}
		g.Go(func() error { return e.start(ctx) })
	}
	return all, g.Wait()
}

// planEtcd draws the ports of a member.
func planEtcd(dir string, i int) *etcdServer {
	name := fmt.Sprintf("etcd%d", i)
	return &etcdServer{cfg: devserver.EtcdConfig{
		Dir: filepath.Join(dir, name), ClientPort: devserver.FreePort(), PeerPort: devserver.FreePort(), Name: name,
	}}
}

// endpoints are the clients' addresses, past every proxy.
func endpoints(all []*etcdServer) (at []string) {
	for _, e := range all {
		at = append(at, e.endpoint())
	}
	return at
}

func (e *etcdServer) endpoint() string { return upstream(e.cfg.ClientPort) }

// start launches it and waits until it serves.
func (e *etcdServer) start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, etcdStart)
	defer cancel()
	server, err := devserver.StartEtcd(ctx, e.cfg)
	if err == nil {
		e.server = server
	}
	return err
}

// kill ends it with SIGKILL, if it runs.
func (e *etcdServer) kill() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server == nil {
		return nil
	}
	e.server.Kill()
	return e.server.Stop()
}
