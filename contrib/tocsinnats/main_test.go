package tocsinnats

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/sink"
)

func TestMain(m *testing.M) {
	// If nats.go has just closed the connection when the first message is published, this goroutine of it never ends.
	devtest.Main(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

// program is nats-server, a tool of this module: its package would make the tests' program half as large again, and be compiled for
// the race detector.
var program = sync.OnceValues(func() (string, error) {
	path, err := exec.Command("go", "tool", "-n", "nats-server").Output()
	return strings.TrimSpace(string(path)), err
})

// broker is a NATS server in a process of its own, so that it can be killed.
type broker struct {
	address, file string
	process       *devserver.Process
}

// newBroker starts a broker with settings beside those that each has. It is killed when the test ends.
func newBroker(tb testing.TB, settings string) *broker {
	tb.Helper()
	b := &broker{address: devtest.FreeAddress(), file: filepath.Join(tb.TempDir(), "nats.conf")}
	text := fmt.Sprintf("listen: %q\njetstream: {store_dir: %q}\nlog_file: %q\n%s\n", b.address, tb.TempDir(), b.file+".log", settings)
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
	path, err := program()
	if err != nil {
		tb.Fatalf("go tool nats-server: %v", err)
	}
	if b.process, err = devserver.Launch(exec.Command(path, "-c", b.file)); err != nil {
		tb.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", b.address)
		if err == nil {
			_ = conn.Close()
			return
		}
		if !b.process.Alive() || time.Now().After(end) {
			said, _ := os.ReadFile(b.file + ".log")
			tb.Fatalf("the broker takes no connections: %v\n%s", err, said)
		}
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
