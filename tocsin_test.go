package tocsin_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/ids"
)

func TestTableNames(t *testing.T) {
	t.Parallel()
	l := tocsin.Layout{Databases: 8, Tables: 1024}
	for number, want := range map[int]string{0: "toc_0.task_0000", 1023: "toc_0.task_1023", 1024: "toc_1.task_0000", 8191: "toc_7.task_1023"} {
		if got := l.Table(number); got != want {
			t.Errorf("table %d: %s, want %s", number, got, want)
		}
	}
}

func TestLayoutRefuses(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]tocsin.Layout{
		"no database":                   {Databases: 0, Tables: 1},
		"no table":                      {Databases: 1, Tables: 0},
		"more tables than a job_id can": {Databases: 8, Tables: 1025},
		"numbers whose product is low":  {Databases: math.MaxInt, Tables: 2},
		"a prefix that is not a name":   {Databases: 1, Tables: 1, Prefix: "a`b"},
	} {
		if l.Validate() == nil {
			t.Errorf("%s: %s is accepted", name, l)
		}
	}
}

func FuzzTableOf(f *testing.F) {
	f.Add(uint64(1), uint16(8), uint16(1024))
	f.Add(uint64(math.MaxUint64), uint16(1), uint16(1))
	f.Fuzz(func(t *testing.T, bizID uint64, databases, tables uint16) {
		l := tocsin.Layout{Databases: int(databases), Tables: int(tables)}
		if l.Validate() != nil {
			return
		}
		n := l.TableOf(bizID)
		if n < 0 || n >= l.Total() {
			t.Fatalf("biz_id %d: table %d of layout %s", bizID, n, l)
		}
		if name := l.Table(n); !strings.HasPrefix(name, l.Database(l.DatabaseOf(n))+".") {
			t.Fatalf("table %d is %s, its database %s", n, name, l.Database(l.DatabaseOf(n)))
		}
	})
}

func TestEveryTableHasItsOwnName(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := tocsin.Layout{Databases: rapid.IntRange(1, 16).Draw(t, "databases"), Tables: rapid.IntRange(1, 64).Draw(t, "tables")}
		seen := map[string]bool{}
		for n := range l.Total() {
			seen[l.Table(n)] = true
		}
		if len(seen) != l.Total() {
			t.Fatalf("layout %s has %d names", l, len(seen))
		}
	})
}

func FuzzJobID(f *testing.F) {
	f.Add("1")
	f.Add("9223372036854775807")
	f.Add("0")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := tocsin.ParseJobID(text)
		if err != nil {
			if id != 0 {
				t.Fatalf("%q: %d beside an error", text, id)
			}
			return
		}
		if again, err := tocsin.ParseJobID(id.String()); again != id || err != nil {
			t.Fatalf("%d reads back as %d, %v", id, again, err)
		}
		var decoded tocsin.JobID
		b := must[[]byte](t)(json.Marshal(id))
		if err := json.Unmarshal(b, &decoded); decoded != id || err != nil {
			t.Fatalf("%s reads back as %d, %v", b, decoded, err)
		}
		if id.Table() < 0 || id.Table() >= tocsin.MaxTables || id.Time().Before(tocsin.Epoch) {
			t.Fatalf("%d: table %d, time %s", id, id.Table(), id.Time())
		}
	})
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

