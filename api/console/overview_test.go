package console_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// late makes all tasks due for 1,020 s.
func (s *site) late() {
	s.t.Helper()
	layout := s.Client.Layout()
	for table := range layout.Total() {
		if _, err := s.DB.ExecContext(s.t.Context(), "UPDATE "+layout.Table(table)+" SET action_time = action_time - INTERVAL 1020 SECOND"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// attend lists a node whose page does not answer.
func (s *site) attend(group, id string) {
	s.t.Helper()
	s.attendAt(group, id, "127.0.0.1:1")
}

// answers lists a node whose page has some metrics.
func (s *site) answers(id, metrics string) {
	s.t.Helper()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE tocsin_node_mode gauge\ntocsin_node_mode{mode=\"rows\"} 1\n"+metrics)
	}))
	s.t.Cleanup(page.Close)
	s.attendAt("test", id, strings.TrimPrefix(page.URL, "http://"))
}

// attendAt lists a node with the address of its page.
func (s *site) attendAt(group, id, listen string) {
	s.t.Helper()
	db, err := store.Open(s.Config)
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	for database := range s.Config.Layout.Databases {
		one := store.Session{Database: database, ID: strings.ToLower(rand.Text()[:12]), Group: group, Node: id, Incarnation: "aaaaaaaaaaaa", Seat: true, Schema: 3}
		one.AboutNo, one.About = 1, `{"types": ["order.close"], "listen": "`+listen+`"}`
		if err := db.OpenSession(s.t.Context(), one); err != nil {
			s.t.Fatal(err)
		}
	}
}

// until reads a page until it has a text.
func (b *browser) until(path, text string) reply {
	b.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got := b.get(path)
		if strings.Contains(got.words(), text) || strings.Contains(got.text, text) {
			return got
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s does not come to say %q, but %s", path, text, got.words())
		}
	}
}

// Faults come first, with a link to the runbook; then what each biz type does. What another token is for is not there.
func TestAnOverviewSaysWhatIsWrongToWhomItIsAbout(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.attend("test", "host-1-4mzkq7ta")
	for _, task := range []tocsin.NewTask{closing.New(1, "", tocsin.In(0)), remind.New(2, "", tocsin.In(0)), remind.New(3, "", tocsin.In(0))} {
		s.add(task)
	}
	s.late()
	all := s.as("all")
	got := all.until("/", "coupon.remind is late: 2 overdue tasks, the oldest for 17m")
	got.has(t, "the overview", http.StatusOK, "Is anything wrong? Yes: what is wrong, the worst first (3)", "✕ Failure: order.close is late: 1 overdue task,", "⚠ Warning: node host-1-4mzkq7ta at 127.0.0.1:1 does not answer",
		"This is not all. Could not be asked: node host-1-4mzkq7ta", "0 of 1 nodes answer", "server test: read", "tocsin top", "curl -sS "+s.url+"/v1/overview", "? no node answers")
	if n := strings.Count(got.text, `href="https://github.com/tocsinhq/tocsin/blob/main/docs/runbook.md#tocsin`); n != 3 {
		t.Errorf("%d links to the runbook", n)
	}
	if strings.Index(got.text, `id="faults"`) > strings.Index(got.text, "<table") {
		t.Error("the faults are not first")
	}
	if first := s.as("all").get("/"); !strings.Contains(first.text, `<details id="pause-order.close">`) {
		t.Errorf("there is no button: %s", first.text)
	}
	part := s.as("read").until("/", "order.close is late: 1 overdue task,")
	part.lacks(t, "the overview of order.*", "coupon.remind", "host-1-4mzkq7ta", `action="/"`)
	part.has(t, "the overview of order.*", http.StatusOK, "what is wrong, the worst first (1)", "Could not be asked: 1 of the nodes", "Actions here need a token of scope operate", "All biz types")
	all.header["Accept-Language"] = "zh"
	if zh := all.get("/"); !strings.Contains(zh.text, `<span>order.close 延迟：1 个逾期任务，最早的已 17 分钟`) || strings.Contains(zh.words(), " at 127.0.0.1:1") || !strings.Contains(zh.words(), "有没有问题？ 有：按严重程度排列") {
		t.Errorf("%s", zh.words())
	}
}

