package api

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// The times and sizes of a connection, beside Config.
const (
	headerWithin = 10 * time.Second
	bodyWithin   = 30 * time.Second
	idleWithin   = 2 * time.Minute
	writeWithin  = 10 * time.Second // after the operation's time-out
	maxHeader    = 16 << 10
)

// Serve answers requests until ctx ends. Then it takes no more, gives those in hand Config.Drain to end, and closes the
// API. cfg is nil for plain text.
func (a *API) Serve(ctx context.Context, l net.Listener, cfg *tls.Config) error {
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s := &http.Server{
		BaseContext: func(net.Listener) context.Context { return work },
		Handler:     a, TLSConfig: cfg, ReadHeaderTimeout: headerWithin, ReadTimeout: bodyWithin, WriteTimeout: bodyWithin + a.cfg.Timeout + writeWithin,
		IdleTimeout: idleWithin, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0), // strangers' handshakes and broken connections
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bounded, cancel := context.WithTimeout(work, a.cfg.Drain)
		defer cancel()
		_ = s.Shutdown(bounded)
		end() // what is still in hand is cut off
	})
	err := serve(s, l)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	end()
	err = errors.Join(err, s.Close())
	a.inHand.Wait()
	return errors.Join(err, a.Close())
}

func serve(s *http.Server, l net.Listener) error {
	if s.TLSConfig == nil {
		return s.Serve(l)
	}
	return s.ServeTLS(l, "", "")
}
