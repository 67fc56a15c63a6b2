package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// startEtcd starts an etcd of n members, each with a folder of its own, and returns when all of them serve. Those that it
// returns with an error are to be stopped too.
func startEtcd(ctx context.Context, dir string, n int) ([]*devserver.Etcd, error) {
	ctx, cancel := context.WithTimeout(ctx, restartWithin)
	defer cancel()
	cfgs, members := make([]devserver.EtcdConfig, n), make([]string, n)
	for i := range cfgs {
		name := fmt.Sprintf("etcd%d", i)
		cfgs[i] = devserver.EtcdConfig{
			Dir: filepath.Join(dir, name), ClientPort: devserver.FreePort(), PeerPort: devserver.FreePort(), Name: name,
		}
		members[i] = fmt.Sprintf("%s=http://%s", name, upstream(cfgs[i].PeerPort))
	}
	all := make([]*devserver.Etcd, n)
	var g errgroup.Group
	for i, cfg := range cfgs {
		if n > 1 {
			cfg.Members = strings.Join(members, ",")
		}
		g.Go(func() (err error) {
			all[i], err = devserver.StartEtcd(ctx, cfg)
			return err
		})
	}
	err := g.Wait()
	return slices.DeleteFunc(all, func(e *devserver.Etcd) bool { return e == nil }), err
}

// endpoints are the clients' addresses, past every proxy.
func endpoints(all []*devserver.Etcd) (at []string) {
	for _, e := range all {
		at = append(at, e.Endpoint())
	}
	return at
}
