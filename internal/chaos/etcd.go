package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/wait"
)

// etcdServer is an etcd, or one of its members, in a process of its own, which keeps its data.
type etcdServer struct {
	role role
	port int
	log  string

	mu   sync.Mutex
	proc *process
}

// startEtcd starts an etcd of n members, and returns when it answers. Those that it
// returns with an error are to be stopped too.
func startEtcd(ctx context.Context, dir string, n int) (all []*etcdServer, err error) {
	plan := make([]role, n)
	var members []string
	for i := range plan {
		if plan[i], err = planEtcd(dir, i); err != nil {
			return nil, err
		}
		members = append(members, fmt.Sprintf("%s=http://%s", plan[i].Name, upstream(plan[i].Peer)))
	}
	for _, r := range plan {
		if n > 1 {
			r.Members = strings.Join(members, ",")
		}
		e := &etcdServer{role: r, port: r.Port, log: filepath.Join(dir, r.Name+".log")}
		all = append(all, e)
		if err := e.start(ctx); err != nil {
			return all, err
		}
	}
	client, err := assign.Dial(ctx, assign.EtcdConfig{Endpoints: endpoints(all), Timeout: 20 * time.Second})
	if err != nil {
		return all, err
	}
	return all, client.Close()
}

// planEtcd draws the ports of a member.
func planEtcd(dir string, i int) (role, error) {
	name := fmt.Sprintf("etcd%d", i)
	port, err := freePort()
	if err != nil {
		return role{}, err
	}
	peer, err := freePort()
	for err == nil && peer == port {
		peer, err = freePort()
	}
	return role{Kind: roleEtcd, Name: name, Dir: filepath.Join(dir, name), Port: port, Peer: peer}, err
}

// endpoints are the clients' addresses, past every proxy.
func endpoints(all []*etcdServer) (at []string) {
	for _, e := range all {
		at = append(at, upstream(e.port))
	}
	return at
}

// start launches it and waits until it listens.
func (e *etcdServer) start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	proc, err := spawn(e.role, e.log)
	if err != nil {
		return err
	}
	e.proc = proc
	for proc.alive() {
		conn, err := net.DialTimeout("tcp", upstream(e.port), time.Second)
		if err == nil {
			return conn.Close()
		}
		if err := wait.For(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("etcd does not listen: %w", err)
		}
	}
	return fmt.Errorf("etcd ended: %w", proc.err)
}

func (e *etcdServer) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.proc != nil {
		e.proc.kill()
	}
}

// restart kills it and brings it back after a while.
func (e *etcdServer) restart(ctx context.Context, down time.Duration) error {
	e.stop()
	_ = wait.For(ctx, down)
	return e.start(context.WithoutCancel(ctx))
}

// Ports of etcd are chosen below the range of outgoing connections, one of which
// could else take the port during an outage.
const (
	firstPort = 20000
	ports     = 12000
	portTries = 100
)

// freePort is one that nobody listens on.
func freePort() (int, error) {
	for range portTries {
		port := firstPort + rand.IntN(ports)
		if l, err := net.Listen("tcp", upstream(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("etcd: found no free port")
}
