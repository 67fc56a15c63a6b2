package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/tocsintest"
	"github.com/tocsinhq/tocsin/webhook"
	"github.com/tocsinhq/tocsin/worker"
)

// hard is a text that is easily changed on its way.
type hard struct{ name, text, json string }

var hardTexts = []hard{
	{"not UTF-8", "a\xff", "\"a\xff\""}, {"a lone surrogate", "\xed\xa0\x80", `"\ud800"`}, {"NUL", "a\x00b", `"a\u0000b"`}, {"U+FFFD", "\ufffd", `"\ufffd"`},
	{"4 bytes", "😀", `"😀"`}, {"a pair of surrogates", "🔔", `"\ud83d\udd14"`}, {"line separators", "a\u2028\u2029b", `"a\u2028\u2029b"`}, {"spaces around", " a ", `" a "`},
	{"empty", "", `""`}, {"blank", " \u200b", `" \u200b"`}, {"markup", `<&>'`, `"<&>'"`}, {"combined", "e\u0301", `"e\u0301"`}, {"long", strings.Repeat("ü", 1500), `"` + strings.Repeat("ü", 1500) + `"`},
}

// shown is a text as a column for people takes it: \xff stands for a byte that is no UTF-8, \x00 for the character 0, and the end is cut off.
func shown(text string, most int) string {
	out, n := "", 0
	for at, size := 0, 0; at < len(text); at += size {
		r := rune(0)
		r, size = utf8.DecodeRuneInString(text[at:])
		part := text[at : at+size]
		if r == 0 || r == utf8.RuneError && size == 1 {
			part = fmt.Sprintf(`\x%02x`, text[at])
		}
		if n += utf8.RuneCountInString(part); n > most {
			break
		}
		out += part
	}
	return out
}

func reason(text string) string { return shown(text, tocsin.MaxError) }
func output(text string) string { return shown(text, tocsin.MaxOutput) }

// unless is a text as a reason, or otherwise if nothing of it can be seen.
func unless(text, otherwise string) string {
	if strings.Trim(text, " \u200b") == "" {
		return otherwise
	}
	return text
}

// errorText is reason for the text of an error, which is named if it has none.
func errorText(text string) string {
	return reason(unless(text, "an error of type *errors.errorString, without a text"))
}

// line is the one line that is kept of an answer.
func line(before string) func(string) string {
	return func(text string) string {
		return reason(strings.TrimSuffix(before+": "+strings.Join(strings.Fields(reason(text)), " "), ": "))
	}
}

// keyText is a key, which may be any bytes, as it is shown.
func keyText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return fmt.Sprintf(`\x%x`, text)
}

// way is one by which a text comes into columns, and is read again.
type way struct {
	into    string              // the columns
	refuses string              // names of texts
	as      func(string) string // what is read; nil: the text
	take    func(*walk, hard) (string, error)
}

const (
	noText = "not UTF-8, a lone surrogate" // neither JSON nor a column of text has a form for them
	noKey  = noText + ", empty, long"
)

