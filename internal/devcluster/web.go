package devcluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// web is an HTTP server on a loopback port.
type web struct {
	server   *http.Server
	listener net.Listener
	done     chan error
}

func startWeb(l net.Listener, h http.Handler) web {
	w := web{server: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}, listener: l, done: make(chan error, 1)}
	go func() { w.done <- w.server.Serve(l) }()
	return w
}

// stop ends the server and waits for it.
func (w web) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := w.server.Shutdown(ctx)
	if served := <-w.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
