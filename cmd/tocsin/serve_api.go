package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/config"
)

// apiServer is the API of tocsin serve; nil: there is none.
type apiServer struct {
	served   *api.API
	of       config.API
	listener net.Listener
}

// listenAPI takes the address of the API at once, as listen does. r may be nil.
func (a *app) listenAPI(file config.File, address string, log *slog.Logger, r prometheus.Registerer) (*apiServer, error) {
	of := file.Node.API
	if address == "" || address == config.Off {
		return nil, nil
	}
	if err := of.LoopbackOnly(address); err != nil {
		return nil, usageError{err}
	}
	tokens, err := of.TokenSource(func(err error) { log.Warn("the API keeps its last tokens", "error", err) })
	if err != nil {
		return nil, err
	}
	view, err := a.view()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("API: %w: free the port, or choose another with --api or node.api.listen", err)
	}
	log.Info("the API listens", "address", l.Addr().String(), "tokens", of.HasTokens(), "tls", of.TLS.Cert != "")
	return &apiServer{api.New(api.Config{
		Tables: file.Tocsin(), Cluster: view, Tokens: tokens, Origins: of.CORS, Body: int64(of.Limits.BodyKiB) << 10, Rate: of.Limits.Rate,
		Timeout: of.Limits.Timeout.D(), Drain: file.Node.DrainTimeout.D(), Logger: log, Registerer: r,
	}), of, l}, nil
}

// serve answers until ctx ends, and lets requests in hand end.
func (s *apiServer) serve(ctx context.Context) error {
	if s == nil {
		return nil
	}
	cfg, err := s.of.ServerTLS()
	if err != nil {
		return err
	}
	return s.served.Serve(ctx, s.listener, cfg)
}

// url is where the API is.
func (s *apiServer) url() string { return "http://" + s.listener.Addr().String() }
