package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/api"
)

// badSchedules need the schedule here, which each hour has a fire time.
func badSchedules() map[string]bad {
	define := func(fields string) request {
		return post("/schedules", hourly("new", `, "payload": "`+secret+`"`+fields))
	}
	cron := func(text string) request {
		return post("/schedules", `{"name": "new", "biz_type": "order.close", "cron": "`+text+`"}`)
	}
	return map[string]bad{
		"to backfill with write":       {post("/schedules/here:backfill", `{}`), 403, "scope", "backfill_schedule needs a token of scope operate"},
		"a definition of nothing":      {post("/schedules", `{}`), 422, "invalid", " is missing"},
		"a definition without a name":  {post("/schedules", `{"biz_type": "order.close", "cron": "@daily"}`), 422, "invalid", `body: property "name" is missing`},
		"a name with capitals":         {post("/schedules", hourly("Report", "")), 422, "invalid", "lower-case letters"},
		"a name with a colon":          {post("/schedules", hourly("a:run", "")), 422, "invalid", "name"},
		"a long name":                  {post("/schedules", hourly(strings.Repeat("a", 65), "")), 422, "invalid", "body.name: expected length <= 64"},
		"a name that is there":         {post("/schedules", hourly("here", `, "payload": "p"`)), 409, "exists", "there is a schedule of this name"},
		"an unknown field of it":       {define(`, "paylaod": "x"`), 422, "invalid", "body.paylaod: unexpected property"},
		"a state in a definition":      {define(`, "state": "inactive"`), 422, "invalid", "body.state: unexpected property"},
		"no type of its runs":          {post("/schedules", `{"name": "new", "cron": "@daily"}`), 422, "invalid", `body: property "biz_type" is missing`},
		"an unknown type of its runs":  {post("/schedules", strings.Replace(hourly("new", ""), "order.close", "order.none", 1)), 404, "unknown_biz_type", `no biz type "order.none"`},
		"a biz_id of a wrong form":     {define(`, "biz_id": 7`), 422, "invalid", "body.biz_id: expected string"},
		"a biz_id that is too large":   {define(`, "biz_id": "18446744073709551616"`), 422, "invalid", "biz_id is above 2^64-1"},
		"six fields":                   {cron("0 0 4 * * *"), 422, "invalid", "cron"},
		"no cron at all":               {cron(""), 422, "invalid", "body.cron: expected length >= 1"},
		"a long expression":            {cron(strings.Repeat("1,", 200) + "1 * * * *"), 422, "invalid", "body.cron: expected length <= 255"},
		"a start with a zone of a day": {define(`, "start": "2030-01-02T15:04:05+24:00"`), 422, "invalid", "want RFC 3339, as 2030-01-02T15:04:05Z"},
		"a start that is no time":      {define(`, "start": "tomorrow"`), 422, "invalid", "body.start: expected a time of RFC 3339"},
		"a jitter that is a number":    {define(`, "jitter": 90`), 422, "invalid", "body.jitter: expected string"},
		"a jitter without a unit":      {define(`, "jitter": "90"`), 422, "invalid", "want a duration such as 30s"},
		"an unknown policy":            {define(`, "missed": "some"`), 422, "invalid", "body.missed: expected value to be one of"},
		"an unknown overlap":           {define(`, "overlap": "wait"`), 422, "invalid", "body.overlap: expected value to be one of"},
		"too many made up for":         {define(`, "missed": "all", "missed_most": 501`), 422, "invalid", "body.missed_most: expected number <= 500"},
		"a long payload of runs":       {post("/schedules", hourly("new", `, "payload": "`+strings.Repeat("ü", 8193)+`"`)), 422, "invalid", "body.payload: expected length <= 8192"},
		"long headers of runs":         {define(`, "headers": {"a": "` + strings.Repeat("x", 1100) + `"}`), 422, "invalid", "1024"},
	}
}

// badChanges need the schedule here too.
func badChanges() map[string]bad {
	change := func(tag, body string) request { return put("here", tag, body) }
	return map[string]bad{
		"no If-Match":                 {request{method: "PUT", path: "/v1/schedules/here", body: hourly("here", "")}, 428, "if_match", "send the ETag of the schedule"},
		"a delete without If-Match":   {request{method: "DELETE", path: "/v1/schedules/here"}, 428, "if_match", "send the ETag of the schedule"},
		"an old If-Match":             {change(`"117904638606316173.1"`, hourly("here", `, "jitter": "1s"`)), 412, "changed", "somebody has changed the schedule"},
		"a delete with an old one":    {drop("here", `"117904638606316173.1"`), 412, "changed", "somebody has changed the schedule"},
		"a weak If-Match":             {change(`W/"1.1"`, hourly("here", `, "jitter": "1s"`)), 412, "changed", "somebody has changed the schedule"},
		"an If-Match without quotes":  {change("1.1", hourly("here", "")), 400, "malformed", "with its quotes"},
		"half an If-Match":            {change(`"1.1", "2`, hourly("here", "")), 400, "malformed", "with its quotes"},
		"a long If-Match":             {change(`"`+strings.Repeat("1", 1000)+`"`, hourly("here", "")), 422, "invalid", "expected length <= 1000"},
		"a change of nothing":         {change("*", ""), 400, "malformed", "this operation needs a body of JSON"},
		"a change of the name":        {change("*", hourly("other", "")), 422, "invalid", "the name never changes"},
		"a change of the key":         {change("*", hourly("here", `, "key": "other"`)), 422, "invalid", "never changes"},
		"a change of a wrong cron":    {change("*", `{"biz_type": "order.close", "cron": "x"}`), 422, "invalid", "cron expression"},
		"a change to an unknown type": {change("*", strings.Replace(hourly("here", ""), "order.close", "order.none", 1)), 404, "unknown_biz_type", `no biz type "order.none"`},
		"a change of a form":          {with(change("*", "x=1"), "Content-Type", "text/plain"), 415, "unsupported_media_type", "application/json"},
		"a change that is too large":  {change("*", hourly("here", `, "payload": "`+strings.Repeat(secret, 5000)+`"`)), 413, "body_too_large", "65536"},
		"a delete with a body":        {with(request{method: "DELETE", path: "/v1/schedules/here", body: `{"a": 1}`}, "If-Match", "*"), 400, "malformed", "delete_schedule takes no body"},
	}
}

