package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// The forms of Retry-After are those of RFC 9110, 10.2.3 and 5.6.7, and what receivers send instead.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	const none = -1
	for name, c := range map[string]struct {
		values []string
		date   string // of the answer
		want   time.Duration
	}{
		"none":                                {nil, "", none},
		"seconds":                             {[]string{"120"}, "", 2 * time.Minute},
		"zero":                                {[]string{"0"}, "", 0},
		"leading zeros":                       {[]string{"007"}, "", 7 * time.Second},
		"space around it":                     {[]string{" 5 "}, "", 5 * time.Second},
		"a fraction":                          {[]string{"1.5"}, "", 1500 * time.Millisecond},
		"negative":                            {[]string{"-1"}, "", none},
		"a sign":                              {[]string{"+5"}, "", none},
		"an exponent":                         {[]string{"1e9"}, "", none},
		"hexadecimal":                         {[]string{"0x10"}, "", none},
		"a unit":                              {[]string{"5s"}, "", none},
		"empty":                               {[]string{""}, "", none},
		"text":                                {[]string{"soon"}, "", none},
		"a list":                              {[]string{"5, 6"}, "", none},
		"huge":                                {[]string{"99999999"}, "", retryAfterCap},
		"beyond 64 bits":                      {[]string{"99999999999999999999"}, "", retryAfterCap},
		"of a thousand digits":                {[]string{strings.Repeat("9", 1000)}, "", retryAfterCap},
		"several, the longest counts":         {[]string{"5", "60", "7"}, "", time.Minute},
		"several, one can't be read":          {[]string{"soon", "5"}, "", 5 * time.Second},
		"IMF-fixdate":                         {[]string{"Tue, 01 Dec 2026 12:00:30 GMT"}, "", 30 * time.Second},
		"RFC 850":                             {[]string{"Tuesday, 01-Dec-26 12:00:30 GMT"}, "", 30 * time.Second},
		"RFC 850 in another zone":             {[]string{"Tuesday, 01-Dec-26 13:00:30 CET"}, "", none},
		"a Date in another zone":              {[]string{"Tue, 01 Dec 2026 12:00:30 GMT"}, "Tuesday, 01-Dec-26 11:00:00 CET", 30 * time.Second},
		"asctime":                             {[]string{"Tue Dec  1 12:00:30 2026"}, "", 30 * time.Second},
		"a date in the past":                  {[]string{"Tue, 01 Dec 2026 11:00:30 GMT"}, "", 0},
		"a date far ahead":                    {[]string{"Tue, 01 Dec 2099 11:00:30 GMT"}, "", retryAfterCap},
		"a date that is none":                 {[]string{"Tue, 32 Dec 2026 12:00:30 GMT"}, "", none},
		"an ISO date":                         {[]string{"2026-12-01T12:00:30Z"}, "", none},
		"the receiver's clock is slow":        {[]string{"Tue, 01 Dec 2026 11:00:30 GMT"}, "Tue, 01 Dec 2026 11:00:00 GMT", 30 * time.Second},
		"the receiver's clock is fast":        {[]string{"Tue, 01 Dec 2026 17:00:30 GMT"}, "Tue, 01 Dec 2026 17:00:00 GMT", 30 * time.Second},
		"the receiver has a Date that's none": {[]string{"Tue, 01 Dec 2026 12:00:30 GMT"}, "today", 30 * time.Second},
	} {
		h := http.Header{"Date": {c.date}}
		h["Retry-After"] = c.values
		wait, told := retryAfter(h, now)
		if !told {
			wait = none
		}
		if wait != c.want {
			t.Errorf("%s: %s, want %s", name, wait, c.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "120", "-1", "99999999999999", "Tue, 01 Dec 2026 12:00:30 GMT", "1.5"} {
		f.Add(seed, "")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		if wait, _ := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, time.Now()); wait < 0 || wait > retryAfterCap {
			t.Errorf("%q at %q gives %s", value, date, wait)
		}
	})
}