var ways = map[string]way{
	"payload over the API":   {"task.attribute", noText, nil, field("payload")},
	"headers over the API":   {"task.headers", noText + ", long", nil, field("headers")},
	"biz_key over the API":   {"task.biz_key", noKey, nil, field("biz_key")},
	"dedup_key over the API": {"task.dedup_key", noKey, nil, field("dedup_key")},
	"reason of a burial":     {"task.last_error", noText + ", long", func(text string) string { return reason(unless(text, "buried by hand")) }, (*walk).buried},
	"reason of an act": {"act.reason", noKey + ", blank", func(text string) string {
		return strings.NewReplacer("\x00", " ", "\u2028", " ", "\u2029", " ").Replace(strings.TrimSpace(text)) // it is for lines of logs
	}, (*walk).acted},
	"payload of a schedule": {"schedule.attribute", noText, nil, scheduled("payload")},
	"headers of a schedule": {"schedule.headers", noText + ", long", nil, scheduled("headers")},
	"key of a schedule":     {"schedule.biz_key", noText + ", long", nil, scheduled("key")},

	"payload to a handler":  {"task.attribute", noText, nil, heard(closing, func(i tocsin.Info) string { return i.Payload })},
	"headers to a handler":  {"task.headers", noText + ", long", nil, heard(closing, func(i tocsin.Info) string { return i.Headers.Get("a") })},
	"payload to a callback": {"task.attribute", noText, nil, heard(called, func(i tocsin.Info) string { return i.Payload })},
	"headers to a callback": {"task.headers", noText + ", long", nil, heard(called, func(i tocsin.Info) string { return i.Headers.Get("a") })},
	"payload to a worker":   {"task.attribute", noText, nil, heard(worked, func(i tocsin.Info) string { return i.Payload })},
	"headers to a worker":   {"task.headers", noText + ", long", nil, heard(worked, func(i tocsin.Info) string { return i.Headers.Get("a") })},

	"error of a handler": {"task.last_error", "", errorText, failing(closing, func(text string) any { return errors.New(text) })},
	"panic of a handler": {"task.last_error", "", func(text string) string {
		return reason("panic: " + unless(text, "a value of type string, without a text"))
	}, failing(closing, func(text string) any { return text })},
	"error of a receiver": {"task.last_error", "", func(text string) string { return line("callback answered 410 Gone")(errorText(text)) }, failing(called, func(text string) any { return tocsin.Bury(errors.New(text)) })},
	"answer of a callback": {"task.last_error", "", line("callback answered 500 Internal Server Error"), failing(called, func(text string) any {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusInternalServerError) })
	})},
	"result in a batch":    {"task.last_error", "", func(text string) string { return line("callback answered bury")(strings.ToValidUTF8(text, "\ufffd")) }, failing(batched, nil)},
	"error of a Go worker": {"task.last_error", "", errorText, failing(worked, func(text string) any { return errors.New(text) })},
	"error of a worker":    {"task.last_error", noText, func(text string) string { return reason(unless(text, "the worker gave no reason")) }, settled("error", `{"settle": [{"lease": %q, "do": "bury", "error": %s}]}`)},

	"output of a handler":   {"run.output", "", output, said(closing)},
	"output of a callback":  {"run.output", "", func(text string) string { return output(strings.TrimSpace(text)) }, said(called)},
	"output of a Go worker": {"run.output", "", output, said(worked)},
	"output of a worker":    {"run.output", noText, output, settled("output", `{"settle": [{"lease": %q, "do": "complete", "output": %s}]}`)},
	"name of a worker":      {"run.node", noText + ", long", nil, settled("worker", `{"settle": [{"lease": %q, "do": "complete"}], "worker": %s}`)},

	"payload of an outbox":   {"outbox.attribute", noText, nil, relayed("attribute")},
	"headers of an outbox":   {"outbox.headers", noText + ", long", nil, relayed("headers")},
	"dedup_key of an outbox": {"outbox.dedup_key", "long", keyText, relayed("dedup_key")},
	"biz_key of an outbox":   {"outbox.biz_key", noKey, nil, relayed("biz_key")},
	"a row set aside": {"outbox.biz_type outbox.last_error", noText + ", long", func(text string) string {
		return fmt.Sprintf("biz type %q: use lower-case letters, digits, '.', '_' and '-', a letter or digit first, at most 64", text)
	}, relayed("biz_type")},
}

// notTexts are columns of text that nobody fills in as he likes.
var notTexts = map[string]string{
	"ours":           "act.via act.operation act.outcome layout.hash layout.state layout.identity layout.ownership mark.identity relayed.outbox run.outcome schedule.reason schedule.open_from schedule.state session.id session.incarnation session_about.id session_about.about",
	"names":          "act.person act.object biz_type.name biz_type.group_name layout.cluster_id owner.group_name owner.node schedule.app schedule.name session.group_name session.node task.claimed_by",
	"one of a few":   "outbox.op schedule.missed schedule.overlap schedule.zone schedule.cron",
	"a file of YAML": "biz_type.policy",
}

