package devserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrNoRabbitMQ says that there is no RabbitMQ to run, and how to get one.
var ErrNoRabbitMQ = errors.New("rabbitmq-server not found in /usr/lib/rabbitmq/bin, nor in PATH: install it with `scripts/install-deps.sh test`")

// RabbitMQ is a private RabbitMQ without plugins, with a temporary folder. The user guest has the password guest. Beside it runs an epmd of
// its own, Erlang's register of nodes: one that a server starts by itself would outlive it.
type RabbitMQ struct {
	server
	epmd *Process
}

// StartRabbitMQ starts a RabbitMQ and returns when it takes connections. settings are lines of rabbitmq.conf beside its own. ctx bounds
// the start, not its life. It returns ErrNoRabbitMQ, or an error with the last error of its log.
func StartRabbitMQ(ctx context.Context, settings ...string) (*RabbitMQ, error) {
	// Debian's programs in PATH become the user rabbitmq.
	dirs := append([]string{"/usr/lib/rabbitmq/bin"}, systemDirs()...)
	path, err := firstProgram(dirs, ErrNoRabbitMQ, "rabbitmq-server")
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		r := &RabbitMQ{}
		r.spec = spec{
			name: "RabbitMQ", path: path, ready: "Server startup complete", failure: rabbitFailure,
			ports: []int{FreePort(), FreePort(), FreePort()}, // of clients, of Erlang's nodes, of epmd
			args:  func() []string { return nil },
		}
		r.prepare = func(ctx context.Context) error { return r.arrange(ctx, settings) }
		err := r.start(ctx)
		if err == nil {
			return r, nil
		}
		err = errors.Join(err, r.endEPMD())
		if attempt == portAttempts || r.log == nil || !r.log.portTaken() {
			return nil, err
		}
	}
}

// arrange writes the configuration and starts epmd.
func (r *RabbitMQ) arrange(ctx context.Context, settings []string) error {
	conf := append([]string{
		fmt.Sprintf("listeners.tcp.default = 127.0.0.1:%d", r.ports[0]),
		"disk_free_limit.absolute = 1MB",
		"log.file = false", "log.console = true", "log.console.level = info",
	}, settings...)
	file := r.in("rabbitmq.conf")
	if err := os.WriteFile(file, []byte(strings.Join(conf, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	r.env = append(os.Environ(),
		"HOME="+r.folder.path, // of Erlang's cookie
		"RABBITMQ_NODENAME=tocsin@localhost", fmt.Sprintf("RABBITMQ_DIST_PORT=%d", r.ports[1]),
		fmt.Sprintf("ERL_EPMD_PORT=%d", r.ports[2]), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_CONFIG_FILE="+file, "RABBITMQ_CONF_ENV_FILE=/dev/null", "RABBITMQ_ADVANCED_CONFIG_FILE="+r.in("advanced.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+r.in("enabled_plugins"), "RABBITMQ_MNESIA_BASE="+r.in(dataName), "RABBITMQ_LOG_BASE="+r.in("log"),
		"RABBITMQ_SCHEDULER_BIND_TYPE=u", // its threads may leave a core that others use
		"RABBITMQ_ALLOW_INPUT=true",      // the script becomes the server, in place of a shell that waits for it
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput -kernel inet_dist_use_interface {127,0,0,1}",
	)
	path, err := firstProgram(systemDirs(), ErrNoRabbitMQ, "epmd")
	if err != nil {
		return err
	}
	r.epmd, err = Launch(exec.Command(path, "-port", fmt.Sprint(r.ports[2]), "-address", "127.0.0.1"))
	if err != nil {
		return err
	}
	return r.epmd.await(ctx, r.log, func(ctx context.Context) bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", loopback(r.ports[2]))
		return err == nil && conn.Close() == nil
	})
}

func (r *RabbitMQ) in(name string) string { return filepath.Join(r.folder.path, name) }

// rabbitError matches the lines of its log that tell an error: of the configuration, and others. Most of [error] are Erlang's own account.
var rabbitError = regexp.MustCompile(`\[error\] <[0-9.]+> +- (.*)|(?:Error during startup|ERROR): (.*)`)

// rabbitFailure returns the error that a line of the log tells, or "".
func rabbitFailure(line string) string {
	m := rabbitError.FindStringSubmatch(line)
	switch {
	case strings.Contains(line, "eaddrinuse"):
		return "its port is already in use"
	case m == nil || strings.Contains(line, "failed_to_prepare_configuration"): // told before
		return ""
	}
	return m[1] + m[2]
}

// Control has the server evaluate an expression of Erlang, as `rabbitmqctl eval` does, which would take a second.
func (r *RabbitMQ) Control(ctx context.Context, expression string) error {
	path, err := firstProgram(systemDirs(), ErrNoRabbitMQ, "erl_call")
	if err != nil {
		return err
	}
	var said strings.Builder
	cmd := r.command(path, "-r", "-address", loopback(r.ports[1]), "-e")
	cmd.Stdin, cmd.Stdout = strings.NewReader(expression+".\n"), &said
	if err = r.run(ctx, cmd); err == nil && !strings.HasPrefix(said.String(), "{ok") {
		err = errors.New(said.String())
	}
	if err != nil {
		return fmt.Errorf("erl_call %s: %w", expression, err)
	}
	return nil
}

// Stop ends the server and its epmd, and removes the folder. It may be called again.
func (r *RabbitMQ) Stop() error { return errors.Join(r.server.Stop(), r.endEPMD()) }

func (r *RabbitMQ) endEPMD() error {
	if r.epmd == nil {
		return nil
	}
	return r.epmd.Kill()
}
