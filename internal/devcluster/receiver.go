package devcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/webhook"
)

// receiver answers HTTP callbacks as a user's service would, and notes each task.
type receiver struct{ web }

// startReceiver listens on a loopback port; 0 picks a free one.
func startReceiver(port int, secret string, rec *Recorder) (*receiver, error) {
	take, err := webhook.New(webhook.Config{Secrets: []string{secret}}, func(_ context.Context, task webhook.Task) error {
		rec.record(tocsin.Info{JobID: task.JobID, BizID: task.BizID, BizType: task.BizType, DueTime: task.DueTime, Payload: task.Payload}, task.Node)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("HTTP receiver: %w", err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("HTTP receiver: port %d on 127.0.0.1 is in use: choose another with --http-port: %w", port, err)
	}
	paths := http.NewServeMux()
	paths.Handle("/", take)
	paths.HandleFunc(hangs, hang)
	return &receiver{startWeb(l, paths)}, nil
}

// URL is where callbacks go.
func (r *receiver) URL() string { return "http://" + r.listener.Addr().String() + "/tasks" }

// HangURL is where callbacks go that get no answer while their caller waits.
func (r *receiver) HangURL() string { return "http://" + r.listener.Addr().String() + hangs }

const hangs = "/hang"

func hang(_ http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body) // or the server does not see that the caller has gone
	<-req.Context().Done()
}