// badLookUps need it for what is wrong in other places.
func badLookUps() map[string]bad {
	return map[string]bad{
		"a schedule that is not there":  {get("/schedules/none"), 404, "not_found", `no schedule "none"`},
		"a schedule of a wrong name":    {get("/schedules/No%20name"), 404, "not_found", "no schedule"},
		"a schedule of a zero byte":     {get("/schedules/a%00b"), 404, "not_found", "no schedule"},
		"an unknown verb of it":         {post("/schedules/here:explode", ""), 404, "no_such_path", "no operation has this path"},
		"another method of a schedule":  {post("/schedules/here", `{}`), 405, "method_not_allowed", "this path takes DELETE, GET, PUT"},
		"a run with a body":             {post("/schedules/here:run", `{"payload": "`+secret+`"}`), 400, "malformed", "run_schedule takes no body"},
		"a run of nothing":              {post("/schedules/none:run", ""), 404, "not_found", `no schedule "none"`},
		"no fire times":                 {get("/schedules/here/next?n=0"), 422, "invalid", "query.n: expected number >= 1"},
		"too many fire times":           {get("/schedules/here/next?n=101"), 422, "invalid", "query.n: expected number <= 100"},
		"schedules in a wrong state":    {get("/schedules?state=running"), 422, "invalid", "query.state: expected value to be one of"},
		"schedules of an unknown type":  {get("/schedules?biz_type=order.none"), 404, "unknown_biz_type", `no biz type "order.none"`},
		"schedules of a foreign type":   {get("/schedules?biz_type=coupon.remind"), 404, "unknown_biz_type", `no biz type "coupon.remind"`},
		"too many schedules":            {get("/schedules?limit=1001"), 422, "invalid", "query.limit: expected number <= 1000"},
		"schedules in no order":         {get("/schedules?sort=cron"), 422, "invalid", "query.sort: expected value to be one of"},
		"paused ones by next fire time": {get("/schedules?sort=next_fire&state=paused"), 422, "invalid", "only active schedules have a next fire time"},
		"a long part of a name":         {get("/schedules?q=" + strings.Repeat("a", 65)), 422, "invalid", "query.q: expected length <= 64"},
		"a cursor of no list":           {get("/schedules?cursor=abc"), 400, "cursor", "this is no cursor"},
		"runs of a task of letters":     {get("/tasks/abc/runs"), 422, "invalid", "path.id: expected a text"},
		"runs of a task beyond 63 bits": {get("/tasks/9223372036854775808/runs"), 404, "not_found", "no task 9223372036854775808"},
		"runs of a task beyond tables":  {get("/tasks/9223372036854775807/runs"), 404, "not_found", "no task 9223372036854775807"},
		"runs after no cursor":          {get("/schedules/here/runs?cursor=abc"), 400, "cursor", "this is no cursor"},
		"too many runs":                 {get("/schedules/here/runs?limit=0"), 422, "invalid", "query.limit: expected number >= 1"},
	}
}

// badSpans are backfills of the schedule here.
func badSpans() map[string]bad {
	fill := func(from, to string) request {
		return post("/schedules/here:backfill", fmt.Sprintf(`{"from": %q, "to": %q}`, from, to)).by("operate")
	}
	return map[string]bad{
		"no span":                {post("/schedules/here:backfill", `{}`).by("operate"), 422, "invalid", " is missing"},
		"half a span":            {post("/schedules/here:backfill", `{"from": "2026-01-01T00:00:00Z"}`).by("operate"), 422, "invalid", `body: property "to" is missing`},
		"a span of days":         {fill("2026-01-01", "2026-01-02"), 422, "invalid", "body.from: expected a time of RFC 3339"},
		"a span backwards":       {fill("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"), 422, "invalid", "to must be after from"},
		"a span of nothing":      {post("/schedules/none:backfill", `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"}`).by("operate"), 404, "not_found", `no schedule "none"`},
		"an unknown field there": {post("/schedules/here:backfill", `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z", "all": true}`).by("operate"), 422, "invalid", "body.all: unexpected property"},
	}
}

func TestBadRequestsAboutSchedulesAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	_, tag := s.create(hourly("here", ""))
	s.refuses(badSchedules(), badChanges(), badLookUps(), badSpans())
	list := want[api.Schedules](s, 200, get("/schedules").by("all"))
	if got := s.do(get("/schedules/here")); len(list.Schedules) != 1 || got.header.Get("ETag") != tag {
		t.Errorf("a bad request has changed something: %+v", list)
	}
}

// Each field that is wrong is named.
func TestEachFaultOfADefinitionIsNamed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	got := s.do(post("/schedules", `{"name": "A", "app": "b c", "biz_type": "order.close", "cron": "@every 1ms", "start_within": "1ms"}`))
	var fields []string
	for _, f := range got.Errors {
		fields = append(fields, f.Location)
	}
	if strings.Join(fields, " ") != "body.name body.app body.cron body.start_within" {
		t.Errorf("%d %s", got.status, got.text)
	}
}
