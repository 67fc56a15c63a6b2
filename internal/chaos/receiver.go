package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// receiver takes HTTP callbacks in the harness's own process, which no fault
// touches, and writes a journal of them.
type receiver struct {
	journal *journal
	server  *http.Server
	address string
	served  chan error
}

func startReceiver(path string) (*receiver, error) {
	j, err := openJournal(path, "receiver")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, j.close())
	}
	r := &receiver{journal: j, address: l.Addr().String(), served: make(chan error, 1)}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { r.served <- r.server.Serve(l) }()
	return r, nil
}

func (r *receiver) url() string { return "http://" + r.address + "/tasks" }

// callback is what the receiver reads of a body.
type callback struct {
	Data struct {
		JobID     tocsin.JobID `json:"job_id"`
		DueTime   time.Time    `json:"due_time"`
		Attempt   int          `json:"attempt"`
		Attribute string       `json:"attribute"`
	} `json:"data"`
}

// ServeHTTP does as the payload says.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	rec, work, err := parseCallback(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rec.Begin, rec.At = true, at
	r.journal.write(rec)
	status := http.StatusNoContent
	if work.do(req.Context(), rec.Attempts) != nil {
		status = http.StatusInternalServerError
	}
	rec.Begin, rec.At, rec.OK = false, time.Now(), status == http.StatusNoContent
	r.journal.write(rec)
	w.WriteHeader(status)
}

func parseCallback(req *http.Request) (record, Work, error) {
	var c callback
	var work Work
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err != nil {
		return record{}, work, err
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return record{}, work, err
	}
	if err := json.Unmarshal([]byte(c.Data.Attribute), &work); err != nil {
		return record{}, work, err
	}
	_, version, _ := strings.Cut(req.Header.Get("Webhook-Id"), ".")
	v, err := strconv.ParseUint(version, 10, 32)
	if err != nil {
		return record{}, work, fmt.Errorf("webhook-id: %w", err)
	}
	return record{
		JobID: c.Data.JobID, Version: uint32(v), Attempts: c.Data.Attempt - 1, Node: req.Header.Get("Tocsin-Node"), Due: c.Data.DueTime,
	}, work, nil
}

// stop ends it and waits.
func (r *receiver) stop() error {
	err := r.server.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, r.journal.close())
}
