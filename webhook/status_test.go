package webhook

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin"
)

// net/http knows the statuses of the registry. A new one has to be judged here.
func TestEachStatusOfTheRegistryIsJudged(t *testing.T) {
	t.Parallel()
	for status := range 1000 {
		if _, judged := notes[status]; judged != (http.StatusText(status) != "" && status/100 != 2) {
			t.Errorf("%d %s: there is a note of it: %v", status, http.StatusText(status), judged)
		}
		err := verdict(&http.Response{StatusCode: status, Header: http.Header{}}, nil, time.Now())
		if done := status/100 == 2; done != (err == nil) {
			t.Errorf("%d: %v", status, err)
		}
		if err != nil && strings.Contains(err.Error(), "%!") {
			t.Error(err)
		}
	}
}

// The error says what an operator needs to know, and nothing secret.
func TestTheErrorOfAnAnswerSaysWhatItWants(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status        int
		header, value string
		want          string // after "callback answered "
	}{
		"a redirect":                        {308, "Location", "https://new.example/hooks", "308 Permanent Redirect (to https://new.example/hooks; redirects are not followed): moved"},
		"a redirect on the host":            {301, "Location", "/login?back=%2Fhook", "301 Moved Permanently (to http://old.example/login?...; redirects are not followed): moved"},
		"a redirect with secrets":           {302, "Location", "https://user:hush@new.example/a?token=hush#hush", "302 Found (to https://new.example/a?...; redirects are not followed): moved"},
		"a redirect nowhere":                {303, "", "", "303 See Other (redirects are not followed): moved"},
		"a redirect that nobody can read":   {307, "Location", "http://[::1", "307 Temporary Redirect (to what is no URL; redirects are not followed): moved"},
		"a redirect of another kind":        {307, "Location", "data:text/plain,hush", "307 Temporary Redirect (to a URL of data; redirects are not followed): moved"},
		"a redirect in another script":      {308, "Location", "https://new.example/ü\xff", "308 Permanent Redirect (to https://new.example/%C3%BC%FF; redirects are not followed): moved"},
		"a redirect that is unknown":        {399, "Location", "/b", "399 (to http://old.example/b; redirects are not followed): moved"},
		"a long redirect":                   {308, "Location", "/" + strings.Repeat("x", 999), "308 Permanent Redirect (to http://old.example/" + strings.Repeat("x", mostOfHeader-19) + "; redirects are not followed): moved"},
		"a login":                           {401, "WWW-Authenticate", `Basic realm="hooks"`, `401 Unauthorized (it wants Basic realm="hooks"; callbacks have a signature, and no other credentials): moved`},
		"a signature that is wrong":         {401, "", "", "401 Unauthorized: moved"},
		"a login of a proxy":                {407, "Proxy-Authenticate", "Negotiate", "407 Proxy Authentication Required (by a proxy, which wants Negotiate): moved"},
		"another method":                    {405, "Allow", "GET, HEAD", "405 Method Not Allowed (it takes GET, HEAD; callbacks are POST): moved"},
		"another method that is not named":  {405, "", "", "405 Method Not Allowed (callbacks are POST): moved"},
		"another type":                      {415, "Accept-Post", "text/xml", "415 Unsupported Media Type (it takes text/xml; callbacks are application/json): moved"},
		"a large request":                   {413, "Content-Length", "5", "413 Request Entity Too Large (the request has 4711 bytes): moved"},
		"another protocol":                  {426, "Upgrade", "TLS/1.2, HTTP/1.1", "426 Upgrade Required (it wants TLS/1.2, HTTP/1.1; callbacks are HTTP/1.1, or HTTP/2 over TLS): moved"},
		"a header that is no text":          {405, "Allow", "G\xff\x00\r\nT", `405 Method Not Allowed (it takes G\xff\x00 T; callbacks are POST): moved`},
		"an upgrade that nobody wanted":     {101, "Upgrade", "x", "101 Switching Protocols (to x, which it was not asked to): moved"},
		"a gateway":                         {502, "", "", "502 Bad Gateway (by a gateway, if there is one in front of the receiver): moved"},
		"a status of which the text is all": {404, "Location", "/hush", "404 Not Found: moved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := &http.Request{URL: &url.URL{Scheme: "http", Host: "old.example", Path: "/hook", User: url.UserPassword("u", "hush")}, ContentLength: 4711}
			err := verdict(&http.Response{StatusCode: c.status, Header: http.Header{http.CanonicalHeaderKey(c.header): {c.value}}, Request: asked}, []byte("moved"), time.Now())
			_, _, reason := tocsin.AsOutcome(err)
			if reason != "callback answered "+c.want || !utf8.ValidString(reason) || utf8.RuneCountInString(reason) > tocsin.MaxError {
				t.Errorf("got %q\nwant %q", reason, "callback answered "+c.want)
			}
		})
	}
}

// An answer is read as one whatever its Location is, which may hold a secret.
func TestARedirectThatNobodyCanReadIsAnAnswer(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/a%zz?token=hush")
		w.WriteHeader(http.StatusFound)
	}))
	t.Cleanup(receiver.Close)
	err := open(t, receiver.URL).Deliver(t.Context(), tasks(1))[0]
	if want := "callback answered 302 Found (to what is no URL; redirects are not followed)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
