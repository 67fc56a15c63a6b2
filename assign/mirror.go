package assign

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// mirror follows a group's keys. Its owner runs follow, and reads snapshot whenever changed says so.
type mirror struct {
	client  *clientv3.Client
	space   space
	tables  int
	timeout time.Duration // of a full read
	changed chan struct{} // 1 slot: wake-ups coalesce

	mu   sync.Mutex
	view view // zero until the first full read
}

// follow reads all keys and then every change. It returns when the watch breaks or is compacted, or ctx ends; then it
// is to be called again, and reads everything anew. The error is never nil.
func (m *mirror) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx)) // ends the watch
	defer cancel()
	v, err := m.read(ctx)
	if err != nil {
		return err
	}
	m.set(v)
	for resp := range m.client.Watch(ctx, string(m.space), clientv3.WithPrefix(), clientv3.WithRev(v.rev+1)) {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("watch %s in etcd: %w", m.space, err)
		}
		m.apply(resp.Events)
	}
	return fmt.Errorf("watch %s in etcd: it ended: %w", m.space, context.Cause(ctx))
}

// read reads all keys at one revision.
func (m *mirror) read(ctx context.Context) (view, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	return readView(ctx, m.client, m.space, m.tables)
}

func readView(ctx context.Context, client *clientv3.Client, s space, tables int) (view, error) {
	resp, err := client.Get(ctx, string(s), clientv3.WithPrefix())
	if err != nil {
		return view{}, fmt.Errorf("read %s from etcd: %w", s, err)
	}
	v := newView(s, tables, resp.Header.Revision)
	for _, kv := range resp.Kvs {
		v.put(kv, false)
	}
	return v, nil
}

func (m *mirror) set(v view) {
	m.mu.Lock()
	m.view = v
	m.mu.Unlock()
	m.wake()
}

func (m *mirror) apply(events []*clientv3.Event) {
	m.mu.Lock()
	m.view.apply(events)
	m.mu.Unlock()
	m.wake()
}

func (m *mirror) wake() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// snapshot gives the keys as they are known now; its revision is 0 until the first full read.
func (m *mirror) snapshot() view {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.clone()
}
