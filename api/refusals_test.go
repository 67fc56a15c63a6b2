package api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// bad is a request that is refused, and how.
type bad struct {
	request
	status int
	code   string
	detail string // part of it
}

// secret stands for a payload: no refusal may repeat it.
const secret = "4111111111111111"

// task is the body of an add with further fields.
func task(fields string) string {
	return `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1000, ` + fields + `}`
}

func with(r request, name, value string) request {
	if r.header == nil {
		r.header = map[string]string{}
	}
	r.header[name] = value
	return r
}

func badTokens(good string) map[string]bad {
	add := post("/tasks", task(`"payload": "`+secret+`"`))
	return map[string]bad{
		"no token":                  {add.by("-"), 401, "token", "send a token that is known and has not expired"},
		"an expired token":          {add.by("expired"), 401, "token", "send a token"},
		"an unknown token":          {with(add.by("-"), "Authorization", "Bearer toc_aaaaaaaa_"+strings.Repeat("a", 52)), 401, "token", "send a token"},
		"half a token":              {with(add.by("-"), "Authorization", "Bearer "+good[:20]), 401, "token", "send a token"},
		"another scheme":            {with(add.by("-"), "Authorization", "Basic "+good), 401, "token", "send a token"},
		"a token as a parameter":    {request{"-", "GET", "/v1/tasks?biz_id=1&access_token=" + good, "", nil}, 401, "token", "send a token"},
		"to add with read":          {add.by("read"), 403, "scope", "add_task needs a token of scope write, and this one has scope read"},
		"to redrive with write":     {post("/tasks/1:redrive", "").by("write"), 403, "scope", "redrive_task needs a token of scope operate"},
		"the nodes, for some types": {get("/cluster/nodes").by("operate"), 403, "biz_types", "list_nodes needs a token for all biz types"},
	}
}

