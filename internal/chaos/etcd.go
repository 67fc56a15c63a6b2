package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"time"
)

// etcdServer is an etcd in a process of its own, which keeps its data.
type etcdServer struct {
	role role
	port int
	log  string

	mu   sync.Mutex
	proc *process
}

func startEtcd(ctx context.Context, dir string) (*etcdServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	e := &etcdServer{port: port, log: filepath.Join(dir, "etcd.log")}
	e.role = role{Kind: roleEtcd, Name: "etcd", Dir: filepath.Join(dir, "etcd"), Port: port}
	return e, e.start(ctx)
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
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("etcd does not listen: %w", err)
		}
	}
	return fmt.Errorf("etcd ended: %w", proc.err)
}

func (e *etcdServer) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.proc.kill()
}

// restart kills it and brings it back after a while.
func (e *etcdServer) restart(ctx context.Context, down time.Duration) error {
	e.stop()
	_ = sleep(ctx, down)
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
