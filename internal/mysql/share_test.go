package mysql

import (
	"slices"
	"testing"
)

func TestPoolsDivideWhatTheyShare(t *testing.T) {
	t.Parallel()
	const dsn = "root@tcp(127.0.0.1:1)/" // no test connects
	pool := func(s Spec) *Server {
		t.Helper()
		server, err := Open(s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.DB.Close() })
		return server
	}
	most := func(want ...int) func(...*Server) {
		return func(pools ...*Server) {
			t.Helper()
			var got []int
			for _, p := range pools {
				got = append(got, p.DB.Stats().MaxOpenConnections)
			}
			if !slices.Equal(got, want) {
				t.Errorf("connections at most: %v, want %v", got, want)
			}
		}
	}
	spec := Spec{DSN: dsn, MaxConns: 16, Share: t.Name()}
	client := pool(spec)
	most(16)(client)
	beside := spec
	beside.Beside = 2
	node := pool(beside)
	most(7, 7)(client, node)
	sweep := pool(beside)
	most(4, 4, 4)(client, node, sweep)
	alone, other, greater := spec, spec, spec
	alone.Share, other.Share, greater.MaxConns = "", t.Name()+" another cluster", 17
	most(16, 16, 17, 4)(pool(alone), pool(other), pool(greater), client)
	for _, p := range []*Server{node, node, sweep} { // a second Close does nothing
		if err := p.DB.Close(); err != nil {
			t.Error(err)
		}
	}
	most(16)(client)
	zero := Spec{DSN: dsn, Share: t.Name()} // the default is the client's limit
	most(6, 5, 5)(client, pool(zero), pool(zero))
}

func TestEveryPartHasAConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		room, n int
		want    []int
	}{
		{14, 1, []int{14}}, {14, 2, []int{7, 7}}, {13, 2, []int{7, 6}}, {12, 5, []int{3, 3, 2, 2, 2}},
		{2, 2, []int{1, 1}}, {1, 3, []int{1, 1, 1}}, {-4, 2, []int{1, 1}},
	} {
		if got := parts(c.room, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%d for %d: %v, want %v", c.room, c.n, got, c.want)
		}
	}
}
