package tocsin_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// addListed adds tasks of biz_id 5, of two biz types, half of them with a dedup_key, and returns their ids by biz type.
func addListed(t *testing.T, c *tocsin.Client, n int) map[string][]tocsin.JobID {
	t.Helper()
	ids := map[string][]tocsin.JobID{}
	for _, name := range []string{"order.close", "coupon.remind"} {
		var tasks []tocsin.NewTask
		for i := range n {
			task := tocsin.Define[string](name).New(5, "p", tocsin.In(time.Hour))
			if i%2 == 0 {
				task = task.Dedup(fmt.Sprint("key ", i))
			}
			tasks = append(tasks, task)
		}
		for chunk := range slices.Chunk(tasks, 500) {
			for _, added := range must[[]tocsin.Added](t)(c.AddMany(t.Context(), chunk)) {
				ids[name] = append(ids[name], added.JobID)
			}
		}
	}
	return ids
}

func TestPagesOfAListHaveEachTaskOnce(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	ids := addListed(t, c, 60)
	all := slices.Concat(ids["order.close"], ids["coupon.remind"])
	db := session(t, devtest.DSN(t), "")
	exec(t, db, "UPDATE "+cfg.Layout.Table(cfg.Layout.TableOf(5))+" SET dedup_key = '' WHERE job_id = ?", all[0])
	none := func(string) bool { return false }
	closing := func(name string) bool { return name == "order.close" }
	for name, q := range map[string]struct {
		tocsin.ListQuery
		want []tocsin.JobID
	}{
		"all":                 {tocsin.ListQuery{BizID: 5}, all},
		"of a type":           {tocsin.ListQuery{BizID: 5, BizType: "coupon.remind"}, ids["coupon.remind"]},
		"of a type seen":      {tocsin.ListQuery{BizID: 5, Sees: closing}, ids["order.close"]},
		"of a type not seen":  {tocsin.ListQuery{BizID: 5, Sees: closing, BizType: "coupon.remind"}, nil},
		"of no type":          {tocsin.ListQuery{BizID: 5, Sees: none}, nil},
		"of an unknown type":  {tocsin.ListQuery{BizID: 5, BizType: "order.none"}, nil},
		"of another biz_id":   {tocsin.ListQuery{BizID: 6}, nil},
		"of a key, not there": {tocsin.ListQuery{BizKey: "k"}, nil},
	} {
		for _, limit := range []int{1, 7, 50, 120, tocsin.MaxListed} {
			var got []tocsin.JobID
			q := q
			for q.Limit = limit; ; {
				page, next, err := c.ListPage(t.Context(), q.ListQuery)
				if err != nil || len(page) > limit {
					t.Fatalf("%s: %d tasks of %d, %v", name, len(page), limit, err)
				}
				for _, info := range page {
					got = append(got, info.JobID)
				}
				if q.After = next; next == nil {
					break
				}
			}
			slices.Sort(got)
			slices.Sort(q.want)
			if !slices.Equal(got, q.want) {
				t.Errorf("%s by %d: %v, want %v", name, limit, got, q.want)
			}
		}
	}
	var listed []tocsin.JobID
	for _, info := range must[[]tocsin.Info](t)(c.List(t.Context(), 5)) {
		listed = append(listed, info.JobID)
	}
	if slices.Sort(all); !slices.Equal(listed, all) {
		t.Errorf("List has %v, want %v", listed, all)
	}
	for _, limit := range []int{0, -1, tocsin.MaxListed + 1} {
		if _, _, err := c.ListPage(t.Context(), tocsin.ListQuery{BizID: 5, Limit: limit}); err == nil {
			t.Errorf("limit %d is taken", limit)
		}
	}
}

func TestAPageOfAListEndsAfterMuchPayload(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	var tasks []tocsin.NewTask
	for range 300 {
		tasks = append(tasks, tocsin.Define[string]("order.close").New(5, strings.Repeat("x", 8000), tocsin.In(time.Hour)))
	}
	must[[]tocsin.Added](t)(c.AddMany(t.Context(), tasks))
	page, next, err := c.ListPage(t.Context(), tocsin.ListQuery{BizID: 5, Limit: tocsin.MaxListed})
	if err != nil || next == nil || len(page) > 200 {
		t.Errorf("%d tasks, next %v, %v", len(page), next, err)
	}
	if all := must[[]tocsin.Info](t)(c.List(t.Context(), 5)); len(all) != 300 {
		t.Errorf("%d tasks", len(all))
	}
}

// A page of a biz_id with many tasks reads its own rows, in the order of the index.
func TestAPageOfAListReadsNoFurther(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	ids := addListed(t, c, 3000)["order.close"]
	conn := must[*sql.Conn](t)(session(t, devtest.DSN(t), "").Conn(t.Context()))
	defer conn.Close()
	for name, q := range map[string]struct {
		after *tocsin.ListPlace
		types []uint64
	}{
		"the first page":                 {nil, nil},
		"the first page of a type":       {nil, []uint64{8}},
		"the first page of types":        {nil, []uint64{7, 8, 9}},
		"after a task without dedup_key": {&tocsin.ListPlace{Type: 7, JobID: ids[1501]}, nil},
		"after a task with one":          {&tocsin.ListPlace{Type: 7, JobID: ids[1500], DedupKey: []byte("key 1500")}, nil},
		"after a task of types":          {&tocsin.ListPlace{Type: 7, JobID: ids[1500], DedupKey: []byte("key 1500")}, []uint64{7, 8}},
	} {
		for _, s := range tocsin.ListStatements(cfg.Layout, 5, q.after, q.types, 10) {
			before := rowsRead(t, conn)
			rows := must[*sql.Rows](t)(conn.QueryContext(t.Context(), s.Text, s.Args...))
			n := 0
			for rows.Next() {
				n++
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			if read := rowsRead(t, conn) - before; read > n+2 || n != 10 {
				t.Errorf("%s: %d rows were read for %d: %s", name, read, n, s.Text)
			}
		}
	}
}

// rowsRead is how many rows and index entries a session has read by an index.
func rowsRead(t *testing.T, conn *sql.Conn) (sum int) {
	t.Helper()
	for _, what := range []string{"Handler_read_key", "Handler_read_next", "Handler_read_prev", "Handler_read_rnd", "Handler_read_first"} {
		var name string
		var n int
		if err := conn.QueryRowContext(context.WithoutCancel(t.Context()), "SHOW SESSION STATUS LIKE '"+what+"'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func TestAStatusIsReadBackFromItsWord(t *testing.T) {
	t.Parallel()
	for _, want := range []tocsin.Status{tocsin.Pending, tocsin.Claimed, tocsin.Done, tocsin.Cancelled, tocsin.Dead} {
		text, err := json.Marshal(want)
		var got tocsin.Status
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || got != want {
			t.Errorf("%s: read back as %s: %v", text, got, err)
		}
	}
	var s tocsin.Status
	if err := json.Unmarshal([]byte(`"finished"`), &s); err == nil || err.Error() != `status "finished": want one of pending, claimed, done, cancelled, dead` {
		t.Errorf("an unknown word: %v", err)
	}
}
