package schedule

import (
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Change is one field that differs.
type Change struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// field is one field of a definition as a text, by its YAML name.
type field struct{ name, value string }

// fieldsOf lists all fields of a definition, with the defaults filled in.
func fieldsOf(d Definition) []field {
	d = d.WithDefaults()
	headers, err := tocsin.HeadersOf(d.Headers)
	if err != nil {
		headers = tocsin.Headers(err.Error()) // refused before
	}
	biz := ""
	if d.BizID != 0 {
		biz = strconv.FormatUint(d.BizID, 10)
	}
	return []field{
		{"name", d.Name}, {"app", d.App}, {"biz_type", d.BizType}, {"biz_id", biz}, {"key", d.Key},
		{"cron", d.Cron}, {"zone", d.Zone}, {"start", shown(d.Start)}, {"end", shown(d.End)}, {"jitter", d.Jitter.String()},
		{"payload", d.Payload}, {"payload_version", strconv.Itoa(d.PayloadVersion)}, {"headers", string(headers)}, {"start_within", d.StartWithin.String()},
		{"missed", string(d.Missed)}, {"missed_most", strconv.Itoa(d.MissedMost)}, {"overlap", string(d.Overlap)},
		{"pause_after", strconv.Itoa(d.PauseAfter)},
	}
}

// shown writes an instant; "" for none.
func shown(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// differences lists the fields that a new definition changes.
func differences(old, wanted Definition) (all []Change) {
	before, after := fieldsOf(old), fieldsOf(wanted)
	for i, f := range before {
		if f.value != after[i].value {
			all = append(all, Change{f.name, f.value, after[i].value})
		}
	}
	return all
}
