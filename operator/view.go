package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
)

// View asks a cluster: which nodes there are, who owns which tables, where a task is, and what is wrong. Its fields say where to
// ask. It holds no connections, only reads, and is safe for concurrent use.
//
// What could be read stands beside the error, which names the rest; Why and Examine name in their answer what they could not ask.
type View struct {
	Tables tocsin.Config
	ByRows bool          // nobody owns tables: nodes are in the session tables, and etcd is not asked
	Grace  time.Duration // how long a task must be overdue before a sweeper takes it
	Listen string        // status page of a node on this host, or on another with the same config; "": not known

	Etcd   assign.EtcdConfig
	NoEtcd error // why the config leads to no etcd at all; nil: it does
	Pages  Asker
}

// AskEtcd runs one call with the cluster's keys in etcd.
func (v View) AskEtcd(ctx context.Context, work func(*assign.Registry) error) error {
	if v.NoEtcd != nil {
		return v.NoEtcd
	}
	keys, err := assign.OpenRegistry(ctx, v.Etcd, v.Tables.Cluster, v.Tables.Layout.Total())
	if err != nil {
		return err
	}
	defer keys.Close()
	return work(keys)
}

// WithIdentity runs one call with the identity of the databases that answer, if they have one, and the cluster's keys in etcd. It
// takes 10 s at most.
func (v View) WithIdentity(ctx context.Context, work func(ctx context.Context, own string, keys *assign.Registry) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	db, err := store.Open(v.Tables)
	if err != nil {
		return err
	}
	defer db.Close()
	_ = db.Everywhere(ctx, func(int) error { return nil }) // reads the layout rows too; the caller asks for other errors itself
	own := db.Identity()
	if own == "" {
		return nil
	}
	return v.AskEtcd(ctx, func(keys *assign.Registry) error { return work(ctx, own, keys) })
}

// identity returns the identity of the databases that answer, and an error if etcd has bound the cluster to another.
func (v View) identity(ctx context.Context) (own string, err error) {
	err = v.WithIdentity(ctx, func(ctx context.Context, id string, keys *assign.Registry) error {
		own = id
		return keys.Refuse(ctx, assign.NewIdentity(id, v.Tables))
	})
	return own, err
}

const (
	answerWithin = 10 * time.Second // one question to a server or etcd
	askWithin    = 3 * time.Second  // one status page
	maxReport    = 1 << 20          // bytes of one
)

// Asker asks status pages, as the config's node.status says.
type Asker struct {
	Client *http.Client
	Scheme string
	Token  string
	Failed error // the config's node.status can't be used here
}

// Report reads the status page at a path, /status with parameters or without; one that says 503 has a report too.
func (as Asker) Report(ctx context.Context, address, path string) (*node.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
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
func (as Asker) get(ctx context.Context, address, path string, read func(io.Reader) error) (http.Header, error) {
	if as.Failed != nil {
		return nil, as.Failed
	}
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

// errorsShown bounds the joined errors of one line: a server that is down may give one for each of a thousand tables.
const errorsShown = 4

// OneLine folds joined errors into one line, in which a time-out is "no answer in time".
func OneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(timeouts.Replace(err.Error())), "\n")
	if more := len(lines) - errorsShown; more > 1 {
		lines = append(lines[:errorsShown], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}
