package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// The pools of one process share what they know of a server's addresses: a node may start long after its client has moved.
func TestAStoreThatIsOpenedAfterAMoveKnowsTheTime(t *testing.T) {
	t.Parallel()
	p := devtest.NewPair(t, true)
	cfg := tocsin.Config{Layout: small, Cluster: "test", Servers: []tocsin.Server{{Name: "db1", DSN: p.DSN()}}}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{}); err != nil {
		t.Fatal(err)
	}
	connect := func() *Store {
		t.Helper()
		s, err := Connect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	early := connect()
	p.Freeze(0, true) // what is told of its addresses is as they were seen last, and not as the server answered last
	for told := false; !told; {
		timed, cancel := context.WithTimeout(t.Context(), time.Second)
		found, err := early.Survey(timed, 0)
		cancel()
		if len(found.Addresses) != 2 {
			t.Fatalf("%+v, %v", found, err)
		}
		told = err != nil && !found.Addresses[0].Writes && found.Addresses[0].Silent && strings.HasSuffix(found.Addresses[0].Why, "no answer within 2s")
	}
	p.Freeze(0, false)
	p.Exec(0, "SET GLOBAL read_only = 1")
	p.Promote(1)
	<-early.Moved(0)

	late := connect()
	late.Hold()
	if _, err := late.Measure(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if late.Term(0) != 1 || late.Now(0) == 0 {
		t.Errorf("term %d, clock %d: want one move, and the time", late.Term(0), late.Now(0))
	}
}