func badBodies() map[string]bad {
	add := func(body string) request { return post("/tasks", body) }
	return map[string]bad{
		"no body":                        {post("/tasks", ""), 400, "malformed", "this operation needs a body of JSON: docs/api.md and openapi.yaml say with which fields"},
		"no JSON":                        {add(`{"payload": ` + secret), 400, "malformed", "the body is not JSON: see byte "},
		"two documents":                  {add(task(`"payload": "x"`) + `{}`), 400, "malformed", "the body is not JSON: see byte "},
		"no object":                      {add(`["` + secret + `"]`), 422, "invalid", "body: expected object"},
		"null":                           {add(`null`), 422, "invalid", "body: expected object"},
		"not UTF-8":                      {add(task(`"payload": "` + secret + "\xff\"")), 400, "invalid_utf8", "the body is not UTF-8"},
		"half a surrogate pair":          {add(task(`"payload": "` + secret + `\ud800"`)), 400, "invalid_utf8", "half of a surrogate pair"},
		"the other half":                 {add(task(`"payload": "\udc00"`)), 400, "invalid_utf8", "half of a surrogate pair"},
		"two high halves":                {add(task(`"payload": "\ud800\ud800"`)), 400, "invalid_utf8", "half of a surrogate pair"},
		"an unknown field":               {add(task(`"paylaod": "` + secret + `"`)), 422, "invalid", "body.paylaod: unexpected property"},
		"another case":                   {add(task(`"Payload": "` + secret + `"`)), 422, "invalid", "body.Payload: unexpected property"},
		"a field named like a payload":   {add(task(`"` + strings.Repeat(secret, 10) + `": 1`)), 422, "invalid", "body: unexpected property"},
		"a payload that is an object":    {add(task(`"payload": {"card": "` + secret + `"}`)), 422, "invalid", "body.payload: expected string: write JSON as a text, with its quotes escaped"},
		"a payload that is a number":     {add(task(`"payload": ` + secret)), 422, "invalid", "body.payload: expected string"},
		"a long payload":                 {add(task(`"payload": "` + strings.Repeat("ü", 8193) + `"`)), 422, "invalid", "body.payload: expected length <= 8192"},
		"a body that is too large":       {add(task(`"payload": "` + strings.Repeat(secret, 5000) + `"`)), 413, "body_too_large", "more than 65536 bytes"},
		"a header that is a number":      {add(task(`"headers": {"tenant": 7}`)), 422, "invalid", "body.headers.tenant: expected string"},
		"a header without a name":        {add(task(`"headers": {"": "` + secret + `"}`)), 422, "invalid", "for its name"},
		"long headers":                   {add(task(`"headers": {"a": "` + strings.Repeat("x", 1100) + `"}`)), 422, "invalid", "at most 1024"},
		"a long dedup_key":               {add(task(`"dedup_key": "` + strings.Repeat("k", 65) + `"`)), 422, "invalid", "dedup_key has 65 bytes: at most 64"},
		"a dedup_key of too many bytes":  {add(task(`"dedup_key": "` + strings.Repeat("ü", 33) + `"`)), 422, "invalid", "dedup_key has 66 bytes: at most 64"},
		"a reserved dedup_key":           {add(task(`"dedup_key": "\u0000abc"`)), 422, "invalid", "character 0 is reserved"},
		"no biz type":                    {add(`{"biz_id": "1", "delay_ms": 1}`), 422, "invalid", `body: property "biz_type" is missing`},
		"an unknown biz type":            {add(`{"biz_type": "order.none", "biz_id": "1", "delay_ms": 1}`), 404, "unknown_biz_type", `no biz type "order.none"`},
		"no biz_id":                      {add(`{"biz_type": "order.close", "delay_ms": 1}`), 422, "invalid", "name one of biz_id and biz_key"},
		"biz_id and biz_key":             {add(task(`"biz_key": "k"`)), 422, "invalid", "name one of biz_id and biz_key"},
		"a biz_id that is a number":      {add(`{"biz_type": "order.close", "biz_id": 1, "delay_ms": 1}`), 422, "invalid", `body.biz_id: expected string, such as "42"`},
		"a biz_id of letters":            {add(`{"biz_type": "order.close", "biz_id": "x1", "delay_ms": 1}`), 422, "invalid", "body.biz_id: expected a text with a decimal number"},
		"biz_id 0":                       {add(`{"biz_type": "order.close", "biz_id": "0", "delay_ms": 1}`), 422, "invalid", "body.biz_id: expected a text with"},
		"a biz_id beyond 64 bits":        {add(`{"biz_type": "order.close", "biz_id": "18446744073709551616", "delay_ms": 1}`), 422, "invalid", "biz_id is above 2^64-1"},
		"a biz_key of too many bytes":    {add(`{"biz_type": "order.close", "biz_key": "` + strings.Repeat("ü", 40) + `", "delay_ms": 1}`), 422, "invalid", "at most 64"},
		"no time":                        {add(`{"biz_type": "order.close", "biz_id": "1"}`), 422, "invalid", "name one of due_time and delay_ms"},
		"two times":                      {add(task(`"due_time": "2030-01-02T15:04:05Z"`)), 422, "invalid", "name one of due_time and delay_ms"},
		"a negative delay":               {add(`{"biz_type": "order.close", "biz_id": "1", "delay_ms": -1}`), 422, "invalid", "body.delay_ms: expected number >= 0"},
		"a delay of more than ten years": {add(`{"biz_type": "order.close", "biz_id": "1", "delay_ms": 400000000000}`), 422, "invalid", "body.delay_ms: expected a number of at most 315360000000, which is ten years"},
		"half a millisecond":             {add(`{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1.5}`), 422, "invalid", "body.delay_ms: expected integer"},
		"a time without a zone":          {add(`{"biz_type": "order.close", "biz_id": "1", "due_time": "2030-01-02 15:04"}`), 422, "invalid", "body.due_time: expected a time of RFC 3339, such as 2030-01-02T15:04:05Z"},
		"a time that is far away":        {add(`{"biz_type": "order.close", "biz_id": "1", "due_time": "2090-01-02T15:04:05Z"}`), 422, "invalid", "more than 10 years away"},
		"the zero time":                  {add(`{"biz_type": "order.close", "biz_id": "1", "due_time": "0001-01-01T00:00:00Z"}`), 422, "invalid", "action time is the zero time"},
		"an empty batch":                 {post("/tasks:batch", `{"tasks": []}`), 422, "invalid", "body.tasks: expected array length >= 1"},
		"a batch of null":                {post("/tasks:batch", `{"tasks": null}`), 422, "invalid", "body.tasks: expected array"},
		"a batch that is too long":       {post("/tasks:batch", `{"tasks": [`+strings.Repeat("{},", 1000)+`{}]}`), 422, "invalid", "body.tasks: expected array length <= 1000"},
		"a batch without tasks":          {post("/tasks:batch", `{}`), 422, "invalid", `body: property "tasks" is missing`},
		"a batch of something else":      {post("/tasks:batch", `{"tasks": [{}], "`+strings.Repeat(secret, 10)+`": 1}`), 422, "invalid", "body: unexpected property"},
		"a batch that is a task":         {post("/tasks:batch", `[]`), 422, "invalid", "body: expected object"},
		"a name twice":                   {add(task(`"payload": "x", "payload": "` + secret + `"`)), 400, "malformed", "body.payload: the object has this name twice"},
		"a name twice in a batch":        {post("/tasks:batch", `{"tasks": [{}, {"headers": {"a": "1", "a": "2"}}]}`), 400, "malformed", "body.tasks[1].headers.a: the object has this name twice"},
		"too many values":                {add(task(`"headers": {"a": [` + strings.Repeat("0,", 2000) + `0]}`)), 422, "invalid", "body.headers.a: expected array length <= 1000"},
		"a cancel with a body":           {post("/tasks/1:cancel", `{"payload": "`+secret+`"}`), 400, "malformed", "cancel_task takes no body"},
		"a redrive of nothing":           {post("/tasks:redrive", `{}`).by("operate"), 422, "invalid", "name a biz_type, or set all to true"},
		"a redrive since tomorrow":       {post("/tasks:redrive", `{"all": true, "since": "2100-01-01T00:00:00Z"}`).by("operate"), 422, "invalid", "since 2100-01-01T00:00:00Z is in the future: no task has died since"},
		"a redrive at no rate":           {post("/tasks:redrive", `{"all": true, "per_second": -1}`).by("operate"), 422, "invalid", "expected number >= 1"},
		"a redrive of no error":          {post("/tasks:redrive", `{"all": true, "error": ""}`).by("operate"), 422, "invalid", "expected length >= 1"},
		"a redrive of two things":        {post("/tasks:redrive", `{"all": true, "biz_type": "order.close"}`).by("operate"), 422, "invalid", "name a biz_type, or set all to true"},
		"a long reason":                  {post("/tasks/1:bury", `{"reason": "`+strings.Repeat("x", 256)+`"}`).by("operate"), 422, "invalid", "body.reason: expected length <= 255"},
	}
}

