package main

import (
	"errors"
	"net/http"

	"github.com/tocsinhq/tocsin/operator/cluster"
)

// asker asks status pages, as the config's node.status says.
type asker = cluster.Asker

// asker returns one that asks in plain text without a token if there is no config: the caller reports that.
func (a *app) asker() asker {
	as := asker{Client: http.DefaultClient, Scheme: "http"}
	file, err := a.load()
	if err != nil {
		return as
	}
	token, err := file.Node.Status.TokenSource()
	if err == nil && token != nil {
		as.Token = token()
	}
	cfg, failed := file.Node.Status.ClientTLS()
	if cfg != nil {
		as.Scheme, as.Client = "https", &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
	}
	as.Failed = errors.Join(err, failed)
	return as
}
