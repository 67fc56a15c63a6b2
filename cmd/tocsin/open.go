package main

import (
	"context"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/store"
)

// client opens the client of the config's cluster.
func (a *app) client(ctx context.Context) (*tocsin.Client, error) {
	cfg, err := a.cluster()
	if err != nil {
		return nil, err
	}
	return tocsin.Open(ctx, cfg)
}

// operator connects to the config's cluster.
func (a *app) operator(ctx context.Context) (*operator.Operator, error) {
	cfg, err := a.cluster()
	if err != nil {
		return nil, err
	}
	return operator.Open(ctx, cfg)
}

// store opens the pools of the config's servers and connects to none.
func (a *app) store() (*store.Store, error) {
	cfg, err := a.cluster()
	if err != nil {
		return nil, err
	}
	return store.Open(cfg)
}

// connect opens the pools of the config's servers, one of which must answer, and
// refuses a cluster that is not the config's.
func (a *app) connect(ctx context.Context) (*store.Store, error) {
	cfg, err := a.cluster()
	if err != nil {
		return nil, err
	}
	return store.Connect(ctx, cfg)
}

// cluster reads the servers and the layout of the config file.
func (a *app) cluster() (tocsin.Config, error) {
	file, err := a.load()
	if err != nil {
		return tocsin.Config{}, err
	}
	return file.Tocsin(), nil
}
