package tocsinnats

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/sink"
)

// runsBroker makes a process of the test's program a broker: its value is the file of the broker's settings.
const runsBroker = "TOCSINNATS_TEST_BROKER"

func TestMain(m *testing.M) {
	if file := os.Getenv(runsBroker); file != "" {
		serve(file)
	}
	// If nats.go has just closed the connection when the first message is published, this goroutine of it never ends.
	devtest.Main(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

// serve runs the broker until it is killed.
func serve(file string) {
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s, err := server.NewServer(options)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		fmt.Println("it takes no connections")
		os.Exit(1)
	}
	fmt.Println("ready")
	s.WaitForShutdown()
	os.Exit(0)
}

// broker is a NATS server in a process of its own, so that it can be killed.
type broker struct {
	address, file string
	process       *devserver.Process
}

// newBroker starts a broker with settings beside those that each has. It is killed when the test ends.
func newBroker(tb testing.TB, settings string) *broker {
	tb.Helper()
	b := &broker{address: devtest.FreeAddress(), file: filepath.Join(tb.TempDir(), "nats.conf")}
	text := fmt.Sprintf("listen: %q\njetstream: {store_dir: %q}\n%s\n", b.address, tb.TempDir(), settings)
	if err := os.WriteFile(b.file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { b.kill(tb) })
	b.start(tb)
	return b
}

func (b *broker) start(tb testing.TB) {
	tb.Helper()
	if b.process != nil && b.process.Alive() {
		return
	}
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	said, out, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	defer said.Close()
	cmd := exec.Command(program)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), runsBroker+"="+b.file), out, os.Stderr
	b.process, err = devserver.Launch(cmd)
	out.Close()
	if err != nil {
		tb.Fatal(err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || line != "ready\n" {
		tb.Fatalf("the broker says %q, %v", line, err)
	}
}

// kill ends the broker as kill -9 does.
func (b *broker) kill(tb testing.TB) {
	tb.Helper()
	if b.process != nil {
		if err := b.process.Kill(); err != nil {
			tb.Fatal(err)
		}
	}
}

func (b *broker) signal(tb testing.TB, s syscall.Signal) {
	tb.Helper()
	if err := b.process.Signal(s); err != nil {
		tb.Fatal(err)
	}
}

// freeze lets the broker answer nothing, while its connections stay. It waits until each thread has stopped: one that runs answers.
func (b *broker) freeze(tb testing.TB) {
	tb.Helper()
	b.signal(tb, syscall.SIGSTOP)
	for tb.Context().Err() == nil {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", b.process.Pid))
		runs := func(file string) bool {
			text, err := os.ReadFile(file)
			_, state, _ := bytes.Cut(text, []byte(") "))
			return err != nil || !bytes.HasPrefix(state, []byte("T"))
		}
		if err == nil && len(files) > 0 && !slices.ContainsFunc(files, runs) {
			return
		}
	}
}

func (b *broker) thaw(tb testing.TB) { b.signal(tb, syscall.SIGCONT) }

// config is that of a sink which may use any subject.
func (b *broker) config() sink.Config {
	return sink.Config{Name: "nats", Addresses: []string{b.address}, Topics: []string{"*"}, Cluster: "test"}
}

// admin connects a user that may do all.
func (b *broker) admin(tb testing.TB, options ...nats.Option) jetstream.JetStream {
	tb.Helper()
	conn, err := nats.Connect(b.address, options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// create makes a stream.
func create(tb testing.TB, js jetstream.JetStream, cfg jetstream.StreamConfig) jetstream.Stream {
	tb.Helper()
	s, err := js.CreateStream(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// count returns how many messages a stream has.
func count(tb testing.TB, s jetstream.Stream) uint64 {
	tb.Helper()
	info, err := s.Info(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return info.State.Msgs
}

// messages reads a stream from its start until it has had n.
func messages(tb testing.TB, s jetstream.Stream, n int) (all []jetstream.Msg) {
	tb.Helper()
	consumer, err := s.OrderedConsumer(tb.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		tb.Fatal(err)
	}
	n = max(n, int(count(tb, s)))
	read, err := consumer.Fetch(n, jetstream.FetchMaxWait(time.Minute))
	if err != nil {
		tb.Fatal(err)
	}
	for m := range read.Messages() {
		all = append(all, m)
	}
	if len(all) < n {
		tb.Fatalf("%d of %d messages: %v", len(all), n, read.Error())
	}
	return all
}
