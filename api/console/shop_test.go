package console_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// onlyShop ends a test that looks at the console of a cluster at work, except if the variable of its target in the Makefile is set, and returns that.
func onlyShop(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Skip("takes minutes: make axe, make console-pictures")
	}
	return value
}

// shop is the console of a cluster as tocsin dev --load makes it: orders, refunds that die with an error of the bank, a paused biz type, one without a
// handler, and schedules that ran each night for a month, and failed in the last one.
type shop struct {
	*site

	cluster *devcluster.Cluster
}

// night is a schedule of a shop, which has run on each of the last nights.
type night struct {
	name, definition string
	hour, minute     int           // in UTC, of its runs; 0: it has none
	took             time.Duration // by its runs, about
	output           string
}

var nights = []night{
	{"stock.nightly", `"app": "warehouse", "biz_type": "stock.sync", "cron": "30 2 * * *", "zone": "Asia/Shanghai", "payload": "{\"warehouse\":\"north\",\"full\":true}"`, 18, 30, 1400 * time.Millisecond, "18204 items compared, 3 corrected"},
	{"report.daily", `"app": "analytics", "biz_type": "report.build", "cron": "0 6 * * *", "zone": "Europe/Berlin"`, 5, 0, 42 * time.Second, "412 pages"},
	{"prices.refresh", `"app": "catalog", "biz_type": "report.build", "cron": "15 4 * * *"`, 4, 15, 7 * time.Second, "9120 prices"},
	{"invoices.monthly", `"app": "billing", "biz_type": "report.build", "cron": "0 5 1 * *"`, 0, 0, 0, ""},
	{"digest.weekly", `"app": "marketing", "biz_type": "mail.digest", "cron": "0 9 * * MON", "zone": "America/New_York"`, 0, 0, 0, ""},
}

