package bench

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/node"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// given are Options on the servers of the tests.
func given(t *testing.T, l tocsin.Layout) Options {
	t.Helper()
	return Options{
		Layout: l, Servers: []tocsin.Server{{Name: "test", DSN: devtest.DSN(t)}},
		Etcd: node.EtcdConfig{Endpoints: []string{devtest.Etcd(t)}},
	}
}

// open makes the tables of a run, which go when the test ends.
func open(t *testing.T, o Options) *site {
	t.Helper()
	s, err := openSite(t.Context(), o, true)
	must(t, err)
	t.Cleanup(func() { must(t, s.close()) })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill stores rows and returns when those that are due soon are.
func fill(t *testing.T, s *site, n int, due time.Duration) {
	t.Helper()
	all, err := s.fill(t.Context(), n, at(due))
	must(t, err)
	if due < time.Second {
		must(t, wait.Until(t.Context(), all))
	}
}
