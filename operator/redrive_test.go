package operator_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// dead adds n dead tasks of order.close whose last error is the given one.
func dead(t *testing.T, c *tocsintest.Cluster, o *operator.Operator, n int, lastError string) (ids []tocsin.JobID) {
	t.Helper()
	for range n {
		ids = append(ids, add(t, c, closing.New(uint64(len(ids)+1), "", tocsin.In(time.Hour))))
		if _, err := o.Bury(t.Context(), ids[len(ids)-1], lastError); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

func TestARedriveTakesWhatItsQueryNamesAndNoMore(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	old := dead(t, cluster, o, 3, "no stock")
	for _, id := range old {
		query := fmt.Sprintf("UPDATE %s SET action_time = UTC_TIMESTAMP(3) - INTERVAL 2 HOUR WHERE job_id = %d", cluster.Client.Layout().Table(id.Table()), id)
		if _, err := cluster.DB.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	dead(t, cluster, o, 4, "no route")
	restored := dead(t, cluster, o, 5, layoutrow.RestoredError+"yesterday")
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for name, c := range map[string]struct {
		q    operator.DeadQuery
		want operator.Redriven
	}{
		"all":                  {operator.DeadQuery{}, operator.Redriven{Tasks: 7, Left: 5}},
		"of a type":            {operator.DeadQuery{BizType: "coupon.remind"}, operator.Redriven{}},
		"since":                {operator.DeadQuery{Since: ago(time.Hour)}, operator.Redriven{Tasks: 4, Left: 5}},
		"until":                {operator.DeadQuery{Until: ago(time.Hour)}, operator.Redriven{Tasks: 3}},
		"between":              {operator.DeadQuery{Since: ago(3 * time.Hour), Until: ago(time.Hour)}, operator.Redriven{Tasks: 3}},
		"of an error":          {operator.DeadQuery{Error: "rout"}, operator.Redriven{Tasks: 4}},
		"a limit":              {operator.DeadQuery{Limit: 2, Until: ago(time.Hour)}, operator.Redriven{Tasks: 2, More: true}},
		"a limit out of reach": {operator.DeadQuery{Limit: 20_000}, operator.Redriven{Tasks: 7, Left: 5}},
		"restored":             {operator.DeadQuery{Restored: true}, operator.Redriven{Tasks: 5}},
	} {
		c.q.DryRun, c.want.DryRun = true, true
		if got, err := o.RedriveDead(t.Context(), c.q); got != c.want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
	for _, step := range []struct { // each changes what is dead
		q    operator.DeadQuery
		want operator.Redriven
	}{
		{operator.DeadQuery{Error: "no stock", Limit: 2}, operator.Redriven{Tasks: 2, More: true}},
		{operator.DeadQuery{Restored: true, SameKey: true, Limit: 1}, operator.Redriven{Tasks: 1, More: true}},
		{operator.DeadQuery{}, operator.Redriven{Tasks: 5, Left: 4}},
		{operator.DeadQuery{}, operator.Redriven{Left: 4}},
		{operator.DeadQuery{Restored: true}, operator.Redriven{Tasks: 4}},
	} {
		if got, err := o.RedriveDead(t.Context(), step.q); got != step.want || err != nil {
			t.Errorf("%+v: %+v, %v, want %+v", step.q, got, err, step.want)
		}
	}
	versions := map[uint32]int{}
	for _, id := range restored {
		info, err := cluster.Client.Get(t.Context(), id)
		if err != nil || info.Status != tocsin.Pending {
			t.Errorf("%+v, %v", info, err)
		}
		versions[info.Version]++
	}
	if versions[0] != 1 || versions[1] != 4 {
		t.Errorf("versions %v: one was redriven with the same key", versions)
	}
}

func TestARedriveKeepsItsRate(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	dead(t, cluster, o, 6, "no route")
	start := time.Now()
	if done, err := o.RedriveDead(t.Context(), operator.DeadQuery{PerSecond: 5, Limit: 3}); done.Tasks != 3 || err != nil || time.Since(start) < 400*time.Millisecond {
		t.Errorf("%+v in %s, %v", done, time.Since(start), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done, err := o.RedriveDead(ctx, operator.DeadQuery{PerSecond: 1})
	if done.Tasks > 1 || !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%+v, %v: it waits no longer than its context", done, err)
	}
}

// With a limit or a rate the servers share what may be redriven; none waits for the writes of another.
func TestAServerThatHangsHoldsUpNoRedriveOfAnother(t *testing.T) {
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
	ids := dead(t, &tocsintest.Cluster{Client: client}, o, 20, "no route")
	db, err := sql.Open("mysql", devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	held, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	other := client.Layout().Table(0) // on the first server
	if _, err := held.ExecContext(t.Context(), "LOCK TABLES "+other+" WRITE"); err != nil {
		t.Fatal(err)
	}
	sent, release := proxy.HoldAt("tocsin redrive")
	defer release()
	ended := make(chan error, 1)
	go func() {
		done, err := o.RedriveDead(t.Context(), operator.DeadQuery{PerSecond: 1000, Limit: 100})
		if done.Tasks != len(ids) || done.More {
			t.Errorf("redriven %+v", done)
		}
		ended <- err
	}()
	<-sent // the second server hangs
	if _, err := held.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	for left, late := 1, time.Now().Add(10*time.Second); left > 0; {
		if err := held.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+other+" WHERE status = 4").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(late) {
			t.Fatalf("%d tasks of the first server wait for the second", left)
		}
	}
	release()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
