package console_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node/nodetest"
)

// id is the job_id of a task's path.
func id(path string) string { return strings.TrimPrefix(path, "/tasks/") }

func TestSelectedTasksAreChangedAndThePageNamesWhatFailed(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	var ids []string
	for i := range 3 {
		ids = append(ids, id(s.add(closing.New(uint64(i+1), "", tocsin.In(time.Hour)))))
	}
	b := s.as("operate")
	form := url.Values{"job_id": ids, "act": {"bury"}, "reason": {"o'clock"}, "status": {"pending"}}
	got := b.post("/tasks/act", form)
	got.has(t, "bury", http.StatusOK, "Done: 3. Failed: 0.", "✕ dead", `'{"act":"bury","job_ids":["`+ids[0], "tocsin task bury "+strings.Join(ids, " ")+` --reason 'o'\''clock'`)
	if !strings.Contains(got.text, `href="/tasks?status=pending"`) {
		t.Errorf("no way back: %s", got.text)
	}
	s.call("POST", "/tasks/"+ids[0]+":redrive", "")
	form.Set("act", "redrive")
	form.Set("same_key", "1")
	b.post("/tasks/act", form).has(t, "redrive", http.StatusOK, "Done: 2. Failed: 1.", "✕ Not in this status", ids[0], "--same-key")
	form.Set("act", "reschedule")
	b.post("/tasks/act", form).has(t, "no time", http.StatusUnprocessableEntity, "Give a time such as")
	form.Set("at", "2031-05-06T07:08:09")
	b.post("/tasks/act", form).has(t, "reschedule", http.StatusOK, "Done: 3.", "--at 2031-05-06T07:08:09Z")
	form.Set("minutes", "90")
	b.post("/tasks/act", form).has(t, "reschedule", http.StatusOK, "Done: 3.", "--in 1h30m0s")
	form.Set("act", "cancel")
	form["job_id"] = append(ids, "12345", "x")
	b.post("/tasks/act", form).has(t, "a selection that was made by hand", http.StatusUnprocessableEntity)
	form["job_id"] = append(ids[:3:3], "12345")
	b.post("/tasks/act", form).has(t, "cancel", http.StatusOK, "Done: 3. Failed: 1.", "Not found", "there is no task 12345 that you may see")
	form.Del("reason")
	got = b.post("/tasks/act", form)
	got.has(t, "no reason", http.StatusUnprocessableEntity)
	for _, kept := range []string{`name="job_id" value="` + ids[0] + `" checked`, `value="cancel" selected`, `name="status" value="pending"`} {
		if !strings.Contains(got.text, kept) {
			t.Errorf("a refused form has lost %s: %s", kept, got.text)
		}
	}
	b.post("/tasks/act", url.Values{"act": {"cancel"}}).has(t, "nothing", http.StatusUnprocessableEntity, "✕ Nothing is selected Nothing was done: select something first")
	var many []string
	for i := range 51 {
		many = append(many, fmt.Sprint(i+1))
	}
	b.post("/tasks/act", url.Values{"act": {"cancel"}, "reason": {"r"}, "job_id": many}).has(t, "too many", http.StatusUnprocessableEntity, "select 50 at most")
}