func badPaths() map[string]bad {
	add := post("/tasks", task(`"payload": "`+secret+`"`))
	kind := func(value string) request { return with(post("/tasks", add.body), "Content-Type", value) }
	raw := func(method, path string) request { return request{method: method, path: path} }
	return map[string]bad{
		"no content type":          {kind(""), 415, "unsupported_media_type", "Content-Type: application/json"},
		"a form":                   {kind("application/x-www-form-urlencoded"), 415, "unsupported_media_type", "Content-Type: application/json"},
		"text":                     {kind("text/plain"), 415, "unsupported_media_type", "Content-Type: application/json"},
		"something like JSON":      {kind("application/jsonx"), 415, "unsupported_media_type", "Content-Type: application/json"},
		"a compressed body":        {with(kind("application/json"), "Content-Encoding", "gzip"), 415, "unsupported_media_type", "send the body as it is"},
		"no path":                  {raw("GET", "/"), 404, "no_such_path", "no operation has this path"},
		"another version":          {raw("GET", "/v2/tasks"), 404, "no_such_path", "no operation has this path: docs"},
		"the docs":                 {raw("GET", "/docs"), 404, "no_such_path", "no operation has this path"},
		"the schemas":              {raw("GET", "/schemas/Task.json"), 404, "no_such_path", "no operation has this path"},
		"a slash too many":         {get("/tasks/"), 404, "no_such_path", "perhaps you mean GET /v1/tasks: docs"},
		"two slashes":              {raw("GET", "/v1//tasks"), 404, "no_such_path", "no operation has this path"},
		"a verb behind a slash":    {post("/tasks/1/cancel", ""), 404, "no_such_path", "no operation has this path, perhaps you mean POST /v1/tasks/{id}:cancel: docs/api.md"},
		"a verb with a slash":      {post("/tasks/1:cancel/", ""), 404, "no_such_path", "perhaps you mean POST /v1/tasks/{id}:cancel: "},
		"a verb of a batch":        {post("/tasks/batch", ""), 405, "method_not_allowed", "this path takes GET; perhaps you mean POST /v1/tasks:batch"},
		"a verb of schedules":      {post("/tasks/1:run", ""), 404, "no_such_path", "no operation has this path, and this verb belongs to POST /v1/schedules/{name}:run: docs"},
		"a verb of biz types":      {post("/schedules/here/pause", ""), 404, "no_such_path", "this verb belongs to POST /v1/biz-types/{name}:pause: docs"},
		"no version":               {raw("POST", "/tasks"), 404, "no_such_path", "perhaps you mean POST /v1/tasks: docs"},
		"no version of a lookup":   {raw("GET", "/schedules/here"), 404, "no_such_path", "perhaps you mean GET /v1/schedules/{name}: docs"},
		"an unknown verb":          {post("/tasks/1:explode", ""), 404, "no_such_path", "no operation has this path: docs"},
		"another method":           {raw("DELETE", "/v1/tasks/1"), 405, "method_not_allowed", "this path takes GET"},
		"another method of a list": {raw("PUT", "/v1/tasks"), 405, "method_not_allowed", "this path takes GET, POST"},
		"a cancel by GET":          {get("/tasks/1:cancel"), 405, "method_not_allowed", "this path takes POST"},
		"a method of its own":      {raw("BREW", "/v1/tasks"), 405, "method_not_allowed", "this path takes GET, POST"},
		"OPTIONS without CORS":     {raw("OPTIONS", "/v1/tasks"), 405, "method_not_allowed", "this path takes GET, POST"},
		"an id of letters":         {get("/tasks/abc"), 422, "invalid", "path.id: expected a text with a decimal number"},
		"id 0":                     {get("/tasks/0"), 422, "invalid", "path.id: expected a text with"},
		"a negative id":            {post("/tasks/-1:cancel", ""), 422, "invalid", "path.id: expected a text with"},
		"an id that is no task":    {get("/tasks/1"), 404, "not_found", "there is no task 1 that you may see"},
		"an id beyond the layout":  {get("/tasks/9223372036854775807"), 404, "not_found", "no task 9223372036854775807"},
		"an id beyond 63 bits":     {get("/tasks/9223372036854775808"), 404, "not_found", "no task 9223372036854775808"},
		"an id beyond 64 bits":     {get("/tasks/99999999999999999999"), 404, "not_found", "no task 99999999999999999999"},
		"an unknown biz type":      {get("/biz-types/order.none"), 404, "unknown_biz_type", `no biz type "order.none"`},
	}
}

