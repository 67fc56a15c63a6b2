package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/api"
)

// Each field of a task that takes a text gives it back exactly, or the request is refused.
func TestATextIsKeptExactlyOrRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	kept := map[string]int{}
	for name, written := range map[string]string{ // as JSON
		"not UTF-8": "\"a\xff\"", "NUL": `"a\u0000b"`, "U+FFFD": `"\ufffd"`, "a lone surrogate": `"\ud800"`, "4 bytes": `"😀"`, "a pair of surrogates": `"\ud83d\udd14"`,
		"line separators": `"a\u2028\u2029b"`, "spaces around": `" a "`, "empty": `""`, "markup": `"<&>'"`, "combined": `"e\u0301"`,
	} {
		var text string
		if err := json.Unmarshal([]byte(written), &text); err != nil {
			t.Fatal(err)
		}
		for field, read := range map[string]func(api.Task) string{
			"payload":   func(task api.Task) string { return task.Payload },
			"biz_key":   func(task api.Task) string { return task.BizKey },
			"dedup_key": func(task api.Task) string { return task.DedupKey },
			"headers":   func(task api.Task) string { return task.Headers["a"] },
		} {
			value, about := written, `, "biz_key": "about"`
			switch field {
			case "headers":
				value = `{"a": ` + written + `}`
			case "biz_key":
				about = ""
			}
			got := s.do(post("/tasks", `{"biz_type": "order.close", "delay_ms": 3600000, "`+field+`": `+value+about+`}`))
			if got.status >= 400 && got.status < 500 {
				continue
			}
			var made struct {
				JobID string `json:"job_id"`
			}
			if err := json.Unmarshal([]byte(got.text), &made); err != nil || got.status != http.StatusCreated {
				t.Errorf("%s: %s: %d %s", field, name, got.status, got.text)
				continue
			}
			back := read(want[api.Task](s, http.StatusOK, get("/tasks/"+made.JobID)))
			if kept[field]++; back != text || name == "not UTF-8" || name == "a lone surrogate" {
				t.Errorf("%s: %s: %q came back as %q", field, name, text, back)
			}
			if strings.Contains(text, "\ufffd") && name != "U+FFFD" {
				t.Errorf("%s: %s is taken", field, name)
			}
		}
	}
	for _, field := range []string{"payload", "biz_key", "dedup_key", "headers"} {
		if kept[field] < 4 {
			t.Errorf("%s: only %d are kept", field, kept[field])
		}
	}
}