// Each column of text is reached by a way, or nobody fills it in as he likes.
func TestAllColumnsOfTextAreJudged(t *testing.T) {
	t.Parallel()
	judged := map[string]bool{}
	for _, columns := range notTexts {
		for _, column := range strings.Fields(columns) {
			judged[column] = true
		}
	}
	for _, w := range ways {
		for _, column := range strings.Fields(w.into) {
			judged[column] = true
		}
	}
	paths, err := filepath.Glob("../ddl/sql/*.sql")
	if err != nil || len(paths) < 10 {
		t.Fatal(len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range regexp.MustCompile(`(?m)^    (\w+) +(VARCHAR|VARBINARY|\w*TEXT|\w*BLOB|CHAR|BINARY|JSON)\b`).FindAllStringSubmatch(string(text), -1) {
			name := strings.TrimSuffix(filepath.Base(path), ".sql") + "." + column[1]
			if !judged[name] {
				t.Errorf("nobody has judged %s", name)
			}
			delete(judged, name)
		}
	}
	if len(judged) > 0 {
		t.Errorf("no columns of text: %v", slices.Sorted(maps.Keys(judged)))
	}
}

var (
	called  = tocsin.Define[string]("order.call")
	batched = tocsin.Define[string]("order.batch")
	worked  = tocsin.Define[string]("order.work")
)

// walk is a cluster through which texts go.
type walk struct {
	served
	outbox *tocsintest.Cluster
	next   *atomic.Uint64
	deeds  *sync.Map // what becomes of a delivery, by biz_id: func(context.Context, tocsin.Info) error, http.Handler, or the JSON of a text
}

// handle is every handler.
func (w *walk) handle(ctx context.Context, info tocsin.Info) error {
	do, _ := w.deeds.Load(info.BizID)
	return do.(func(context.Context, tocsin.Info) error)(ctx, info)
}

func (w *walk) receiver(t *testing.T) *httptest.Server {
	receives, err := webhook.New(webhook.Config{Unsigned: true}, func(ctx context.Context, task webhook.Task) error {
		return w.handle(ctx, tocsin.Info{BizID: task.BizID, Payload: task.Payload, Headers: task.Headers})
	})
	if err != nil {
		t.Fatal(err)
	}
	type one struct {
		Key   string
		BizID uint64 `json:"biz_id,string"`
	}
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(text))
		var single struct{ Data one }
		var batch struct{ Data []one }
		if json.Unmarshal(text, &batch) == nil {
			results := []string{}
			for _, task := range batch.Data {
				written, _ := w.deeds.Load(task.BizID)
				results = append(results, fmt.Sprintf(`{"key": %q, "result": "bury", "text": %s}`, task.Key, written))
			}
			_, _ = io.WriteString(out, "["+strings.Join(results, ", ")+"]")
			return
		}
		_ = json.Unmarshal(text, &single)
		do, _ := w.deeds.Load(single.Data.BizID)
		if raw, ok := do.(http.Handler); ok {
			raw.ServeHTTP(out, r)
			return
		}
		receives.ServeHTTP(out, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func newWalk(t *testing.T) *walk {
	w := &walk{next: new(atomic.Uint64), deeds: new(sync.Map)}
	to := &tocsin.Webhook{URL: w.receiver(t).URL, Allow: []string{"127.0.0.0/8"}}
	all := *to
	all.Batch = 10
	pulls := &biztype.Pull{Lease: biztype.Duration(time.Minute)}
	policies := []biztype.Policy{
		{Name: closing.Name()}, {Name: called.Name(), Webhook: to}, {Name: batched.Name(), Webhook: &all}, {Name: worked.Name(), Pull: pulls},
		{Name: "pull.error", Pull: pulls}, {Name: "pull.output", Pull: pulls}, {Name: "pull.worker", Pull: pulls},
	}
	for i := range policies {
		policies[i].Number, policies[i].Group, policies[i].Attempts, policies[i].History = uint64(i+1), tocsintest.Group, 1, true
	}
	c := tocsintest.StartWith(t, policies...)
	if _, err := ddl.SetOwnership(t.Context(), c.Config, node.ByRows, false); err != nil {
		t.Fatal(err)
	}
	w.outbox = c.WithOutbox(t)
	h := &node.Handlers{}
	node.Handle(h, closing, func(ctx context.Context, task *tocsin.Task[string]) error { return w.handle(ctx, task.Info) })
	n, err := node.New(node.Config{Tables: c.Config, Ownership: node.ByRows, Group: tocsintest.Group, Name: "texts", Outboxes: w.outbox.Outboxes}, h)
	if err != nil {
		t.Fatal(err)
	}
	w.served = *over(t, c, func(cfg *api.Config) { cfg.Pull, cfg.Tokens = n.Pull(), nil })
	works, err := worker.New(worker.Config{URLs: []string{w.url}})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle(works, worked, func(ctx context.Context, task *tocsin.Task[string]) error { return w.handle(ctx, task.Info) })
	for _, run := range []func(context.Context) error{n.Run, works.Run} {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		for end := time.Now().Add(patient); w.do(post("/pull:extend", `{"leases":["1.0.00000000000000000000000000"]}`)).status == http.StatusServiceUnavailable; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the node does not run")
			}
		}
	}
	return w
}

