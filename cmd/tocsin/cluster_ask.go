package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tocsinhq/tocsin/node"
)

// asker asks status pages, as the config's node.status says.
type asker struct {
	client *http.Client
	scheme string
	token  string
	failed error // the config's node.status can't be used here
}

// asker returns one that asks in plain text without a token if there is no config: the caller reports that.
func (a *app) asker() asker {
	as := asker{client: http.DefaultClient, scheme: "http"}
	file, err := a.load()
	if err != nil {
		return as
	}
	token, err := file.Node.Status.TokenSource()
	if err == nil && token != nil {
		as.token = token()
	}
	cfg, failed := file.Node.Status.ClientTLS()
	if cfg != nil {
		as.scheme, as.client = "https", &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
	}
	as.failed = errors.Join(err, failed)
	return as
}

// ask reads a status page; one that says 503 has a report too.
func (as asker) ask(ctx context.Context, address string) (*node.Report, error) {
	return as.report(ctx, address, "/status")
}

// report is ask for a path with parameters.
func (as asker) report(ctx context.Context, address, path string) (*node.Report, error) {
	var report node.Report
	_, err := as.get(ctx, address, path, func(body io.Reader) error {
		return json.NewDecoder(io.LimitReader(body, maxReport)).Decode(&report)
	})
	if err != nil {
		return nil, err
	}
	return &report, nil
}

// get reads one page, and returns its header.
func (as asker) get(ctx context.Context, address, path string, read func(io.Reader) error) (http.Header, error) {
	if as.failed != nil {
		return nil, as.failed
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, as.scheme+"://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	if as.token != "" {
		req.Header.Set("Authorization", "Bearer "+as.token)
	}
	resp, err := as.client.Do(req)
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
