package tocsinnats

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tocsinhq/tocsin/sink"
)

const (
	contentType = "content-type"
	attribute   = "ce-" // begins the headers of CloudEvents' attributes

	maxSubject = 1024 // bytes; a server closes the connection over a line of 4096
)

var (
	// headerName is what nats.go and other clients take as one.
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	// reserved are names of the message's own, and those that JetStream obeys. A task's headers of these names are left out.
	reserved = regexp.MustCompile(`(?i)^(nats-|ce-|content-type$)`)
)

// encode makes the message of NATS. What can't be carried as it is, is an error: a consumer never gets a header that was changed.
func encode(m sink.Message) (*nats.Msg, error) {
	all := nats.Header{jetstream.MsgIDHeader: {m.ID}, contentType: {m.ContentType}}
	for _, a := range m.Attributes {
		all[attribute+a.Name] = []string{percent(a.Text)}
	}
	if m.Attributes != nil {
		all[attribute+"datacontenttype"] = []string{percent(m.ContentType)}
	}
	for _, h := range m.Headers {
		switch {
		case reserved.MatchString(h.Name):
			continue
		case !headerName.MatchString(h.Name):
			return nil, fmt.Errorf("header %q can't be sent to NATS: its name has a character other than letters, digits, '.', '_' and '-'", h.Name)
		case strings.ContainsAny(h.Text, "\r\n") || strings.Trim(h.Text, " \t") != h.Text:
			return nil, fmt.Errorf("header %s can't be sent to NATS: its text has a line break, or space at an end", h.Name)
		}
		all[h.Name] = []string{h.Text}
	}
	return &nats.Msg{Subject: m.Topic, Header: all, Data: m.Value}, nil
}

// percent encodes the text of an attribute as the NATS binding of CloudEvents says.
func percent(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// checkSubject returns an error if nothing can be published to the subject. Those of a server itself, and its orders, begin with $.
func checkSubject(subject string) error {
	if subject == "" || len(subject) > maxSubject || subject[0] == '$' {
		return fmt.Errorf("%.100q is no subject that a task can have: it has at most %d bytes and does not begin with $", subject, maxSubject)
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || token == "*" || token == ">" || strings.ContainsFunc(token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return fmt.Errorf("%q is no subject of NATS: it is made of words with a dot between them, without spaces, and no word is * or >", subject)
		}
	}
	return nil
}

// covers reports whether a pattern of subjects, such as orders.*.paid or orders.>, has the subject.
func covers(pattern, subject string) bool {
	for pattern != "" && subject != "" {
		var wanted, word string
		wanted, pattern, _ = strings.Cut(pattern, ".")
		if wanted == ">" {
			return true
		}
		word, subject, _ = strings.Cut(subject, ".")
		if wanted != "*" && wanted != word {
			return false
		}
	}
	return pattern == subject
}