// until waits for what is stored soon.
func until[T any](w *walk, what string, look func() (T, bool)) T {
	w.t.Helper()
	for end := time.Now().Add(patient); ; time.Sleep(10 * time.Millisecond) {
		got, ok := look()
		if ok {
			return got
		}
		if time.Now().After(end) {
			w.t.Fatalf("waited too long for %s", what)
		}
	}
}

func (w *walk) task(id string) api.Task {
	return want[api.Task](&w.served, http.StatusOK, get("/tasks/"+id))
}

// end is a task that has ended.
func (w *walk) end(id string) api.Task {
	return until(w, "the end of a task", func() (api.Task, bool) {
		task := w.task(id)
		return task, task.Status == "done" || task.Status == "dead"
	})
}

// run is the attempt of a task.
func (w *walk) run(id string) api.Run {
	return until(w, "a run", func() (api.Run, bool) {
		all := want[api.Runs](&w.served, http.StatusOK, get("/tasks/"+id+"/runs")).Runs
		if len(all) == 0 {
			return api.Run{}, false
		}
		return all[0], true
	})
}

// put adds a task that is due, with what becomes of its delivery.
func (w *walk) put(biz tocsin.BizType[string], payload string, deed any, headers ...string) (id string, err error) {
	bizID := w.next.Add(1)
	w.deeds.Store(bizID, deed)
	task := biz.New(bizID, payload, tocsin.In(0))
	for _, text := range headers {
		task = task.Header("a", text)
	}
	added, err := w.Client.Add(w.t.Context(), task)
	return added.JobID.String(), err
}

// asked sends a request, and reads its answer if it is not refused.
func asked[T any](w *walk, r request) (out T, err error) {
	got := w.do(r)
	if got.status >= 400 && got.status < 500 {
		return out, errors.New(got.Detail)
	}
	if err := json.Unmarshal([]byte(got.text), &out); err != nil || got.status >= 500 {
		w.t.Errorf("%s %s: %d %s", r.path, r.body, got.status, got.text)
	}
	return out, nil
}

// field adds a task over the API, and reads it again.
func field(name string) func(*walk, hard) (string, error) {
	return func(w *walk, h hard) (string, error) {
		value, about := h.json, `, "biz_key": "about"`
		switch name {
		case "headers":
			value = `{"a": ` + h.json + `}`
		case "biz_key":
			about = ""
		}
		made, err := asked[struct {
			JobID string `json:"job_id"`
		}](w, post("/tasks", `{"biz_type": "order.close", "delay_ms": 3600000, "`+name+`": `+value+about+`}`))
		if err != nil {
			return "", err
		}
		task := w.task(made.JobID)
		return map[string]string{"payload": task.Payload, "biz_key": task.BizKey, "dedup_key": task.DedupKey, "headers": task.Headers["a"]}[name], nil
	}
}

