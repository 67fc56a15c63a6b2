package assign

import (
	"net"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// After an outage the others leave a node its tables for one TTL: it must not wait longer than that before it tries.
// gRPC's own waits grow: so many attempts would take it minutes.
func TestAClientTriesTwiceASecondToConnectAgain(t *testing.T) {
	t.Parallel()
	way := devtest.NewRelay(t, devtest.Etcd(t))
	client := dial(t, way.Addr)
	way.Cut()
	refusing, err := net.Listen("tcp", way.Addr)
	if err == nil {
		err = refusing.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	}
	for n := 0; err == nil && n < 12; n++ {
		var conn net.Conn
		if conn, err = refusing.Accept(); err == nil {
			err = conn.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = refusing.Close()
	way.Mend(t)
	poll(t, "an answer", func() bool { return answer(t.Context(), client) == nil })
}

// A renewal begins a third of the TTL after the last one, and may take as long. What may have to be done again after that
// must be over before the lease is not trusted any more.
func TestWhatARenewalWaitsForFitsIntoALease(t *testing.T) {
	t.Parallel()
	connect := time.Duration(float64(reconnect.MaxDelay) * (1 + reconnect.Jitter))
	for _, ttl := range []time.Duration{MinTTL, DefaultTTL, 10 * time.Second} {
		trusted := ttl - margin(ttl)
		for what, took := range map[string]time.Duration{
			"a renewal in vain and the next one's start": 2*ttl/3 + ttl/20,
			"a renewal after one attempt to connect":     ttl/3 + connect,
		} {
			if took >= trusted {
				t.Errorf("TTL %s: %s: after %s, trusted for %s", ttl, what, took, trusted)
			}
		}
		if margin(ttl) < stopping {
			t.Errorf("TTL %s: %s are left for claiming what is in delivery", ttl, margin(ttl))
		}
	}
	if dead := DefaultTTL/3 + aliveTimeout + reconnect.BaseDelay; dead >= DefaultTTL-margin(DefaultTTL) {
		t.Errorf("a dead connection is replaced after %s", dead)
	}
	const look = 500 * time.Millisecond // of etcd, for leases that have ended
	if free := DefaultTTL + look + DefaultReplanDelay; free > 4*time.Second {
		t.Errorf("the tables of a node that was killed have an owner after %s only", free)
	}
	if returnPause <= connect {
		t.Errorf("others connect again within %s, and are waited for for %s", connect, returnPause)
	}
}
