package biztype_test

import (
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin/biztype"
)

func TestSetPausedChangesNothingElse(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	apply(t, cfg, closeOrder, remind)
	want, err := biztype.Load(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		paused  bool
		verdict biztype.Verdict
	}{{true, biztype.Changed}, {true, biztype.Unchanged}, {false, biztype.Changed}} {
		res, err := biztype.SetPaused(t.Context(), cfg, "order.close", c.paused)
		if err != nil || len(res.Types) != 1 || res.Types[0].Verdict != c.verdict {
			t.Errorf("paused %t: %+v, %v", c.paused, res, err)
		}
		want[0].Paused = c.paused
		if stored, err := biztype.Load(t.Context(), cfg); err != nil || !reflect.DeepEqual(stored, want) {
			t.Errorf("stored %+v, %v\nwant %+v", stored, err, want)
		}
	}
	if _, err := biztype.SetPaused(t.Context(), cfg, "unheard", true); err == nil || !strings.Contains(err.Error(), `unknown biz type "unheard"`) {
		t.Errorf("%v", err)
	}
}

// A pause while others apply must neither be lost nor undo their change.
func TestSetPausedBesideAnApplyOfAnotherType(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	apply(t, cfg, closeOrder, remind)
	slower := remind
	slower.Attempts = 3
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := biztype.SetPaused(t.Context(), cfg, "order.close", true); err != nil {
			t.Error(err)
		}
	})
	both.Go(func() {
		if _, err := biztype.Apply(t.Context(), cfg, []biztype.Policy{slower}); err != nil {
			t.Error(err)
		}
	})
	both.Wait()
	stored, err := biztype.Load(t.Context(), cfg)
	if err != nil || len(stored) != 2 || !stored[0].Paused || stored[1].Attempts != 3 || stored[1].Paused {
		t.Errorf("%+v, %v", stored, err)
	}
}