func (w *walk) buried(h hard) (string, error) {
	task, err := asked[api.Task](w, post("/tasks/"+w.add(closing.New(w.next.Add(1), "", tocsin.In(time.Hour)))+":bury", `{"reason": `+h.json+`}`))
	return task.LastError, err
}

func (w *walk) acted(h hard) (string, error) {
	id := w.add(closing.New(w.next.Add(1), "", tocsin.In(time.Hour)))
	if _, err := asked[api.ActedMany](w, post("/tasks:act", `{"act": "bury", "job_ids": ["`+id+`"], "reason": `+h.json+`}`)); err != nil {
		return "", err
	}
	act := until(w, "the act", func() (api.PastAct, bool) {
		all := want[api.Acts](&w.served, http.StatusOK, get("/acts?limit=1&object="+url.QueryEscape("1 tasks, "+id))).Acts
		if len(all) == 0 {
			return api.PastAct{}, false
		}
		return all[0], true
	})
	return act.Reason, nil
}

// scheduled stores a schedule, and reads it again.
func scheduled(name string) func(*walk, hard) (string, error) {
	return func(w *walk, h hard) (string, error) {
		value, called := h.json, "s"+strconv.FormatUint(w.next.Add(1), 10)
		if name == "headers" {
			value = `{"a": ` + h.json + `}`
		}
		if _, err := asked[api.Schedule](w, post("/schedules", hourly(called, `, "`+name+`": `+value))); err != nil {
			return "", err
		}
		d := want[api.Schedule](&w.served, http.StatusOK, get("/schedules/"+called)).Definition
		if d.Key == called { // none was given
			d.Key = ""
		}
		return map[string]string{"payload": *d.Payload, "headers": d.Headers["a"], "key": d.Key}[name], nil
	}
}

// heard gives a text to a task as its payload and as a header, and reads what its handler gets.
func heard(biz tocsin.BizType[string], read func(tocsin.Info) string) func(*walk, hard) (string, error) {
	return func(w *walk, h hard) (string, error) {
		got := make(chan string, 9)
		payload, headers := h.text, []string(nil)
		if read(tocsin.Info{Payload: "x"}) == "" {
			payload, headers = "", []string{h.text}
		}
		if _, err := w.put(biz, payload, func(_ context.Context, info tocsin.Info) error { got <- read(info); return nil }, headers...); err != nil {
			return "", err
		}
		select {
		case text := <-got:
			return text, nil
		case <-time.After(patient):
			return "", errors.New("nothing came")
		}
	}
}

// failing has a delivery fail with the text in an error, a panic, or an answer, and reads why.
func failing(biz tocsin.BizType[string], with func(text string) any) func(*walk, hard) (string, error) {
	return func(w *walk, h hard) (string, error) {
		var deed any = h.json
		if with != nil {
			deed = with(h.text)
		}
		switch is := deed.(type) {
		case error:
			deed = func(context.Context, tocsin.Info) error { return is }
		case string:
			if with != nil {
				deed = func(context.Context, tocsin.Info) error { panic(is) }
			}
		}
		id, err := w.put(biz, "", deed)
		return w.end(id).LastError, err
	}
}

// said has a delivery succeed with the text as its output, which it reads from the history.
func said(biz tocsin.BizType[string]) func(*walk, hard) (string, error) {
	return func(w *walk, h hard) (string, error) {
		var deed any = func(ctx context.Context, _ tocsin.Info) error { tocsin.Output(ctx, h.text); return nil }
		if biz.Name() == called.Name() {
			deed = http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(out, h.text) })
		}
		id, err := w.put(biz, "", deed)
		return w.run(id).Output, err
	}
}