func TestABizTypeIsPausedAndResumedFromTheOverview(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	b := s.as("operate")
	b.until("/", "order.close").has(t, "an overview", http.StatusOK, "Pause…")
	pause, resume := url.Values{"biz_type": {"order.close"}, "do": {"pause"}}, url.Values{"biz_type": {"order.close"}, "do": {"resume"}}
	b.done("/", pause, "The biz type is paused")
	b.sees("/biz-types", http.StatusOK, "order.close ‖ paused")
	b.done("/", resume, "delivered again")
	b.sees("/biz-types", http.StatusOK, "order.close ✓ active")
	for _, as := range []string{"read", "write"} {
		got := s.as(as)
		got.get("/").lacks(t, as, `action="/"`)
		got.post("/", pause).has(t, as, http.StatusForbidden, "Your token may not do this", "Is anything wrong?")
	}
	b.post("/", url.Values{"biz_type": {"coupon.remind"}, "do": {"pause"}}).has(t, "another's", http.StatusNotFound, "Unknown biz type")
	b.post("/", url.Values{"biz_type": {"order.close"}, "do": {"explode"}}).has(t, "an act", http.StatusNotFound, "no such page")
	b.post("/", url.Values{"biz_type": {"order.close:resume/x"}, "do": {"pause"}}).has(t, "no name", http.StatusNotFound, "no such page")
}

// Rates take two looks at the nodes. Before that there is no verdict.
func TestAnOverviewGivesNoVerdictBeforeAllIsRead(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.answers("host-1-4mzkq7ta", "")
	b := s.as("all")
	got := b.get("/")
	got.has(t, "the first look", http.StatusOK, "Is anything wrong? ○ Still reading: 0 so far This is not all yet", "Look again in some seconds.", ", again every 2 s")
	got.lacks(t, "the first look", "No, as far as is known", "Yes: what is wrong")
	if !strings.Contains(got.text, `data-refresh="soon"`) {
		t.Error("it waits for 5 s to look again")
	}
	b.header["Accept-Language"] = "zh"
	if zh := b.get("/"); !strings.Contains(zh.words(), "○ 仍在读取：目前 0 个") {
		t.Error(zh.words())
	}
	b.header["Accept-Language"] = "en"
	later := b.until("/", "No, as far as is known")
	later.lacks(t, "a later look", "Still reading", "again every 2 s")
	if !strings.Contains(later.text, `data-refresh=""`) {
		t.Error("it goes on looking each 2 s")
	}
}

// What is wrong with a biz type is on its page, before all else; what is wrong with another is not.
func TestABizTypeSaysWhatIsWrongWithItFirst(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.answers("host-1-4mzkq7ta", "# TYPE tocsin_node_biz_type_lacking gauge\ntocsin_node_biz_type_lacking{biz_type=\"order.close\"} 1\n")
	b := s.as("all")
	got := b.until("/biz-types/order.close", "order.close can't be delivered")
	got.has(t, "the first look", http.StatusOK, "Biz type order.close ✕ can't be delivered ○ Still reading: 1 so far", "What to do")
	got.lacks(t, "a type that no node delivers", "✓ active", "✓ open")
	last := 0
	for _, part := range []string{`id="faults"`, `id="dead"`, `id="redrive"`, `id="nodes"`, `id="policy"`} {
		at := strings.Index(got.text, part)
		if at < last {
			t.Errorf("%s is out of order", part)
		}
		last = at
	}
	b.until("/biz-types/coupon.remind", "Nothing is known to be wrong with it.").lacks(t, "another type", "can't be delivered", "Still reading")
	b.get("/biz-types/order.close").lacks(t, "a later look", "Still reading")
	s.as("read").sees("/biz-types/order.close", http.StatusOK, "order.close can't be delivered")
	s.as("read").sees("/biz-types/coupon.remind", http.StatusNotFound)
}

