package assign

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestEtcdKeepsTheHighestMarks(t *testing.T) {
	t.Parallel()
	client, cluster := dial(t, devtest.Etcd(t)), devtest.Prefix(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	far := keepWhen.Milliseconds()
	if _, err := client.Put(ctx, marksKey(cluster, "a"), "nonsense"); err != nil { // is replaced
		t.Fatal(err)
	}
	for _, c := range []struct {
		what        string
		identity    string
		known, want map[int]int64 // want: after known was merged
	}{
		{"only read", "a", nil, map[int]int64{}},
		{"the first marks", "a", map[int]int64{0: 5 * far, 1: 7 * far}, map[int]int64{0: 5 * far, 1: 7 * far}},
		{"too near to be worth a write", "a", map[int]int64{0: 5*far + 1}, map[int]int64{0: 5 * far, 1: 7 * far}},
		{"one higher, one lower", "a", map[int]int64{0: 6 * far, 1: far}, map[int]int64{0: 6 * far, 1: 7 * far}},
		{"of other databases", "b", map[int]int64{0: 9 * far}, map[int]int64{0: 9 * far}},
		{"those stay apart", "a", nil, map[int]int64{0: 6 * far, 1: 7 * far}},
	} {
		if _, err := KeepMarks(ctx, client, cluster, c.identity, c.known); err != nil {
			t.Fatal(err)
		}
		got, err := KeepMarks(ctx, client, cluster, c.identity, nil)
		if err != nil || len(got) != len(c.want) || len(got) > 0 && !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, %v, want %v", c.what, got, err, c.want)
		}
	}
}
