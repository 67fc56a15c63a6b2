package ddl

import (
	"testing"
)

func TestApplyCreatesEverythingOnceAndThenNothing(t *testing.T) {
	t.Parallel()
	cfg := config(t, 8, 16)
	var done, total int
	first, err := Apply(t.Context(), cfg, Options{Progress: func(d, n int) { done, total = d, n }})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Result{Cluster: first.Cluster, Databases: 8, Tables: 8 * 20}); first != want || first.Cluster == "" {
		t.Errorf("first Apply: %+v, want %+v", first, want)
	}
	if done != 160 || total != 160 {
		t.Errorf("progress ended at %d of %d, want 160 of 160", done, total)
	}
	again, err := Apply(t.Context(), cfg, Options{})
	if want := (Result{Cluster: first.Cluster, Existing: 160}); err != nil || again != want {
		t.Errorf("second Apply: %+v, %v, want %+v", again, err, want)
	}
}
