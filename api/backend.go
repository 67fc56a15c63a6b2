package api

import (
	"context"
	"errors"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/schedule"
)

// backend opens the client, operator and schedules when operations first need them, since the servers may be away when
// the API starts.
type backend struct {
	client opened[*tocsin.Client]
	people opened[*operator.Operator]
	timers opened[*schedule.Schedules]
}

func newBackend(cfg tocsin.Config) *backend {
	return &backend{
		client: opened[*tocsin.Client]{open: func(ctx context.Context) (*tocsin.Client, error) { return tocsin.Open(ctx, cfg) }},
		people: opened[*operator.Operator]{open: func(ctx context.Context) (*operator.Operator, error) { return operator.Open(ctx, cfg) }},
		timers: opened[*schedule.Schedules]{open: func(ctx context.Context) (*schedule.Schedules, error) { return schedule.Open(ctx, cfg) }},
	}
}

func (b *backend) close() error {
	return errors.Join(b.client.close(), b.people.close(), b.timers.close())
}

// opened is something that is opened once.
type opened[T interface{ Close() error }] struct {
	open func(context.Context) (T, error)

	mu    sync.Mutex
	ready bool
	value T
}

// get opens it, unless it is open. While one caller opens it, others wait.
func (o *opened[T]) get(ctx context.Context) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ready {
		return o.value, nil
	}
	if err := ctx.Err(); err != nil { // it waited for others, who did not succeed
		return o.value, err
	}
	value, err := o.open(ctx)
	if err == nil {
		o.value, o.ready = value, true
	}
	return value, err
}

func (o *opened[T]) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ready {
		return nil
	}
	return o.value.Close()
}