func TestATaskSharesNoHeadersWithItsCopies(t *testing.T) {
	t.Parallel()
	base := remind.New(7, "x", tocsin.In(0)).Header("a", "1")
	one, two := base.Header("b", "1"), base.Header("b", "2")
	for name, c := range map[string]struct {
		task tocsin.NewTask
		want map[string]string
	}{
		"base": {base, map[string]string{"a": "1"}},
		"one":  {one, map[string]string{"a": "1", "b": "1"}},
		"two":  {two, map[string]string{"a": "1", "b": "2"}},
		"none": {remind.New(7, "x", tocsin.In(0)), map[string]string{}},
	} {
		if got := c.task.Headers(); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// What plain SQL wrote may be anything; it must be told apart from no headers, and survive as JSON.
func TestWhatAreNoHeaders(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "null", "[]", `"a"`, `{"a":1}`, `{"a":null}`, `{"a":{}}`, `{"a":"b"`, `{"a":"b"} x`, " "} {
		h := tocsin.Headers(text)
		if all, err := h.All(); err == nil || all != nil || h.Get("a") != "" {
			t.Errorf("%q: %v, %v", text, all, err)
		}
		if _, err := remind.Decode(tocsin.Info{JobID: 5, Headers: h}); err == nil || err.Error() != "task 5: headers are not a JSON object of texts" {
			t.Errorf("%q: decode: %v", text, err)
		}
		var back tocsin.Info
		b := must[[]byte](t)(json.Marshal(tocsin.Info{JobID: 5, Headers: h}))
		if err := json.Unmarshal(b, &back); err != nil || back.Headers != h {
			t.Errorf("%q: through JSON %q, %v", text, back.Headers, err)
		}
	}
	for _, text := range []string{"", "{}"} {
		if all, err := tocsin.Headers(text).All(); err != nil || len(all) != 0 {
			t.Errorf("%q: %v, %v", text, all, err)
		}
	}
	h := tocsin.Headers(`{"a":"<1>"}`)
	if b := must[[]byte](t)(json.Marshal(tocsin.Info{JobID: 5, Headers: h})); !strings.Contains(string(b), fmt.Sprintf("%q:{%q:", "headers", "a")) {
		t.Errorf("as JSON: %s", b)
	}
}

// headerName is the form of a header's name.
var headerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func FuzzHeadersComeBackAsTheyWereGiven(f *testing.F) {
	f.Add("tenant", "shop 7", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("a", "<\x00\u2028\ufffd🔔\\\"", "A", "")
	f.Add("", "x", "a b", "\xff")
	f.Fuzz(func(t *testing.T, name, text, name2, text2 string) {
		task := tocsin.NewTask{}.Header(name, text).Header(name2, text2)
		h, err := tocsin.HeadersOf(task.Headers())
		fine := headerName.MatchString(name) && headerName.MatchString(name2) && utf8.ValidString(text2) && (name == name2 || utf8.ValidString(text))
		if err != nil {
			if fine && len(text)+len(text2) < 100 {
				t.Fatal(err)
			}
			return
		}
		if !fine || utf8.RuneCountInString(string(h)) > tocsin.MaxHeaders {
			t.Fatalf("%q is taken", h)
		}
		all, err := h.All()
		if err != nil || !maps.Equal(all, task.Headers()) {
			t.Fatalf("%v came back as %v, %v", task.Headers(), all, err)
		}
		b, err := json.Marshal(tocsin.Info{JobID: 1, Headers: h})
		var back tocsin.Info
		if err != nil || json.Unmarshal(b, &back) != nil || back.Headers != h {
			t.Fatalf("%q came back from JSON as %q, %v", h, back.Headers, err)
		}
	})
}

func FuzzWhatIsReadAsHeadersIsSafe(f *testing.F) {
	for _, text := range []string{"", "{}", "null", `{"a":"b"}`, `{"a":1}`, `{"a":"b","a":null}`, "{"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := tocsin.Headers(text).All()
		if err != nil && all != nil {
			t.Fatalf("%v, %v", all, err)
		}
		for name, want := range all {
			if got := tocsin.Headers(text).Get(name); got != want {
				t.Fatalf("%q: %q, want %q", name, got, want)
			}
		}
		if _, err := json.Marshal(tocsin.Info{Headers: tocsin.Headers(text)}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCompleteTxNeedsATable(t *testing.T) {
	t.Parallel()
	tx := new(sql.Tx) // is not touched
	for _, table := range []string{"", "x", "toc_0.task_0000; DROP TABLE x", "`toc_0`.task_0000"} {
		if err := tocsin.CompleteTx(t.Context(), tx, tocsin.Info{JobID: 1, Table: table}); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("%q: %v", table, err)
		}
	}
}

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
	must[sql.Result](t)(session(t).ExecContext(t.Context(), "UPDATE "+cfg.Layout.Table(cfg.Layout.TableOf(5))+" SET dedup_key = '' WHERE job_id = ?", all[0]))
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

func TestAPageOfAListIsOfATimeAndWithoutPayloads(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	var ids []tocsin.JobID
	for n := range 4 {
		task := tocsin.Define[string]("order.close").New(5, "p", tocsin.At(at.Add(time.Duration(n)*time.Second))).Header("tenant", "a")
		ids = append(ids, must[tocsin.Added](t)(c.Add(t.Context(), task)).JobID)
	}
	q := tocsin.ListQuery{BizID: 5, Limit: 10, From: at.Add(time.Second), To: at.Add(2 * time.Second), NoPayload: true}
	page, next, err := c.ListPage(t.Context(), q)
	if err != nil || next != nil || len(page) != 2 || page[0].JobID != ids[1] || page[1].JobID != ids[2] {
		t.Fatalf("%+v, %v, %v", page, next, err)
	}
	whole := must[tocsin.Info](t)(c.Get(t.Context(), ids[1]))
	if whole.Payload == "" || whole.Headers == "" {
		t.Errorf("%+v", whole)
	}
	if whole.Payload, whole.Headers = "", ""; page[0] != whole {
		t.Errorf("%+v, want %+v", page[0], whole)
	}
	q.From, q.To = q.To, q.From
	if _, _, err := c.ListPage(t.Context(), q); !errors.Is(err, tocsin.ErrInvalid) || !strings.Contains(err.Error(), "swap them") {
		t.Errorf("times that are swapped: %v", err)
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
	conn := must[*sql.Conn](t)(session(t).Conn(t.Context()))
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

// BenchmarkID measures what each task pays for its id and for the way to its
// table.
func BenchmarkID(b *testing.B) {
	layout := tocsin.Layout{Databases: 8, Tables: 1024}
	var maker ids.Maker
	now := time.Now()
	text := tocsin.JobID(maker.Next(now, 8191)).String()
	for name, do := range map[string]func(i uint64) int{
		"next":            func(i uint64) int { return int(maker.Next(now, int(i%8192))) },
		"table of biz_id": func(i uint64) int { return layout.TableOf(i) },
		"table's name":    func(i uint64) int { return len(layout.Table(int(i % 8192))) },
		"to text":         func(i uint64) int { return len(tocsin.JobID(i << 22).String()) },
		"from text": func(uint64) int {
			id, err := tocsin.ParseJobID(text)
			if err != nil {
				b.Fatal(err)
			}
			return int(id)
		},
		"to JSON": func(i uint64) int {
			text, _ := tocsin.JobID(i << 22).MarshalJSON()
			return len(text)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			sum := 0
			for i := uint64(0); b.Loop(); i++ {
				sum += do(i)
			}
			if sum == 0 {
				b.Error("nothing was done")
			}
		})
	}
}

func TestMain(m *testing.M) { devtest.Main(m) }

type order struct {
	No   string
	Cent int
}

// The biz types of every test cluster.
var (
	closeOrder = tocsin.Define[order]("order.close")
	remind     = tocsin.Define[string]("coupon.remind")
)

// insertBizTypes stores the biz types as package biztype does, which these tests don't import: whatever they import stands in
// the go.sum of every program that adds tasks.
const insertBizTypes = `.biz_type (number, name, group_name, policy, revision, gmt_modified)
VALUES (7, 'order.close', 'shop', '{}', 1, UTC_TIMESTAMP(3)), (8, 'coupon.remind', 'shop', '{}', 1, UTC_TIMESTAMP(3))`

// cluster makes the tables of a small cluster of its own on the shared server. Most tests of the calls are in internal/client.
func cluster(tb testing.TB) tocsin.Config {
	tb.Helper()
	cfg := tocsin.Config{
		Layout:  tocsin.Layout{Databases: 2, Tables: 2, Prefix: devtest.Prefix(tb)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(tb)}},
	}
	must[ddl.Result](tb)(ddl.Apply(tb.Context(), cfg, ddl.Options{}))
	db := session(tb)
	for number := range cfg.Layout.Databases {
		must[sql.Result](tb)(db.ExecContext(tb.Context(), "INSERT INTO "+cfg.Layout.Database(number)+insertBizTypes))
	}
	return cfg
}

func open(tb testing.TB, cfg tocsin.Config) *tocsin.Client {
	tb.Helper()
	c := must[*tocsin.Client](tb)(tocsin.Open(tb.Context(), cfg))
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// session is a connection pool as a user's own program has it.
func session(tb testing.TB) *sql.DB {
	tb.Helper()
	db := must[*sql.DB](tb)(sql.Open("mysql", devtest.DSN(tb)))
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func must[T any](tb testing.TB) func(T, error) T {
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}
