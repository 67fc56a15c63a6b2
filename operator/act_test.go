package operator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// said is what an act has answered of each task, in a word.
func said(all []operator.Acted) (words []string) {
	for _, one := range all {
		word := one.Status
		for name, is := range map[string]error{
			"status": operator.ErrStatus, "not found": tocsin.ErrNotFound, "in delivery": tocsin.ErrInDelivery, "unknown": tocsin.ErrUnknownOutcome, "away": tocsin.ErrUnreachable,
		} {
			if errors.Is(one.Err, is) {
				word = name
			}
		}
		if one.Err != nil && word == one.Status {
			word = "error"
		}
		words = append(words, word)
	}
	return words
}

func TestAnActAnswersForEachTaskInTheOrderGiven(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	buried := dead(t, cluster, o, 2, "no route")
	foreign := add(t, cluster, remind.New(1, "", tocsin.In(time.Hour)))
	pending, due := add(t, cluster, closing.New(2, "", tocsin.In(time.Hour))), add(t, cluster, closing.New(3, "", tocsin.In(0)))
	ids := []tocsin.JobID{buried[1], foreign, pending, 1<<63 - 1, 0, buried[0], due + 1, due}
	ours := func(name string) bool { return name == closing.Name() }
	for _, c := range []struct {
		act  operator.Act
		want []string
	}{
		{operator.Act{Deed: operator.DeedRedrive}, []string{"pending", "not found", "status", "not found", "not found", "pending", "not found", "status"}},
		{operator.Act{Deed: operator.DeedReschedule, When: tocsin.In(time.Hour)}, []string{"pending", "not found", "pending", "not found", "not found", "pending", "not found", "pending"}},
		{operator.Act{Deed: operator.DeedCancel}, []string{"cancelled", "not found", "cancelled", "not found", "not found", "cancelled", "not found", "cancelled"}},
		{operator.Act{Deed: operator.DeedCancel}, []string{"cancelled", "not found", "cancelled", "not found", "not found", "cancelled", "not found", "cancelled"}},
		{operator.Act{Deed: operator.DeedBury, Reason: "void"}, []string{"status", "not found", "status", "not found", "not found", "status", "not found", "status"}},
	} {
		c.act.IDs, c.act.Sees = ids, ours
		all, err := o.Act(t.Context(), c.act)
		if got := said(all); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v, want %q", c.act.Deed, got, err, c.want)
		}
		for i, one := range all {
			if one.JobID != ids[i] || (one.BizType == "") != errors.Is(one.Err, tocsin.ErrNotFound) {
				t.Errorf("%+v", one)
			}
		}
	}
	if all, err := o.Act(t.Context(), operator.Act{Deed: operator.DeedCancel, IDs: []tocsin.JobID{foreign}}); err != nil || !slices.Equal(said(all), []string{"cancelled"}) {
		t.Errorf("%+v, %v", all, err)
	}
	info, err := cluster.Client.Get(t.Context(), buried[0])
	if err != nil || info.Version != 2 || info.Status != tocsin.Cancelled {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestAnActThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	o, _ := open(t)
	for want, act := range map[string]operator.Act{
		`deed "purge": use redrive, bury, cancel or reschedule`: {Deed: "purge", IDs: []tocsin.JobID{512}},
		"0 tasks: use 1 to 500":                                 {Deed: operator.DeedBury},
		"501 tasks: use 1 to 500":                               {Deed: operator.DeedCancel, IDs: make([]tocsin.JobID, 501)},
		"no action time":                                        {Deed: operator.DeedReschedule, IDs: []tocsin.JobID{512}},
		"more than 10 years away":                               {Deed: operator.DeedReschedule, IDs: []tocsin.JobID{512}, When: tocsin.In(11 * 365 * 24 * time.Hour)},
	} {
		if all, err := o.Act(t.Context(), act); all != nil || !errors.Is(err, tocsin.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v, want %s", all, err, want)
		}
	}
}

// Of a server that is away the tasks have an error, and those of the others are changed.
func TestAnActIsDoneOnTheServersThatAnswer(t *testing.T) {
	t.Parallel()
	v, proxy := attended(t)
	o, err := operator.Open(t.Context(), v.Tables)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	client, err := tocsin.Open(t.Context(), v.Tables)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var ids []tocsin.JobID
	for n := range 10 {
		ids = append(ids, add(t, &tocsintest.Cluster{Client: client}, closing.New(uint64(n+1), "", tocsin.In(time.Hour))))
	}
	proxy.BreakAt("tocsin fate", true, 100) // of the second server's tasks
	all, err := o.Act(t.Context(), operator.Act{Deed: operator.DeedBury, IDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if second := client.Layout().DatabaseOf(one.JobID.Table()) == 1; second != (one.Err != nil) || second != (one.Status == "") || second && !strings.Contains(one.Err.Error(), "on db2") {
			t.Errorf("on the second server %t: %+v", second, one)
		}
	}
}

// A function of UseChanges sees an act that cancels or reschedules, and may refuse it.
func TestAnActGoesThroughTheFunctionsOfUseChanges(t *testing.T) {
	t.Parallel()
	cluster := tocsintest.Start(t, closing)
	cfg, refused := cluster.Config, errors.New("not on a Friday")
	var seen []string
	cfg.UseChanges = append(cfg.UseChanges, func(next tocsin.ChangeFunc) tocsin.ChangeFunc {
		return func(ctx context.Context, call *tocsin.Changing) error {
			if seen = append(seen, call.Op); call.Op == "cancel" {
				return refused
			}
			return next(ctx, call)
		}
	})
	o, err := operator.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	ids := []tocsin.JobID{add(t, cluster, closing.New(1, "", tocsin.In(time.Hour)))}
	if all, err := o.Act(t.Context(), operator.Act{Deed: operator.DeedCancel, IDs: ids}); all != nil || !errors.Is(err, refused) {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := o.Act(t.Context(), operator.Act{Deed: operator.DeedReschedule, IDs: ids, When: tocsin.In(time.Minute)}); err != nil || all[0].Err != nil {
		t.Errorf("%+v, %v", all, err)
	}
	if !slices.Equal(seen, []string{"cancel", "reschedule"}) {
		t.Errorf("%q", seen)
	}
}
