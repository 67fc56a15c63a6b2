package assign

import (
	"context"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// After an outage the others leave a node its tables for one TTL: it must not wait longer than that before it tries.
func TestAClientIsBackSoonAfterALongOutage(t *testing.T) {
	t.Parallel()
	w := newWire(t, devtest.Etcd(t))
	client := dial(t, w.addr())
	w.setCut(true)
	time.Sleep(6 * time.Second) // gRPC's own waits have grown to 4 s by now
	w.setCut(false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := answer(ctx, client); err != nil {
		t.Errorf("not back within 2 s: %v", err)
	}
}
