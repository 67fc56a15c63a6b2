package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// configText is the config file of the real program in a seat, with the addresses by which the seat reaches servers and etcd.
func (s *Site) configText(at *seat, listen string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: %s\nlayout: {databases: %d, tables: %d, prefix: %s, ownership: %s}\nservers:\n", s.opts.Layout.Prefix,
		s.opts.Layout.Databases, s.opts.Layout.Tables, s.opts.Layout.Prefix, s.opts.ownership())
	for _, server := range s.tables(at).Servers {
		fmt.Fprintf(&b, "  - {name: %s, dsn: %q, databases: %s}\n", server.Name, server.DSN, strings.ReplaceAll(fmt.Sprint(server.Databases), " ", ", "))
	}
	if !s.opts.NoEtcd {
		fmt.Fprintf(&b, "etcd: {endpoints: [\"%s\"]}\n", strings.Join(at.endpoints(), `", "`))
	}
	fmt.Fprintf(&b, "node: {name: %s, listen: %q}\nscan: {interval: %s}\nsweep: {grace: %s}\n", at.name, listen, s.opts.Timing.Scan, s.opts.Timing.Grace)
	return b.String()
}

// program is the command that runs the real program as the node of a seat, with its API.
func (s *Site) program(at *seat) (*exec.Cmd, error) {
	path := filepath.Join(s.opts.Dir, at.name+".yaml")
	if err := os.WriteFile(path, []byte(s.configText(at, "off")), 0o600); err != nil {
		return nil, err
	}
	return exec.Command(s.opts.Program, "serve", "--group", group, "--config", path, "--api", at.api.upstream()), nil
}
