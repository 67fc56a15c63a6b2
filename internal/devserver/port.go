package devserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are chosen below the range that kernels hand out to outgoing connections (32768 and up). A port from that
// range could be taken by any connection between a Kill and the restart, and a client that keeps dialling one can be
// connected to itself.
const (
	firstPort = 20000
	ports     = 12000
)

// ErrPortInUse says that somebody listens on the wanted port.
var ErrPortInUse = errors.New("is in use: stop what listens there or choose another port")

// probePort returns ErrPortInUse unless the port can be listened on.
func probePort(port int) error {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return fmt.Errorf("port %d on 127.0.0.1 %w", port, explainListen(err))
	}
	return l.Close()
}

// handedOut holds the ports that FreePort has returned. Most are listened on only seconds later.
var handedOut sync.Map

// FreePort returns a port of 127.0.0.1 that nobody listens on right now, and never the same port twice in one process. The
// system hands out none of these ports by itself, neither to outgoing connections nor to listeners on port 0. If it
// finds none it returns a random port: the server on it then reports what is wrong.
func FreePort() int {
	for range 100 {
		port := randomPort()
		if _, again := handedOut.LoadOrStore(port, nil); !again && probePort(port) == nil {
			return port
		}
	}
	return randomPort()
}

func randomPort() int { return firstPort + rand.IntN(ports) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