func badLists() map[string]bad {
	list := func(query string) request { return get("/tasks?" + query) }
	return map[string]bad{
		"a list of everything":       {get("/tasks"), 422, "invalid", "name the tasks by one of biz_id, biz_key and status"},
		"a list of two things":       {list("biz_id=1&biz_key=k"), 422, "invalid", "name one of biz_id, biz_key and status"},
		"an unknown parameter":       {list("biz_id=1&bizid=" + secret), 422, "invalid", "query.bizid: unknown query parameter"},
		"a parameter twice":          {list("biz_id=1&biz_id=2"), 400, "malformed", "given more than once"},
		"a parameter not UTF-8":      {list("biz_key=%ff"), 400, "invalid_utf8", "a query parameter is not UTF-8"},
		"a broken escape":            {list("biz_key=%zz"), 400, "malformed", "escape it with percent signs"},
		"a status that is none":      {list("status=finished"), 422, "invalid", "query.status: expected value to be one of"},
		"a limit that is none":       {list("status=dead&limit=x"), 422, "invalid", "query.limit: invalid integer"},
		"a redrive of too many":      {post("/tasks:redrive", `{"all": true, "limit": 1000000001}`).by("operate"), 422, "invalid", "expected number <= 1000000000"},
		"limit 0":                    {list("status=dead&limit=0"), 422, "invalid", "query.limit: expected number >= 1"},
		"a limit that is too high":   {list("status=dead&limit=1001"), 422, "invalid", "query.limit: expected number <= 1000"},
		"a cursor that is none":      {list("status=dead&cursor=abc"), 400, "cursor", "this is no cursor"},
		"a list of a wrong biz_id":   {list("biz_id=x"), 422, "invalid", "query.biz_id: expected a text with"},
		"a list of a large biz_id":   {list("biz_id=18446744073709551616"), 422, "invalid", "biz_id is above 2^64-1"},
		"a list of an unknown type":  {list("status=dead&biz_type=order.none"), 404, "unknown_biz_type", `no biz type "order.none"`},
		"a list of a foreign type":   {list("status=dead&biz_type=coupon.remind"), 404, "unknown_biz_type", `no biz type "coupon.remind"`},
		"a list from no time":        {list("status=dead&from=" + secret), 422, "invalid", "query.from: invalid value: want RFC 3339, as 2030-01-02T15:04:05Z"},
		"a list to before from":      {list("biz_id=1&from=2030-01-02T15:04:05Z&to=2030-01-02T15:04:04Z"), 422, "invalid", "from is after to: swap them"},
		"payload of no word":         {list("status=dead&payload=no"), 422, "invalid", "query.payload: invalid boolean"},
		"a list of a body's payload": {request{"write", "GET", "/v1/tasks?biz_id=1", `{"payload": "` + secret + `"}`, nil}, 400, "malformed", "list_tasks takes no body"},
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.refuses(badTokens(s.tokens["write"]), badBodies(), badPaths(), badLists())
	if stored, _ := s.pages("all", "status=pending"); len(stored) > 0 {
		t.Errorf("a bad request has stored %v", stored)
	}
}

func TestARefusalNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for body, want := range map[string]string{
		`{"biz_type": "Order.Close", "biz_id": "1", "delay_ms": 1}`:                                                      "body.biz_type",
		task(`"payload_version": 2, "headers": {"a": "` + strings.Repeat("x", tocsin.MaxHeaders-len(`{"a":""}`)) + `"}`): "body.headers",
		`{"biz_type": "order.close", "biz_id": "1", "due_time": "2090-01-02T15:04:05Z", "payload_version": 2}`:           "body.due_time",
	} {
		got := s.do(post("/tasks", body).by("all"))
		if len(got.Errors) != 1 || got.Errors[0].Location != want {
			t.Errorf("%.60s: %s, want %s", body, got.text, want)
		}
	}
}

