package config

import "github.com/tocsinhq/tocsin/assign"

// EtcdConfig says where etcd is, and reads the files of etcd.tls. No endpoints:
// the file names none.
func (f File) EtcdConfig() (assign.EtcdConfig, error) {
	e := f.Etcd
	cfg := assign.EtcdConfig{Endpoints: e.Endpoints, Username: e.Username, Password: e.Password}
	var err error
	cfg.TLS, err = e.TLS.load("etcd.tls")
	return cfg, err
}