// A refresh has the part that changes alone, and stays small with many nodes that do not answer and many biz types.
func TestARefreshOfTheOverviewIsSmall(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	var many []biztype.Policy
	for i := range 200 {
		many = append(many, biztype.Policy{Name: fmt.Sprintf("app%d.%x", i%7, i*7919), Number: uint64(1000 + i), Group: fmt.Sprintf("group%d", i)})
	}
	if _, err := biztype.Apply(t.Context(), s.Config, many); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		s.attend("test", fmt.Sprintf("host-%d-%s", i, hostile[i%len(hostile)]))
	}
	b := s.as("all")
	b.until("/", "The 152 least busy ones are not shown")
	got := b.get("/?part=now")
	got.has(t, "a refresh", http.StatusOK, "and 210 more")
	if t.Logf("a refresh has %d bytes", got.size); got.size > 15<<10 || !strings.HasPrefix(got.text, `<div id="now"`) || strings.Contains(got.text, "<html") {
		t.Errorf("%d bytes: %.200s", got.size, got.text)
	}
	got.lacks(t, "a refresh", "\u202e", "\x1b", "\x00")
	if alive := regexp.MustCompile(`<script|<img|</pre>|</textarea>`).FindString(got.text); alive != "" {
		t.Errorf("a refresh has %s", alive)
	}
}

// While nothing is known the page says why, and goes on asking.
func TestAnOverviewThatIsRefusedGoesOnAsking(t *testing.T) {
	t.Parallel()
	b := serve(t, changes{api: func(c *api.Config) { c.Rate = 1 }}).as("all")
	got := b.until("/", "Too many requests")
	if got.has(t, "the overview", http.StatusTooManyRequests, "Is anything wrong?"); !strings.Contains(got.text, `<div id="now" data-refresh`) {
		t.Error(got.text)
	}
	got.lacks(t, "the overview", "as far as is known", "no biz types")
}

// A hidden tab sends nothing. A refresh keeps what is selected and open, and follows what changes.
func TestABrowserRefreshesTheOverviewWhileItIsSeen(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	b := s.open(t, 320, 640)
	b.to("/", "#now table")
	sent := js[[]int](b, `(() => {
		let sent = 0, hidden = true;
		const trigger = htmx.trigger;
		htmx.trigger = () => { sent++; };
		Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
		`+looked+`;
		const away = sent;
		hidden = false;
		`+looked+`;
		htmx.trigger = trigger;
		return [away, sent];
	})()`)
	if len(sent) != 2 || sent[0] != 0 || sent[1] != 1 {
		t.Errorf("requests of a hidden tab and of one that is seen: %v", sent)
	}
	js[bool](b, `document.getElementById("pause-order.close").open = true, getSelection().selectAllChildren(document.querySelector("h1")), window.kept = document.getElementById("type-order.close"), document.getElementById("pause-order.close").querySelector("button").focus(), scrollTo(0, 50), true`)
	s.add(closing.New(1, "", tocsin.In(0)))
	s.attend("test", "host-1-4mzkq7ta")
	js[bool](b, looked)
	b.until(`document.querySelector("#faults").textContent.includes("host-1-4mzkq7ta")`)
	b.keeps(map[string]string{
		"the selection": `getSelection().toString() === "Is anything wrong?"`, "the open form": `document.getElementById("pause-order.close").open`,
		"the focus": `document.activeElement.value === "pause"`, "the place on the page": `scrollY === 50`,
		"the row": `document.getElementById("type-order.close") === window.kept`, "the absence of a warning": `document.querySelector("#stale").hidden`,
	})
	if shown := js[string](b, `(() => {
		const again = document.querySelector("#typestitle .scripted"), with_ = getComputedStyle(again).display;
		document.documentElement.classList.remove("live"); // as without JavaScript
		return with_ + " " + getComputedStyle(again).display;
	})()`); shown != "inline none" {
		t.Errorf("\"again every 5 s\" is shown with and without JavaScript: %s", shown)
	}
	if wide := js[int](b, "document.documentElement.scrollWidth"); wide > 320 {
		t.Errorf("it is %d pixels wide", wide)
	}
}