// refuses sends bad requests.
func (s *served) refuses(tables ...map[string]bad) {
	s.t.Helper()
	for _, table := range tables {
		for name, b := range table {
			got := s.do(b.request)
			where := fmt.Sprintf("%s: %s %.80s", name, b.method, b.path)
			if got.status != b.status || got.Code != b.code || !strings.Contains(got.Detail, b.detail) {
				s.t.Errorf("%s:\ngot  %d %s\nwant %d %s: %s", where, got.status, got.text, b.status, b.code, b.detail)
			}
			s.isProblem(where, got)
		}
	}
	if strings.Contains(s.log.String(), secret) {
		s.t.Errorf("the log holds a payload:\n%s", s.log)
	}
}

var location = regexp.MustCompile(`^(body|query|path|header)`)

// isProblem checks what holds for every refusal.
func (s *served) isProblem(where string, got reply) {
	s.t.Helper()
	p := got.Problem
	if got.header.Get("Content-Type") != "application/problem+json" || p.Status != got.status || p.Title != http.StatusText(got.status) ||
		p.Type != "urn:tocsin:problem:"+p.Code || p.Code == "" || p.Detail == "" || strings.ContainsAny(p.Detail, "\n\r") {
		s.t.Errorf("%s: no problem: %s: %s", where, got.header.Get("Content-Type"), got.text)
	}
	if p.Code == "invalid" && (len(p.Errors) == 0 || !location.MatchString(p.Errors[0].Location)) {
		s.t.Errorf("%s: it does not say where the value stands: %s", where, got.text)
	}
	if strings.Contains(got.text, secret) {
		s.t.Errorf("%s: the payload is repeated: %s", where, got.text)
	}
	if (got.status == http.StatusMethodNotAllowed) != (got.header.Get("Allow") != "") || (got.status == http.StatusUnauthorized) != (got.header.Get("WWW-Authenticate") != "") {
		s.t.Errorf("%s: headers %v", where, got.header)
	}
}

func TestAHEADRequestIsRefusedWithoutABody(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.add(closing.New(1, "", tocsin.In(time.Hour)))
	for path, want := range map[string]int{"/v1/tasks/" + id: 200, "/v1/tasks/1": 404, "/x": 404} {
		if got := s.do(request{method: "HEAD", path: path}); got.status != want || got.text != "" {
			t.Errorf("%s: %d %q", path, got.status, got.text)
		}
	}
}
