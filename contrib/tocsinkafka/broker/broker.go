// Package broker runs a Kafka broker for tests and for `tocsin dev`: kfake of franz-go, which speaks Kafka's protocol to any
// client, in a process of its own, so that it can be killed and started again.
//
// The process is this program once more. Programs that call Start call Main before anything else, tests in TestMain. A broker
// with a folder keeps topics and records in it. What was acknowledged survives kill -9 of the broker, not a crash of the machine.
// If the parent dies, so does the broker.
package broker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// Config says how to run a broker.
type Config struct {
	Dir       string           // keeps its data; made if missing. "": a broker that was killed has lost all
	Port      int              // on 127.0.0.1; 0: a free one
	Topics    map[string]int32 // that it has at its first start, with their partitions
	Users     []User           // none: everybody may do everything
	Cert, Key string           // PEM files for TLS; "": plain text
}

// User may sign in to a broker.
type User struct {
	Mechanism, Name, Password string   // of SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
	Describes, Writes         []string // topics that the user may look at, and write to; neither: everything
}

// env has the Config of a broker for its process, as JSON.
const env = "TOCSIN_KAFKA_BROKER"

// Main runs a broker and ends the process, if Start has started the process. Otherwise it does nothing.
func Main() {
	text, ok := os.LookupEnv(env)
	if !ok {
		return
	}
	if err := run(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run runs a broker until the process is asked to end. It prints the address once the broker serves.
func run(text string) error {
	var cfg Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	opts, err := options(cfg)
	if err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Println(cluster.ListenAddrs()[0])
	<-ended
	return nil
}

func options(cfg Config) ([]kfake.Opt, error) {
	opts := []kfake.Opt{kfake.Ports(cfg.Port), kfake.DataDir(cfg.Dir), kfake.ClusterID("tocsin")}
	for topic, partitions := range cfg.Topics {
		opts = append(opts, kfake.SeedTopics(partitions, topic))
	}
	for _, u := range cfg.Users {
		if len(u.Describes)+len(u.Writes) == 0 {
			opts = append(opts, kfake.EnableSASL(), kfake.Superuser(u.Mechanism, u.Name, u.Password))
			continue
		}
		opts = append(opts, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User(u.Mechanism, u.Name, u.Password, rights(u)...))
	}
	if cfg.Cert != "" {
		cert, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
	}
	return opts, nil
}

func rights(u User) (all []kfake.ACL) {
	for operation, topics := range map[kmsg.ACLOperation][]string{kmsg.ACLOperationDescribe: u.Describes, kmsg.ACLOperationWrite: u.Writes} {
		for _, topic := range topics {
			all = append(all, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true})
		}
	}
	return all
}

// Broker is a broker in a process of its own. Its methods must not be called concurrently.
type Broker struct {
	cfg    Config
	proc   *devserver.Process
	stderr *bytes.Buffer // of proc
}

// Start starts a broker and returns when it serves. ctx bounds the start, not the broker's life.
func Start(ctx context.Context, cfg Config) (*Broker, error) {
	cfg.Port = cmp.Or(cfg.Port, devserver.FreePort())
	b := &Broker{cfg: cfg}
	if err := b.Restart(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// Address returns "127.0.0.1:port", the same after a Restart.
func (b *Broker) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.cfg.Port)) }

// Restart starts a broker that has ended, with its data, and returns when it serves. It does nothing if the broker runs.
func (b *Broker) Restart(ctx context.Context) error {
	if b.proc != nil && b.proc.Alive() {
		return nil
	}
	if err := b.launch(ctx); err != nil {
		return fmt.Errorf("start a Kafka broker on %s: %w", b.Address(), err)
	}
	return nil
}

func (b *Broker) launch(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(b.cfg)
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	b.stderr = new(bytes.Buffer)
	cmd := exec.Command(program)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env+"="+string(text)), write, b.stderr
	b.proc, err = devserver.Launch(cmd)
	_ = write.Close() // the process has its own
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = b.proc.Signal(syscall.SIGKILL) })
	defer stop()
	if _, err := bufio.NewReader(read).ReadString('\n'); err == nil {
		return nil
	}
	_ = b.Kill()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New(cmp.Or(string(bytes.TrimSpace(b.stderr.Bytes())), "it has ended"))
}

// Freeze stops the broker, which then answers nothing and keeps its connections, and returns when it has stopped.
func (b *Broker) Freeze() error {
	if err := b.proc.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		_, err := syscall.Wait4(b.proc.Pid, nil, syscall.WUNTRACED, nil)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Thaw lets a frozen broker go on.
func (b *Broker) Thaw() error { return b.proc.Signal(syscall.SIGCONT) }

// Kill ends the broker with SIGKILL and waits.
func (b *Broker) Kill() error { return b.proc.Kill() }

// Stop asks the broker to end and waits; if ctx ends before, the broker is killed.
func (b *Broker) Stop(ctx context.Context) error {
	if err := b.proc.Signal(syscall.SIGTERM); err != nil {
		return nil // it has ended
	}
	_ = b.proc.Wait(ctx)
	return b.Kill()
}