// opens starts a shop, and waits until there is something to look at.
func opens(t *testing.T) *shop {
	t.Helper()
	c, err := devcluster.Start(t.Context(), devcluster.Options{Layout: tocsin.Layout{Databases: 4, Tables: 8}, Nodes: 3, Servers: 2, Version: "1.4.0", Demo: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var load sync.WaitGroup
	t.Cleanup(func() {
		end()
		load.Wait()
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	view := func(cfg *api.Config) {
		cfg.Cluster = operator.View{Tables: c.Config, Grace: 10 * time.Second, Etcd: c.EtcdConfig(), Pages: cfg.Cluster.Pages}
	}
	s := &shop{over(t, &tocsintest.Cluster{Config: c.Config, Client: c.Client}, changes{api: view}), c}
	for id, token := range s.set {
		if token.Name == "all" {
			token.Name = "anna" // as of a person
			s.set[id] = token
		}
	}
	b := s.as("all")
	b.get("/") // from now on nodes and tables are looked at
	for _, n := range nights {
		s.call("POST", "/schedules", `{"name": "`+n.name+`", `+n.definition+`}`)
		if n.hour > 0 {
			s.call("POST", "/schedules/"+n.name+":run", "")
		}
	}
	s.call("POST", "/schedules/digest.weekly:deactivate", "")
	load.Go(func() { // without a purge, which would take the runs of a month
		if err := c.Demo(ctx, devcluster.DemoOptions{Rate: 40, Sweep: 10 * time.Second, Upkeep: time.Hour}); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	refunds := make([]tocsin.NewTask, 800) // one in eight dies
	for i := range refunds {
		order := uint64(812_000 + i)
		refunds[i] = devcluster.RefundSend.New(order, devcluster.Order{OrderID: order, Cents: 1990 + i*97%20_000}, tocsin.In(time.Duration(i)*40*time.Millisecond))
	}
	if _, err := c.Client.AddMany(t.Context(), refunds); err != nil {
		t.Fatal(err)
	}
	for _, n := range nights {
		if n.hour > 0 {
			b.until("/runs?schedule="+n.name, map[bool]string{true: "✕ failed for good (buried) ", false: "✓ worked (completed) "}[n.name == "stock.nightly"]+n.name)
			s.age(n)
		}
	}
	b.until("/tasks?status=dead&biz_type=refund.send", "cursor=") // a page and more
	b.until("/", "refund.send")
	b.until("/", `/tasks?status=pending&amp;biz_type=mail.digest`) // it is overdue
	return s
}

// age moves the run of a schedule to last night, after the runs of a month that went well.
func (s *shop) age(n night) {
	s.t.Helper()
	of := s.call("GET", "/schedules/"+n.name, "")["schedule_id"]
	at := time.Now().UTC().Truncate(24 * time.Hour).Add(time.Duration(n.hour)*time.Hour + time.Duration(n.minute)*time.Minute)
	if at.After(time.Now()) {
		at = at.AddDate(0, 0, -1)
	}
	for i := range s.cluster.Config.Layout.Databases {
		db, err := sql.Open("mysql", s.cluster.Servers[i%2].DSN()+s.cluster.Config.Layout.Database(i))
		if err != nil {
			s.t.Fatal(err)
		}
		last := uint64(0)
		err = db.QueryRowContext(s.t.Context(), "SELECT COALESCE(MAX(run_id), 0) FROM run WHERE schedule_id = ?", of).Scan(&last)
		const begin = "INSERT INTO run (job_id, schedule_id, biz_type, version, node, attempt, started, lateness_ms, duration_ms, outcome, output) SELECT job_id, schedule_id, biz_type, version, node, "
		for day := 30; day > 0 && err == nil; day-- {
			wave := time.Duration(day * 7919 % 31)
			_, err = db.ExecContext(s.t.Context(), begin+"1, ?, ?, ?, 'completed', ? FROM run WHERE schedule_id = ? AND run_id = ?",
				at.AddDate(0, 0, -day), 2+wave, (n.took + n.took*wave/100).Milliseconds(), n.output, of, last)
		}
		if err == nil {
			_, err = db.ExecContext(s.t.Context(), begin+"attempt, ? + INTERVAL 3 * (attempt - 1) SECOND, 4, IF(outcome = 'completed', ?, duration_ms), outcome, IF(outcome = 'completed', ?, output) FROM run WHERE schedule_id = ? AND run_id <= ? ORDER BY run_id", at, n.took.Milliseconds(), n.output, of, last)
		}
		if err == nil {
			_, err = db.ExecContext(s.t.Context(), "DELETE FROM run WHERE schedule_id = ? AND run_id <= ?", of, last)
		}
		if err = errors.Join(err, db.Close()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// deadRefund is the path of a refund that died of the bank's error.
func (s *shop) deadRefund() string {
	s.t.Helper()
	groups, _ := s.call("GET", "/tasks:deadgroups?biz_type=refund.send", "")["groups"].([]any)
	for _, of := range groups {
		if group, ok := of.(map[string]any); ok && strings.Contains(fmt.Sprint(group["error"]), "Service Unavailable") {
			if ids, ok := group["job_ids"].([]any); ok {
				return "/tasks/" + fmt.Sprint(ids[0])
			}
		}
	}
	s.t.Fatalf("no refund died of a 503: %v", groups)
	return ""
}

// waiting is the path of a task that waits, as its biz type is paused.
func (s *shop) waiting() string {
	s.t.Helper()
	order := tocsin.Define[map[string]any](devcluster.MailDigest.Name()).New(700042, map[string]any{"user_id": 700042, "topics": []string{"orders", "prices"}}, tocsin.In(0))
	return s.add(order)
}

// looks has pages in a language, and light or dark.
func (b *tab) looks(lang, scheme string) {
	b.t.Helper()
	js[string](b, `document.cookie = "tocsin_lang=`+lang+`; path=/"`)
	b.does(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return chromedp.Void{}, err
	})
}

// axe runs the rules of axe-core on the page, from outside: the policy forbids pages to load it. It returns what breaks one, by element.
const axe = `axe.run(document, {resultTypes: ["violations"], rules: {"target-size": {enabled: true}}}).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary)))`

// make axe sets TOCSIN_TEST_AXE to the file of axe-core.
func TestAxeFindsNothing(t *testing.T) {
	t.Parallel()
	file := onlyShop(t, "TOCSIN_TEST_AXE")
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := opens(t)
	b := s.open(t, 1280, 900)
	all := screens(s.waiting(), s.deadRefund(), "refund.send", "stock.nightly")
	for _, lang := range []string{"en", "zh-CN"} {
		for _, scheme := range []string{"light", "dark"} {
			b.looks(lang, scheme)
			for _, screen := range all {
				b.shows(screen)
				js[bool](b, string(source)+"; true")
				line := fmt.Sprintf("%s %s %s:", screen.name, lang, scheme)
				for _, width := range []int{1280, 320} {
					b.size(width, 900)
					found, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](axe, chromedp.EvalAwaitPromise))
					if err != nil {
						t.Fatal(err)
					}
					line += fmt.Sprintf(" %d px: %d.", width, len(found))
					for _, violation := range append(found, js[[]string](b, faulty)...) {
						t.Errorf("%s %s %s %d px: %s", screen.name, lang, scheme, width, violation)
					}
				}
				b.size(1280, 900)
				t.Log(line)
			}
			b.logIn()
		}
	}
}

// pictured is a picture of docs/console.md.
type pictured struct {
	name, path, lang, scheme string
	width                    int64
}

// make console-pictures sets TOCSIN_TEST_PICTURES to the folder that pictures are written into.
func TestPicturesAreTaken(t *testing.T) {
	t.Parallel()
	folder := onlyShop(t, "TOCSIN_TEST_PICTURES")
	s := opens(t)
	dead := s.deadRefund()
	b := s.open(t, 1280, 800)
	for _, p := range []pictured{
		{"overview", "/", "en", "light", 1280},
		{"biz-type", "/biz-types/refund.send?dead=groups", "en", "light", 1280},
		{"tasks", "/tasks?status=dead&biz_type=refund.send", "en", "light", 1280},
		{"task", dead, "en", "light", 1280},
		{"schedules", "/schedules", "en", "light", 1280},
		{"schedule", "/schedules/stock.nightly", "en", "light", 1280},
		{"cluster", "/cluster?show=nodes", "en", "light", 1280},
		{"overview-dark", "/", "en", "dark", 1280},
		{"schedules-zh", "/schedules", "zh-CN", "light", 1280},
		{"task-320", dead, "en", "light", 320},
	} {
		b.looks(p.lang, p.scheme)
		b.size(int(p.width), 800)
		b.to(p.path, "footer")
		height := min(js[int](b, "document.documentElement.scrollHeight"), 1000)
		b.does(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
			taken, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{
				Format: page.CaptureScreenshotFormatWebp, Quality: new(int64(60)), CaptureBeyondViewport: new(true),
				Clip: &page.Viewport{Width: float64(p.width), Height: float64(height), Scale: 1},
			})
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, p.name+".webp"), taken.Data, 0o644)
			}
			return chromedp.Void{}, err
		})
	}
}
