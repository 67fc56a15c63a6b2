package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/sink"
	"github.com/tocsinhq/tocsin/test/bench"
)

// benchTopic is the one of a private broker.
const benchTopic = "bench"

// startTarget starts what --to asks for, or connects to it. end ends it, after the nodes.
func (f *benchFlags) startTarget(ctx context.Context) (end func() error, err error) {
	switch f.target {
	case "":
		return func() error { return nil }, nil
	case "pull":
		f.Target = &bench.Target{Pull: &f.pull}
		return func() error { return nil }, nil
	case "kafka":
		b, err := startBroker(ctx, 0, benchTopic)
		if err != nil {
			return nil, err
		}
		f.Target = &bench.Target{Sink: b.beside.Maker, Topic: benchTopic}
		return b.stop, nil
	case "webhook":
		return f.startReceiver()
	}
	u, err := url.Parse(f.target)
	if err != nil || u.Host == "" || len(u.Path) < 2 || sinkKinds[u.Scheme] == nil { // it may hold a password: not repeated
		return nil, usage("--to: want kafka, webhook, pull, or KIND://HOST:PORT/TOPIC with the kind %s", strings.Join(slices.Sorted(maps.Keys(sinkKinds)), ", "))
	}
	password, _ := u.User.Password()
	maker, err := sinkKinds[u.Scheme](sink.Config{Name: u.Scheme, Addresses: []string{u.Host}, Username: u.User.Username(), Password: password, Topics: []string{"*"}, Cluster: "bench", Logger: f.Logger})
	if err != nil {
		return nil, usageError{err}
	}
	f.Target = &bench.Target{Sink: maker, Topic: strings.TrimPrefix(u.Path, "/")}
	return func() error { return maker.Close(context.WithoutCancel(ctx)) }, nil
}

// listenBench begins to listen with the API of a node, with the limits of tocsin serve.
func listenBench(cfg node.Config, n *node.Node) (bench.API, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return bench.API{}, fmt.Errorf("API: %w", err)
	}
	of := config.Default().Node
	served := api.New(api.Config{
		Tables: cfg.Tables, Cluster: operator.View{Tables: cfg.Tables, ByRows: cfg.Ownership == node.ByRows, Etcd: cfg.Etcd}, Pull: n.Pull(),
		Body: int64(of.API.Limits.BodyKiB) << 10, Rate: of.API.Limits.Rate, Timeout: of.API.Limits.Timeout.D(), Drain: of.DrainTimeout.D(),
		Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	return bench.API{URL: "http://" + l.Addr().String(), Serve: func(ctx context.Context) error { return served.Serve(ctx, l, nil) }}, nil
}

// startReceiver answers all callbacks with 204.
func (f *benchFlags) startReceiver() (end func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receiver of callbacks: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.WriteHeader(http.StatusNoContent)
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }() // until it is closed
	f.Target = &bench.Target{URL: "http://" + l.Addr().String()}
	return func() error {
		err := server.Close()
		<-ended
		return err
	}, nil
}