// Who may not act sees no box to tick, and acts that the token may not do are not offered, and refused.
func TestWhoMayActOnTheSelected(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	task := id(s.add(closing.New(1, "", tocsin.In(time.Hour))))
	s.yearly("report.daily", "")
	foreign := id(s.add(remind.New(1, "", tocsin.In(time.Hour))))
	for as, offered := range map[string][]string{"read": nil, "write": {"cancel", "reschedule"}, "operate": {"cancel", "reschedule", "bury", "redrive"}} {
		b := s.as(as)
		list, schedules := b.get("/tasks?status=pending").text, b.get("/schedules").text
		if ticks := as != "read"; strings.Contains(list, `name="job_id"`) != ticks || strings.Contains(schedules, `name="name"`) != ticks || strings.Contains(schedules, `action="/schedules/activate"`) != ticks {
			t.Errorf("%s: %s %s", as, list, schedules)
		}
		for _, act := range []string{"cancel", "reschedule", "bury", "redrive"} {
			may := strings.Contains(strings.Join(offered, " "), act)
			if strings.Contains(list, `<option value="`+act+`"`) != may {
				t.Errorf("%s: %s is offered: %t", as, act, !may)
			}
			got := b.post("/tasks/act", url.Values{"job_id": {"12345"}, "act": {act}, "reason": {"r"}, "minutes": {"60"}})
			if want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[may]; got.status != want {
				t.Errorf("%s: %s: %d %s", as, act, got.status, got.words())
			}
		}
		if got := b.post("/schedules/activate", url.Values{"name": {"report.daily"}, "reason": {"r"}}); (got.status == http.StatusOK) == (as == "read") {
			t.Errorf("%s: %d %s", as, got.status, got.words())
		}
	}
	s.as("operate").post("/tasks/act", url.Values{"job_id": {task, foreign}, "act": {"cancel"}, "reason": {"r"}}).has(t, "a foreign task", http.StatusOK, "Done: 1. Failed: 1.", "there is no task "+foreign)
}

// "Ask again" and "select all" are links to the list with what is selected and typed, so that they need no JavaScript.
func TestAListReadAgainKeepsWhatIsSelectedAndTyped(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	first, second := id(s.add(closing.New(1, "", tocsin.In(time.Hour)))), id(s.add(closing.New(1, "", tocsin.In(time.Hour))))
	s.yearly("report.daily", "")
	b := s.as("operate")
	got := b.sees("/tasks?status=pending&job_id="+first+"&reason=void&act=bury&minutes=7", http.StatusOK).text
	for text, there := range map[string]bool{
		`value="` + first + `" aria-label="` + first + `" checked`: true, `value="` + second + `" aria-label="` + second + `" checked`: false, `name="reason" required maxlength="255" value="void"`: true,
		`value="bury" selected`: true, `value="7"`: true, `<input type="hidden" name="status" value="pending">`: true,
	} {
		if strings.Contains(got, text) != there {
			t.Errorf("%s: %t: %s", text, !there, got)
		}
	}
	if n := strings.Count(b.get("/tasks?status=pending&pick=all").text, " checked"); n != 2 {
		t.Errorf("%d tasks of 2 are selected", n)
	}
	if !strings.Contains(b.get("/schedules?name=report.daily").text, `value="report.daily" aria-label="report.daily" checked`) {
		t.Error("a schedule is not selected any more")
	}
}

func TestAListOfEndedTasksIsOfTheLastDay(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	path := s.add(closing.New(1, "", tocsin.In(time.Hour)))
	s.call("POST", path+":cancel", "")
	b := s.as("read")
	got := b.sees("/tasks?status=cancelled", http.StatusOK, "in the last 24 hours, since", id(path), "payload=false", "from=", "tocsin task list --status cancelled --limit 50 --from 20")
	all := regexp.MustCompile(`href="(\?all=1[^"]*)"`).FindStringSubmatch(got.text)
	if all == nil {
		t.Fatal(got.text)
	}
	b.sees("/tasks"+strings.ReplaceAll(all[1], "&amp;", "&"), http.StatusOK, id(path)).lacks(t, "all", "last 24 hours", "from=")
	b.sees("/tasks?status=cancelled&to=2020-01-01T00:00", http.StatusOK, "There are none", "to=2020-01-01T00%3A00%3A00Z").lacks(t, "an old window", "last 24 hours")
	b.sees("/tasks?status=cancelled&from=2020-01-01T00:00", http.StatusOK, id(path)).lacks(t, "a window", "last 24 hours")
	b.sees("/tasks?status=pending", http.StatusOK).lacks(t, "open tasks", "last 24 hours", "from=")
	b.sees("/tasks?status=dead&from=yesterday", http.StatusUnprocessableEntity, "Give a time such as 2030-01-02 15:04.")
}

