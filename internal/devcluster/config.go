package devcluster

import (
	"fmt"
	"os"
	"strings"
)

// configText is the config file of a cluster, for a second terminal.
const configText = `# Written by tocsin dev; it goes when tocsin dev ends.
cluster: %s
layout:
  databases: %d
  tables: %d
  ownership: %s
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

// WriteConfig writes a config file with which other commands reach the cluster.
func (c *Cluster) WriteConfig(path string) error {
	text := fmt.Sprintf(configText, ClusterID, c.opts.Layout.Databases, c.opts.Layout.Tables, c.ownership())
	for _, server := range c.Config.Servers {
		text += fmt.Sprintf(serverText, server.Name, server.DSN, strings.Join(strings.Fields(strings.Trim(fmt.Sprint(server.Databases), "[]")), ", "))
	}
	if c.Etcd != nil {
		text += fmt.Sprintf(etcdText, c.Etcd.Endpoint())
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	return nil
}

// MySQLPort is where the first server listens on 127.0.0.1, for a SQL client.
func (c *Cluster) MySQLPort() int { return c.Servers[0].Port() }

// Secret is the environment variable by which another process signs the sample
// callbacks: a sweep from a second terminal, say.
func Secret() (name, value string) { return secretName, secretValue }