// settled ends a lease over HTTP.
func settled(name, body string) func(*walk, hard) (string, error) {
	return func(w *walk, h hard) (string, error) {
		id, err := w.put(tocsin.Define[string]("pull."+name), "", nil)
		if err != nil {
			return "", err
		}
		tasks := until(w, "a lease", func() ([]api.ReservedTask, bool) {
			got := want[api.Reserved](&w.served, http.StatusOK, post("/pull:reserve", `{"biz_types": ["pull.`+name+`"], "wait_ms": 2000}`)).Tasks
			return got, len(got) > 0
		})
		if _, err := asked[api.Settled](w, post("/pull:settle", fmt.Sprintf(body, tasks[0].Lease, h.json))); err != nil {
			return "", err
		}
		run := w.run(id)
		if strings.HasPrefix(run.Node, "texts-") { // none was given
			run.Node = ""
		}
		return map[string]string{"error": w.end(id).LastError, "output": run.Output, "worker": run.Node}[name], nil
	}
}

// relayed writes a row into the outbox, and reads its task, or why it was set aside.
func relayed(column string) func(*walk, hard) (string, error) {
	return func(w *walk, h hard) (string, error) {
		table, row := w.outbox.Outboxes[0].Table, map[string]any{"biz_type": closing.Name(), "biz_id": w.next.Add(1), "delay_ms": 3600000, column: h.text}
		find := fmt.Sprint("biz_id=", row["biz_id"])
		switch column {
		case "headers":
			row[column] = `{"a": ` + h.json + `}`
		case "biz_key":
			row["biz_type"], row["biz_id"], find = called.Name(), 0, "biz_type="+called.Name()+"&biz_key="+url.QueryEscape(h.text)
		}
		names := slices.Sorted(maps.Keys(row))
		values := make([]any, len(names))
		for i, name := range names {
			values[i] = row[name]
		}
		did, err := w.outbox.DB.ExecContext(w.t.Context(), "INSERT INTO "+table+" ("+strings.Join(names, ", ")+") VALUES (?"+strings.Repeat(", ?", len(names)-1)+")", values...)
		if err != nil {
			return "", err
		}
		id, err := did.LastInsertId()
		if err != nil {
			w.t.Fatal(err)
		}
		why := until(w, "the row to go", func() (why string, gone bool) {
			err := w.outbox.DB.QueryRowContext(w.t.Context(), "SELECT last_error FROM "+table+" WHERE id = ?", id).Scan(&why)
			return why, err != nil || why != ""
		})
		if why != "" {
			if column == "biz_type" && utf8.ValidString(h.text) { // MariaDB takes half a surrogate pair, MySQL does not
				return why, nil
			}
			return "", errors.New(why)
		}
		all := want[struct{ Tasks []api.Task }](&w.served, http.StatusOK, get("/tasks?"+find)).Tasks
		if len(all) != 1 {
			w.t.Fatalf("%d tasks of %s", len(all), find)
		}
		return map[string]string{"attribute": all[0].Payload, "headers": all[0].Headers["a"], "dedup_key": all[0].DedupKey, "biz_key": all[0].BizKey}[column], nil
	}
}

// A text comes back exactly, or as the one rule of its column says, or is refused, by whatever way it came.
func TestATextIsKeptExactlyOrRefused(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := *w
			on.t = t
			for _, h := range hardTexts {
				read, err := way.take(&on, h)
				if refused := slices.Contains(strings.Split(way.refuses, ", "), h.name); refused != (err != nil) {
					t.Errorf("%s: refused: %v, want %v; it came back as %.100q", h.name, err, refused, read)
					continue
				}
				want := h.text
				if way.as != nil {
					want = way.as(want)
				}
				if err == nil && read != want {
					t.Errorf("%s came back as %.100q, want %.100q", h.name, read, want)
				}
				if err != nil && (strings.Contains(err.Error(), "\n") || err.Error() == "") {
					t.Errorf("%s is refused with %q", h.name, err)
				}
			}
		})
	}
}
