package store

import (
	"testing"

	"github.com/tocsinhq/tocsin"
)

// A connection is gone once it was ended and the server has noticed, or if its server was left.
func TestAConnectionIsEnded(t *testing.T) {
	t.Parallel()
	b := open(t, tocsin.Layout{Databases: 1, Tables: 1})
	conn, err := b.conn(t.Context(), b.servers[0], []int{0})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	one := Connection{ID: connectionOf(t.Context(), conn), Term: b.Term(0)}
	var id uint64
	if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil || id != one.ID {
		t.Fatalf("connection %d, want %d: %v", one.ID, id, err)
	}
	if gone, err := b.EndConnection(t.Context(), 0, one); gone || err != nil {
		t.Errorf("gone: %v, %v, before it was ended", gone, err)
	}
	for range 1000 {
		gone, err := b.EndConnection(t.Context(), 0, one)
		if err != nil {
			t.Fatal(err)
		}
		if gone {
			break
		}
	}
	if gone, err := b.EndConnection(t.Context(), 0, one); !gone || err != nil {
		t.Errorf("gone: %v, %v", gone, err)
	}
	if gone, err := b.EndConnection(t.Context(), 0, Connection{ID: id + 1, Term: one.Term - 1}); !gone || err != nil {
		t.Errorf("of another server: %v, %v", gone, err)
	}
	if err := conn.QueryRowContext(t.Context(), "SELECT 1").Scan(&id); err == nil {
		t.Error("it lives")
	}
}
