package webhook

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/tocsinhq/tocsin/internal/name"
)

// mostOfHeader bounds the characters of an answer's header that go into an error.
const mostOfHeader = 100

// note is what an operator needs to know beside the status and the text of an answer that did not take the task.
type note struct {
	header string // of the answer
	with   string // the note if the answer has the header, whose value stands for %s
	alone  string // the note without it; "": none
}

const (
	byGateway   = "by a gateway, if there is one in front of the receiver"
	unrequested = "it was not asked to"
	tooLarge    = "the request has %s bytes"
)

// notes has each status of the registry of HTTP but 2xx, which says that the task is done. The empty ones say all, or leave it to their text.
var notes = map[int]note{
	http.StatusContinue:           {}, // net/http reads on after this one and the two others
	http.StatusSwitchingProtocols: {"Upgrade", "to %s, which " + unrequested, unrequested},
	http.StatusProcessing:         {},
	http.StatusEarlyHints:         {},

	http.StatusMultipleChoices:   redirect,
	http.StatusMovedPermanently:  redirect,
	http.StatusFound:             redirect,
	http.StatusSeeOther:          redirect,
	http.StatusNotModified:       {alone: "to a request without a condition"},
	http.StatusUseProxy:          redirect,
	http.StatusTemporaryRedirect: redirect,
	http.StatusPermanentRedirect: redirect,

	http.StatusBadRequest:                   {},
	http.StatusUnauthorized:                 {"WWW-Authenticate", "it wants %s; callbacks have a signature, and no other credentials", ""}, // a receiver that refuses the signature has no challenge
	http.StatusPaymentRequired:              {},
	http.StatusForbidden:                    {},
	http.StatusNotFound:                     {},
	http.StatusMethodNotAllowed:             {"Allow", "it takes %s; callbacks are POST", "callbacks are POST"},
	http.StatusNotAcceptable:                {},
	http.StatusProxyAuthRequired:            {"Proxy-Authenticate", "by a proxy, which wants %s", "by a proxy"},
	http.StatusRequestTimeout:               {},
	http.StatusConflict:                     {},
	http.StatusGone:                         {},
	http.StatusLengthRequired:               {alone: "callbacks have a Content-Length: something on the way removes it"},
	http.StatusPreconditionFailed:           {alone: "to a request without a condition"},
	http.StatusRequestEntityTooLarge:        {header: contentLength, with: tooLarge},
	http.StatusRequestURITooLong:            {},
	http.StatusUnsupportedMediaType:         {"Accept-Post", "it takes %s; callbacks are application/json", "callbacks are application/json"},
	http.StatusRequestedRangeNotSatisfiable: {alone: "to a request without a range"},
	http.StatusExpectationFailed:            {alone: "to a request without Expect"},
	http.StatusTeapot:                       {},
	http.StatusMisdirectedRequest:           {alone: "the server at this address does not serve the host of the policy's url"},
	http.StatusUnprocessableEntity:          {},
	http.StatusLocked:                       {},
	http.StatusFailedDependency:             {},
	http.StatusTooEarly:                     {},
	http.StatusUpgradeRequired:              {"Upgrade", "it wants %s; callbacks are HTTP/1.1, or HTTP/2 over TLS", "callbacks are HTTP/1.1, or HTTP/2 over TLS"},
	http.StatusPreconditionRequired:         {alone: "callbacks have no conditions"},
	http.StatusTooManyRequests:              {},
	http.StatusRequestHeaderFieldsTooLarge:  {},
	http.StatusUnavailableForLegalReasons:   {"Link", "see %s", ""},

	http.StatusInternalServerError:           {},
	http.StatusNotImplemented:                {alone: "callbacks are POST"},
	http.StatusBadGateway:                    {alone: byGateway},
	http.StatusServiceUnavailable:            {},
	http.StatusGatewayTimeout:                {alone: byGateway + ": the receiver may have got the request"},
	http.StatusHTTPVersionNotSupported:       {alone: "callbacks are HTTP/1.1, or HTTP/2 over TLS"},
	http.StatusVariantAlsoNegotiates:         {},
	http.StatusInsufficientStorage:           {},
	http.StatusLoopDetected:                  {},
	http.StatusNotExtended:                   {},
	http.StatusNetworkAuthenticationRequired: {alone: "by the network on the way, which wants a login"},
}

// redirect is the note of 3xx, also of a status that nobody knows.
var redirect = note{"Location", "to %s; redirects are not followed", "redirects are not followed"}

// contentLength is read from the request: how much an answer has tells nothing.
const contentLength = "Content-Length"

// statusOf says what an answer is that did not take the task.
func statusOf(answer *http.Response) string {
	n, known := notes[answer.StatusCode]
	if !known && answer.StatusCode/100 == 3 {
		n = redirect
	}
	words := n.alone
	if value := valueOf(answer, n.header); value != "" {
		words = fmt.Sprintf(n.with, value)
	}
	status := strings.TrimSpace(fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode)))
	if words != "" {
		status += " (" + words + ")"
	}
	return "callback answered " + status
}

// valueOf returns the value of an answer's header as an error shows it.
func valueOf(answer *http.Response, header string) string {
	var value string
	switch header {
	case "Location":
		value = locationOf(answer)
	case contentLength:
		if answer.Request != nil {
			value = fmt.Sprint(answer.Request.ContentLength)
		}
	default:
		value = strings.Join(answer.Header.Values(header), ", ")
	}
	return name.Text(strings.Join(strings.Fields(value), " "), mostOfHeader)
}

// locationOf returns where a redirect points: scheme, host and path. The user, the query and the fragment may be secrets, and are left out.
func locationOf(answer *http.Response) string {
	if answer.Header.Get("Location") == "" {
		return ""
	}
	u, err := answer.Location()
	switch {
	case err != nil:
		return "what is no URL"
	case u.Host == "" && u.Scheme != "":
		return "a URL of " + u.Scheme
	}
	more := u.RawQuery != "" || u.ForceQuery
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	if more {
		return name.Text(u.String(), mostOfHeader-len("?...")) + "?..."
	}
	return u.String()
}
