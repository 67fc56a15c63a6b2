package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/node"
)

const (
	askWithin = 3 * time.Second // one status page
	maxReport = 1 << 20         // bytes of one
)

// Asker asks status pages, as the config's node.status says.
type Asker struct {
	Client *http.Client
	Scheme string
	Token  string
	Failed error // the config's node.status can't be used here
}

// Ask reads a status page; one that says 503 has a report too.
func (as Asker) Ask(ctx context.Context, address string) (*node.Report, error) {
	return as.Report(ctx, address, "/status")
}

// Report is Ask for a path with parameters.
func (as Asker) Report(ctx context.Context, address, path string) (*node.Report, error) {
	var report node.Report
	_, err := as.Get(ctx, address, path, func(body io.Reader) error {
		return json.NewDecoder(io.LimitReader(body, maxReport)).Decode(&report)
	})
	if err != nil {
		return nil, err
	}
	return &report, nil
}

// Get reads one page, and returns its header.
func (as Asker) Get(ctx context.Context, address, path string, read func(io.Reader) error) (http.Header, error) {
	if as.Failed != nil {
		return nil, as.Failed
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, as.Scheme+"://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	if as.Token != "" {
		req.Header.Set("Authorization", "Bearer "+as.Token)
	}
	resp, err := as.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, errors.New("the status page wants another token: set node.status in the config as its node has it")
	}
	if err := read(resp.Body); err != nil {
		return nil, fmt.Errorf("no status page: %w", err)
	}
	return resp.Header, nil
}

// noAnswer is how a time-out is told.
const noAnswer = "no answer in time"

// timeouts puts the libraries' words for a time-out as Tocsin does.
var timeouts = strings.NewReplacer("rpc error: code = DeadlineExceeded desc = context deadline exceeded", noAnswer,
	noAnswer+": context deadline exceeded", noAnswer, "context deadline exceeded", noAnswer, "i/o timeout", noAnswer)

// Plain puts a time-out in the text of an error in the words of Tocsin: "no answer in time".
func Plain(text string) string { return timeouts.Replace(text) }

// errorsShown bounds the joined errors of one line: a server that is down may
// give one for each of a thousand tables.
const errorsShown = 4

// OneLine folds joined errors into one line.
func OneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(Plain(err.Error())), "\n")
	if more := len(lines) - errorsShown; more > 1 {
		lines = append(lines[:errorsShown], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}
