package webhook

import (
	"context"
	"sync"
)

// Memory is a Done of this process: it forgets all when the process ends. Use it in
// tests, or where handling a task twice does little harm.
type Memory struct {
	mu   sync.Mutex
	has  map[string]bool
	ring []string
	next int // the place in ring of the oldest key, once it is full
}

// NewMemory makes a Memory of the last n keys, at least one.
func NewMemory(n int) *Memory {
	return &Memory{has: make(map[string]bool), ring: make([]string, max(n, 1))}
}

// Has reports whether the key is among the last ones.
func (m *Memory) Has(_ context.Context, key string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has[key], nil
}

// Put remembers the key, and forgets the oldest one.
func (m *Memory) Put(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.has[key] {
		return nil
	}
	delete(m.has, m.ring[m.next])
	m.ring[m.next], m.has[key] = key, true
	m.next = (m.next + 1) % len(m.ring)
	return nil
}
