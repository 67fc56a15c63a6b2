package config

import "github.com/tocsinhq/tocsin/node"

// NodeConfig gives the config of a node, or of a sweeper, inside a program: all that a file says of one, with etcd and the
// outboxes. The program sets Group if it has Go handlers, and Logger and Registerer. Listen stays empty: node.listen of the
// file is the address of tocsin serve, and a program that serves Node.Status sets its own. It reads the files of etcd.tls.
func (f File) NodeConfig() (node.Config, error) {
	cfg := node.Config{
		Tables:       f.Tocsin(),
		Ownership:    f.Layout.Ownership,
		Outboxes:     f.Relayed(),
		Name:         f.Node.Name,
		Weight:       f.Node.Weight,
		PayloadBytes: int64(f.Node.PayloadMiB) << 20,
		ScanInterval: f.Scan.Interval.D(),
		LookAhead:    f.Scan.LookAhead.D(),
		SweepGrace:   f.Sweep.Grace.D(),
		SweepTimeout: f.Sweep.Timeout.D(),
		DrainTimeout: f.Node.DrainTimeout.D(),
		SecretsDir:   f.Node.SecretsDir,
	}
	if cfg.Ownership == node.ByRows || len(f.Etcd.Endpoints) == 0 {
		return cfg, nil
	}
	var err error
	cfg.Etcd, err = f.EtcdConfig()
	return cfg, err
}

// EtcdConfig says where etcd is, and reads the files of etcd.tls. No endpoints:
// the file names none.
func (f File) EtcdConfig() (node.EtcdConfig, error) {
	e := f.Etcd
	cfg := node.EtcdConfig{Endpoints: e.Endpoints, Username: e.Username, Password: e.Password}
	var err error
	cfg.TLS, err = e.TLS.load("etcd.tls")
	return cfg, err
}
