package devcluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// configMark begins each config file of a private cluster.
const configMark = "# Of a private cluster"

// configText is the config file of a cluster, for other processes: the sweep of a second terminal signs the sample callbacks too.
const configText = configMark + `: the file goes when the cluster ends.
cluster: %s
layout:
  databases: %d
  tables: %d
  ownership: %s
node:
  secrets_dir: %s
servers:
`

// serverText is added for each server.
const serverText = `  - name: %s
    dsn: %s
    databases: [%s]
`

// etcdText is added if there is one.
const etcdText = `etcd:
  endpoints: [%s]
`

// brokerText is added if there is one.
const brokerText = `sinks:
  %s:
    kind: %s
    addresses: [%s]
    topics: ["*"]
`

// graceText is added if the grace of sweeps is not the default.
const graceText = `sweep:
  grace: %s
`

// MayReplace reports whether a config file may be written to path: nothing is there, or the file of a private cluster.
func MayReplace(path string) bool {
	text, err := os.ReadFile(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && (len(text) == 0 || bytes.HasPrefix(text, []byte(configMark)))
}

// WriteConfig writes a config file with which other processes reach the cluster, and the secret of the samples' receiver into a folder.
func (s *Site) WriteConfig(path, secrets string) error {
	text := fmt.Sprintf(configText, s.Config.Cluster, s.Config.Layout.Databases, s.Config.Layout.Tables, s.Ownership(), secrets)
	for _, server := range s.Config.Servers {
		text += fmt.Sprintf(serverText, server.Name, server.DSN, strings.Join(strings.Fields(strings.Trim(fmt.Sprint(server.Databases), "[]")), ", "))
	}
	if s.Etcd != nil {
		text += fmt.Sprintf(etcdText, s.Etcd.Endpoint())
	}
	if s.grace > 0 {
		text += fmt.Sprintf(graceText, s.grace)
	}
	if b := s.broker; b != nil {
		text += fmt.Sprintf(brokerText, b.Name, b.Kind, b.Address)
	}
	err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.WriteFile(filepath.Join(secrets, secretName), []byte(secretValue), 0o600))
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	return nil
}

// Broker returns the broker beside the cluster; nil: there is none.
func (s *Site) Broker() *Broker { return s.broker }

// MySQLPort is where the first server listens on 127.0.0.1, for a SQL client.
func (c *Cluster) MySQLPort() int { return c.Servers[0].Port() }
