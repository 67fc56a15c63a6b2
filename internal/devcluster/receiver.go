package devcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tocsinhq/tocsin"
)

// maxBody bounds what the receiver reads of one callback.
const maxBody = 1 << 20

// receiver answers HTTP callbacks as a user's service would: it checks the
// signature, notes the task and says 204.
type receiver struct {
	server   *http.Server
	listener net.Listener
	verify   *webhooks.Webhook
	recorder *Recorder
	done     chan error
}

// callback is the body, as far as the receiver reads it.
type callback struct {
	Type string `json:"type"`
	Data struct {
		JobID     tocsin.JobID `json:"job_id"`
		BizID     string       `json:"biz_id"`
		DueTime   time.Time    `json:"due_time"`
		Attribute string       `json:"attribute"`
	} `json:"data"`
}

// startReceiver listens on a loopback port; 0 picks a free one.
func startReceiver(port int, secret string, rec *Recorder) (*receiver, error) {
	verify, err := webhooks.NewWebhook(secret)
	if err != nil {
		return nil, fmt.Errorf("receiver secret: %w", err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("HTTP receiver: port %d on 127.0.0.1 is in use: choose another with --http-port: %w", port, err)
	}
	r := &receiver{listener: l, verify: verify, recorder: rec, done: make(chan error, 1)}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { r.done <- r.server.Serve(l) }()
	return r, nil
}

// URL is where callbacks go.
func (r *receiver) URL() string { return "http://" + r.listener.Addr().String() + "/tasks" }

// HangURL is where callbacks go that get no answer while their caller waits.
func (r *receiver) HangURL() string { return "http://" + r.listener.Addr().String() + hangs }

const hangs = "/hang"

// ServeHTTP takes one callback.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody))
	if err != nil {
		http.Error(w, "body cut off", http.StatusBadRequest)
		return
	}
	if err := r.verify.Verify(body, req.Header); err != nil {
		http.Error(w, "wrong signature", http.StatusUnauthorized)
		return
	}
	if req.URL.Path == hangs {
		<-req.Context().Done()
		return
	}
	var c callback
	if err := json.Unmarshal(body, &c); err != nil {
		http.Error(w, "not the JSON of a task", http.StatusBadRequest)
		return
	}
	r.recorder.record(c.info(), req.Header.Get("Tocsin-Node"))
	w.WriteHeader(http.StatusNoContent)
}

func (c callback) info() tocsin.Info {
	bizID, _ := strconv.ParseUint(c.Data.BizID, 10, 64) // shown only
	return tocsin.Info{JobID: c.Data.JobID, BizID: bizID, BizType: c.Type, DueTime: c.Data.DueTime, Attribute: c.Data.Attribute}
}

// stop ends the receiver and waits for it.
func (r *receiver) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := r.server.Shutdown(ctx)
	if served := <-r.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
