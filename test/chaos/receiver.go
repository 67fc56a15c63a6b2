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
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// receiver takes HTTP callbacks in the harness's own process, which no fault
// touches, and writes a journal of them.
type receiver struct {
	journal *journal
	server  *http.Server
	address string
	served  chan error
	told    sync.Map // webhook-ids of tasks that were told later
}

func startReceiver(path string) (*receiver, error) {
	j, err := openJournal(path, receiverName)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, j.close())
	}
	r := &receiver{journal: j, address: l.Addr().String(), served: make(chan error, 1)}
	r.server = &http.Server{Handler: r} // without time-outs: a connection that ends as it is used is a failed attempt, which nobody planned
	go func() { r.served <- r.server.Serve(l) }()
	return r, nil
}

func (r *receiver) url() string { return "http://" + r.address + "/tasks" }

// callback is what the receiver reads of a body.
type callback struct {
	Data struct {
		JobID    tocsin.JobID `json:"job_id"`
		DueTime  time.Time    `json:"due_time"`
		Attempt  int          `json:"attempt"`
		Payload  string       `json:"attribute"`
		Schedule string       `json:"schedule"`
		FireTime time.Time    `json:"fire_time"`
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
	if work.Do == doBusy {
		if _, before := r.told.LoadOrStore(req.Header.Get("webhook-id"), true); !before { // no delivery, as it is not taken
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
	}
	r.journal.write(rec)
	status := work.answer(w, req, rec.Attempts)
	rec.Begin, rec.At, rec.OK = false, time.Now(), status == http.StatusNoContent
	r.journal.write(rec)
	if status != 0 {
		w.WriteHeader(status)
	}
}

// answer does the work and gives the status for the answer; 0: there is none.
func (w Work) answer(to http.ResponseWriter, req *http.Request, attempts int) int {
	switch w.Do {
	case doError:
		return http.StatusInternalServerError
	case doGone:
		return http.StatusGone
	case doDrip, doReset:
		spoil(to, req, w.Do == doDrip)
		return 0
	}
	if w.do(req.Context(), attempts) != nil {
		return http.StatusInternalServerError
	}
	return http.StatusNoContent
}

// spoil sends the status line byte by byte as long as somebody listens, or breaks
// the connection at once.
func spoil(to http.ResponseWriter, req *http.Request, drip bool) {
	conn, _, err := http.NewResponseController(to).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if !drip {
		_ = conn.(*net.TCPConn).SetLinger(0) // RST instead of an end
		return
	}
	for _, b := range []byte("HTTP/1.1 200 " + strings.Repeat("O", 20)) {
		if _, err := conn.Write([]byte{b}); err != nil || loop.Wait(req.Context(), time.Second/2) != nil {
			return
		}
	}
}

func parseCallback(req *http.Request) (record, Work, error) {
	var c callback
	var work Work
	if err := json.NewDecoder(io.LimitReader(req.Body, 1<<20)).Decode(&c); err != nil {
		return record{}, work, err
	}
	if err := json.Unmarshal([]byte(c.Data.Payload), &work); err != nil {
		return record{}, work, err
	}
	_, version, _ := strings.Cut(req.Header.Get("Webhook-Id"), ".")
	v, err := strconv.ParseUint(version, 10, 32)
	if err != nil {
		return record{}, work, fmt.Errorf("webhook-id: %w", err)
	}
	r := record{JobID: c.Data.JobID, Version: uint32(v), Attempts: c.Data.Attempt - 1, Node: req.Header.Get("Tocsin-Node"), Due: c.Data.DueTime}
	if c.Data.Schedule != "" {
		r.ofRun = ofRun{c.Data.Schedule, c.Data.FireTime, work.Mark}
	}
	return r, work, nil
}

// stop ends it and waits.
func (r *receiver) stop() error {
	err := r.server.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, r.journal.close())
}
