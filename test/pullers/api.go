package pullers

import (
	"context"
	"net"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator"
)

// Serve serves the API of a node until the fleet stops, and returns its URL. cfg is the node's.
func Serve(f *devcluster.Fleet, cfg node.Config, n *node.Node) (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	of := config.Default().Node
	served := api.New(api.Config{
		Tables: cfg.Tables, Cluster: operator.View{Tables: cfg.Tables, ByRows: cfg.Ownership == node.ByRows, Etcd: cfg.Etcd}, Pull: n.Pull(),
		Body: int64(of.API.Limits.BodyKiB) << 10, Rate: of.API.Limits.Rate, Timeout: of.API.Limits.Timeout.D(), Drain: of.DrainTimeout.D(),
		Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	f.Go("API", func(ctx context.Context) error { return served.Serve(ctx, l, nil) })
	return "http://" + l.Addr().String(), nil
}