func TestTheDeadAreGroupedByAButtonAndAGroupIsRedriven(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	for i, reason := range []string{"answer 503: <b>order</b> 17 is locked", "answer 503: <b>order</b> 18 is locked", "void"} {
		s.call("POST", s.add(closing.New(uint64(i+1), "", tocsin.In(time.Hour)))+":bury", `{"reason": "`+reason+`"}`)
	}
	const path = "/biz-types/order.close"
	b := s.as("operate")
	b.sees(path, http.StatusOK, "Group by error", "Reads the latest 1,000").lacks(t, "a page that was not asked", "is locked")
	got := b.sees(path+"?dead=groups", http.StatusOK, "Dead tasks: 3", "<b>order</b> * is locked The latest: answer 503: <b>order</b> 18 is locked", "void", "tocsin task dead --type order.close")
	form := url.Values{"do": {"count"}}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="(error|since|until)" value="([^"]*)">`).FindAllStringSubmatch(got.text, 3) {
		form.Set(m[1], strings.NewReplacer("&lt;", "<", "&gt;", ">").Replace(m[2]))
	}
	counted := b.post(path+"/redrive", form)
	counted.has(t, "the group", http.StatusOK, "2 tasks would be redriven", "To redrive these, type order.close")
	form.Set("limit", "7")
	form.Set("same_key", "1")
	limited := b.post(path+"/redrive", form)
	form.Del("limit")
	form.Del("same_key")
	const rfc = `20[0-9T:.-]+Z`
	for _, same := range []string{
		`tocsin task redrive --type order\.close --since ` + rfc + ` --until ` + rfc + ` --error '[^']*<b>order</b>' --limit 7 --same-key --dry-run`,
		`/v1/tasks:redrive .* -d '\{"biz_type":"order\.close","since":"` + rfc + `","until":"` + rfc + `","error":"[^']*","limit":7,"same_key":true,"dry_run":true\}'`,
	} {
		if !regexp.MustCompile(same).MatchString(html.UnescapeString(limited.text)) {
			t.Errorf("no command %s", same)
		}
	}
	form.Set("do", "redrive")
	form.Set("confirm", "order.close")
	form.Set("reason", "unlocked")
	b.done(path+"/redrive", form, "✓ 2 tasks were redriven")
	b.sees(path+"?dead=groups", http.StatusOK, "Dead tasks: 1", "void").lacks(t, "the rest", "is locked")
	if got := s.as("write").sees(path+"?dead=groups", http.StatusOK, "void"); strings.Contains(got.text, `/redrive`) {
		t.Error("who may not redrive can redrive a group")
	}
	b.sees("/biz-types/coupon.remind?dead=groups", http.StatusNotFound)
}

