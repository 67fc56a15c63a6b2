package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxTokens is how many JSON tokens a body has at most, or each task of a batch: a task with the most headers that can be
// stored has fewer than 400.
const maxTokens = 2000

// errFull ends the reading of a body that there is no room for.
var errFull = errors.New("the bodies in hand are too large")

// priced is a body whose bytes count as held by its token while they arrive, so that a slow body holds what has come of it.
type priced struct {
	io.Reader
	call *call
}

func (p priced) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if !p.call.hold(int64(n)) {
		return 0, errFull
	}
	return n, err
}

// readBody reads and checks the whole body of a request that the token allows, so that nothing of it is left to the operation's
// time.
func (a *API) readBody(w http.ResponseWriter, r *http.Request, c *call, op operation) *Problem {
	if r.Body == http.NoBody {
		return nil
	}
	conn := http.NewResponseController(w)
	deadline := time.Now().Add(bodyWithin)
	if end, ok := r.Context().Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	_ = conn.SetReadDeadline(deadline) // tests may have none
	read, err := io.ReadAll(priced{http.MaxBytesReader(w, r.Body, a.cfg.Body), c})
	if err != nil {
		_ = conn.SetReadDeadline(time.Now().Add(leftoverWithin))
		return a.unread(err)
	}
	_ = conn.SetReadDeadline(time.Time{}) // it must not end the operation
	c.body, r.Body = read, io.NopCloser(bytes.NewReader(read))
	if len(read) == 0 {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" || r.Header.Get("Content-Encoding") != "" {
		return problem(http.StatusUnsupportedMediaType, "unsupported_media_type", "send the body as it is, with Content-Type: application/json")
	}
	r.Header.Set("Content-Type", "application/json")
	return checkJSON(read, op.batch || op.lists)
}

// unread is the problem of a body that could not be read.
func (a *API) unread(err error) *Problem {
	large := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &large):
		return problem(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes: send less, or raise node.api.limits.body_kib", a.cfg.Body)
	case errors.Is(err, errFull):
		return full()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem(http.StatusRequestTimeout, "slow_body", "the body did not arrive in time: send it again, faster")
	}
	return problem(http.StatusBadRequest, "malformed", "the body could not be read in full: send it again")
}

// checkJSON returns what is wrong with the form of a body, before anything is made of it. It reads no further than its first
// fault, and repeats nothing of the body.
func checkJSON(body []byte, lists bool) *Problem {
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	for tokens := 1; ; tokens++ {
		token, err := d.ReadToken()
		if err != nil {
			return notJSON(body, err)
		}
		depth := d.StackDepth()
		kind, length := d.StackIndex(depth)
		switch {
		case kind == '[' && length > maxItems:
			return refused(http.StatusUnprocessableEntity, "", []error{fault(d.StackPointer().Parent(), fmt.Sprintf("expected array length <= %d", maxItems))})
		case tokens > maxTokens:
			return refused(http.StatusUnprocessableEntity, "", []error{fault("", "more values than any operation takes")})
		case depth == 0:
			if rest := bytes.TrimLeft(body[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
				return problem(http.StatusBadRequest, "malformed", "the body is not JSON: see byte %d", len(body)-len(rest)+1)
			}
			return nil
		case lists && depth == 2 && token.Kind() == '}':
			tokens = 0
		}
	}
}

// notJSON names the byte at which a body stops being JSON.
func notJSON(body []byte, err error) *Problem {
	at := (*jsontext.SyntacticError)(nil)
	switch {
	case !utf8.Valid(body):
		return problem(http.StatusBadRequest, "invalid_utf8", "the body is not UTF-8")
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &at):
		return refused(http.StatusBadRequest, "", []error{fault(at.JSONPointer, "the object has this name twice")})
	case !errors.As(err, &at):
		return problem(http.StatusBadRequest, "malformed", "the body is not JSON")
	}
	if d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowInvalidUTF8(true)); d.SkipValue() == nil {
		return problem(http.StatusBadRequest, "invalid_utf8", `the body has half of a surrogate pair, such as \ud800, which is no character: see byte %d`, at.ByteOffset)
	}
	return problem(http.StatusBadRequest, "malformed", "the body is not JSON: see byte %d", at.ByteOffset)
}
