package config

import "github.com/tocsinhq/tocsin/node"

// EtcdConfig says where etcd is, and reads the files of etcd.tls. No endpoints:
// the file names none.
func (f File) EtcdConfig() (node.EtcdConfig, error) {
	e := f.Etcd
	cfg := node.EtcdConfig{Endpoints: e.Endpoints, Username: e.Username, Password: e.Password}
	var err error
	cfg.TLS, err = e.TLS.load("etcd.tls")
	return cfg, err
}