func TestSchedulesAreFoundSortedAndTurnedTogether(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.yearly("report.daily", `, "app": "billing"`)
	s.yearly("report.weekly", "")
	s.yearly("orders.sweep", "")
	s.call("POST", "/schedules/report.daily:run", "")
	nodetest.RunDue(t, s.Cluster, handler(func(context.Context, *tocsin.Task[string]) error { return tocsin.Bury(errors.New("no paper")) }), time.Now().Add(time.Second))
	b := s.as("write")
	b.sees("/schedules?q=report&sort=next_fire", http.StatusOK, "report.daily", "report.weekly", "✕ failed for good (buried)", "last=true", "tocsin schedule list --last --q report --sort next").lacks(t, "a search", "orders.sweep")
	b.sees("/schedules?sort=next_fire&state=paused", http.StatusUnprocessableEntity, "only active schedules have a next fire time")
	names := url.Values{"name": {"report.daily", "report.weekly", "nothing"}, "q": {"report"}}
	b.post("/schedules/deactivate", names).has(t, "without a reason", http.StatusUnprocessableEntity, "✕ The reason is missing Nothing was done: say why", "report.weekly")
	names.Set("reason", "the printer burns")
	got := b.post("/schedules/deactivate", names)
	got.has(t, "deactivate", http.StatusOK, "Done: 2. Failed: 1.", "⊘ inactive", "Not found", "tocsin schedule deactivate report.daily report.weekly nothing")
	if !strings.Contains(got.text, `href="/schedules?q=report"`) {
		t.Errorf("no way back: %s", got.text)
	}
	b.sees("/schedules?state=inactive", http.StatusOK, "report.daily", "report.weekly").lacks(t, "the inactive", "orders.sweep")
	b.post("/schedules/activate", names).has(t, "activate", http.StatusOK, "Done: 2. Failed: 1.", "✓ active")
	b.post("/schedules/activate", nil).has(t, "nothing", http.StatusUnprocessableEntity, "✕ Nothing is selected Nothing was done: select something first")
	b.post("/schedules/explode", names).has(t, "an act", http.StatusNotFound, "no such page")
	b.sees("/runs", http.StatusOK, "✕ failed for good (buried) report.daily order.close", "no paper", "tocsin runs --limit 50")
	b.sees("/runs?outcome=buried&app=billing&biz_type=order.close&schedule=report.daily&from=2020-01-01T00:00", http.StatusOK, "no paper", "tocsin runs --outcome buried --app billing --type order.close --schedule report.daily --since 2020-01-01T00:00:00Z")
	b.sees("/runs?outcome=missed", http.StatusOK, "No run fits")
	failed := b.sees("/runs?outcome=failed&to=2099-01-01T00:00", http.StatusOK, "no paper", "tocsin runs --outcome failed --until 2099-01-01T00:00:00Z --limit 50", "Runs are kept as long as the biz type keeps finished tasks")
	b.sees("/runs"+failed.linked("last hour"), http.StatusOK, "no paper", "tocsin runs --outcome failed --since 20")
	b.sees("/runs?outcome=failed&to=2020-01-01T00:00", http.StatusOK, "No run fits")
	b.sees("/runs?from=x", http.StatusUnprocessableEntity, "Give a time such as")
	b.sees("/runs?biz_type=coupon.remind", http.StatusNotFound, "Unknown biz type")
}

// A copy has what the form says, and else what the task has. Two clicks add one task.
func TestACopyOfATaskIsAddedWithChanges(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	path := s.add(closing.NewKey("ord_1", "\n{\"n\":1}\n<b>", tocsin.In(time.Hour)).Header("tenant", "a"))
	b := s.as("write")
	got := b.get(path).text
	if !strings.Contains(got, "spellcheck=\"false\">\n\n{&#34;n&#34;:1}\n&lt;b&gt;</textarea>") {
		t.Errorf("the payload is not there as it is: %s", got)
	}
	form := url.Values{
		"once": {regexp.MustCompile(`name="once" value="([A-Z2-7]+)"`).FindStringSubmatch(got)[1]}, "biz_key": {"ord_2"}, "payload": {"{\"n\":2,\r\n\"m\":18446744073709551615}"}, "minutes": {"x"},
	}
	got = b.post(path+"/copy", form).text
	for _, kept := range []string{`value="ord_2"`, "18446744073709551615}</textarea>", `id="act-copy" open`} {
		if !strings.Contains(got, kept) {
			t.Errorf("a refused form has lost %s: %s", kept, got)
		}
	}
	form.Set("minutes", "30")
	first := b.done(path+"/copy", form, "added as a copy", "ord_2", `{ "n": 2, "m": 18446744073709551615 }`, "tenant a").words()
	number := regexp.MustCompile(`Task (\d+)`)
	if again := b.done(path+"/copy", form).words(); number.FindString(again) != number.FindString(first) {
		t.Error("two clicks add two tasks")
	}
	if copied := s.call("GET", "/tasks/"+number.FindStringSubmatch(first)[1], ""); copied["payload"] != "{\"n\":2,\n\"m\":18446744073709551615}" {
		t.Errorf("%q", copied["payload"])
	}
	unseen := s.add(closing.New(5, "a\u202eb", tocsin.In(time.Hour)))
	b.sees(unseen, http.StatusOK, "is copied as it is")
	made := b.done(unseen+"/copy", url.Values{"biz_id": {"6"}, "minutes": {"30"}, "payload": {"c"}, "once": {"k"}}, "added as a copy").words()
	if copied := s.call("GET", "/tasks/"+number.FindStringSubmatch(made)[1], ""); copied["payload"] != "a\u202eb" {
		t.Errorf("%q", copied["payload"])
	}
}
