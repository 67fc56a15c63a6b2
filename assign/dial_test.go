package assign

import (
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// After an outage the others leave a node its tables for one TTL: it must not wait longer than that before it tries.
// gRPC's own waits grow: so many attempts would take it minutes.
func TestAClientTriesEachSecondToConnectAgain(t *testing.T) {
	t.Parallel()
	w := newWire(t, devtest.Etcd(t))
	client := dial(t, w.addr())
	w.setCut(true)
	before := w.tries.Load()
	poll(t, "12 attempts", func() bool { return w.tries.Load() >= before+12 })
	w.setCut(false)
	poll(t, "an answer", func() bool { return answer(t.Context(), client) == nil })
}
