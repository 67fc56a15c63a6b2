package tocsin_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

type orderID int64

func TestIDsOfOtherIntegerTypes(t *testing.T) {
	t.Parallel()
	client := open(t, cluster(t))
	for _, id := range []orderID{-1, math.MinInt64} {
		_, add := client.Add(t.Context(), tocsin.New(closeOrder, id, order{}, tocsin.In(time.Hour)))
		_, cancel := client.Cancel(t.Context(), tocsin.Of(closeOrder, id))
		_, list := tocsin.List(t.Context(), client, id)
		for _, err := range []error{add, cancel, list} {
			if !errors.Is(err, tocsin.ErrInvalid) {
				t.Errorf("%d: %v", id, err)
			}
		}
	}
	for _, id := range []orderID{1, math.MaxInt64} {
		added, err := client.Add(t.Context(), tocsin.New(closeOrder, id, order{}, tocsin.In(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		if found, err := tocsin.List(t.Context(), client, id); err != nil || len(found) != 1 || found[0].JobID != added.JobID || found[0].BizID != uint64(id) {
			t.Errorf("%+v, %v", found, err)
		}
		if done, err := client.Cancel(t.Context(), tocsin.Of(closeOrder, id)); err != nil || done.Changed != 1 {
			t.Errorf("%+v, %v", done, err)
		}
	}
	if _, err := client.Add(t.Context(), tocsin.New(closeOrder, uint64(math.MaxUint64), order{}, tocsin.In(time.Hour))); err != nil {
		t.Error(err)
	}
	if _, err := client.Add(t.Context(), tocsin.New(closeOrder, orderID(0), order{}, tocsin.In(time.Hour))); !errors.Is(err, tocsin.ErrInvalid) {
		t.Error(err)
	}
}

func TestDefineTakesOnePolicy(t *testing.T) {
	t.Parallel()
	if p, ok := tocsin.Define[string]("a", tocsin.Policy{Name: "b"}).Policy(); !ok || p.Name != "a" || p.Edition != 1 {
		t.Errorf("%+v, %v", p, ok)
	}
	if _, ok := tocsin.Define[string]("a").Policy(); ok {
		t.Error("a policy out of nothing")
	}
	defer func() {
		if recover() == nil {
			t.Error("two policies are taken")
		}
	}()
	tocsin.Define[string]("a", tocsin.Policy{}, tocsin.Policy{})
}
