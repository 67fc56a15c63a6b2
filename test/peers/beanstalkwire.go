package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/test/peers/contest"
)

const (
	priority       = 0
	runSeconds     = 60 // until a job that was reserved and not deleted is ready again
	reserveSeconds = 1  // how long a reserve waits, and so how long a pause takes
	bufferBytes    = 64 << 10
)

// wire is a connection. For one goroutine.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
}

// job is what was reserved; id 0 is none.
type job struct {
	id   uint64
	body string
}

func dial(ctx context.Context, addr string) (*wire, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &wire{conn, bufio.NewReaderSize(conn, bufferBytes), bufio.NewWriterSize(conn, bufferBytes)}, nil
}

func (w *wire) close() error { return w.conn.Close() }

// put stores the tasks, and returns when all are answered.
func (w *wire) put(batch []contest.Task) error {
	now := time.Now()
	for _, t := range batch {
		// bufio keeps the first error for Flush.
		_, _ = fmt.Fprintf(w.out, "put %d %d %d %d\r\n%s\r\n", priority, delaySeconds(t.Due.Sub(now)), runSeconds, len(t.Body), t.Body)
	}
	if err := w.out.Flush(); err != nil {
		return err
	}
	for range batch {
		if line, err := w.line(); err != nil || !strings.HasPrefix(line, "INSERTED ") {
			return unexpected("put", line, err)
		}
	}
	return nil
}

// delaySeconds rounds to whole seconds; what is due has no delay.
func delaySeconds(d time.Duration) int { return max(int(math.Round(d.Seconds())), 0) }

// ask sends the delete of a job, 0 for none, and a reserve that waits for another
// up to reserveSeconds.
func (w *wire) ask(last uint64) error {
	w.writeDelete(last)
	_, _ = w.out.WriteString("reserve-with-timeout " + strconv.Itoa(reserveSeconds) + "\r\n")
	return w.out.Flush()
}

// askDelete sends the delete of a job, 0 for none, alone.
func (w *wire) askDelete(last uint64) error {
	w.writeDelete(last)
	return w.out.Flush()
}

func (w *wire) writeDelete(id uint64) {
	if id != 0 {
		_, _ = w.out.WriteString("delete " + strconv.FormatUint(id, 10) + "\r\n")
	}
}

// deleted reads the reply to a delete.
func (w *wire) deleted() error {
	if line, err := w.line(); err != nil || line != "DELETED" {
		return unexpected("delete", line, err)
	}
	return nil
}

// reserved reads the reply to a reserve.
func (w *wire) reserved() (j job, err error) {
	line, err := w.line()
	if err != nil || line == "TIMED_OUT" {
		return job{}, err
	}
	var size int
	fields := strings.Fields(line)
	if len(fields) != 3 || fields[0] != "RESERVED" {
		return job{}, unexpected("reserve", line, nil)
	}
	if j.id, err = strconv.ParseUint(fields[1], 10, 64); err != nil {
		return job{}, unexpected("reserve", line, err)
	}
	if size, err = strconv.Atoi(fields[2]); err != nil || size < 0 {
		return job{}, unexpected("reserve", line, err)
	}
	body := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(w.in, body); err != nil {
		return job{}, err
	}
	j.body = string(body[:size])
	return j, nil
}

// line reads one reply.
func (w *wire) line() (string, error) {
	line, err := w.in.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

func unexpected(verb, line string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return fmt.Errorf("%s: beanstalkd answers %q", verb, line)
}

// settled reads the server's statistics: jobs that were put less those that are
// still there.
func settled(stats map[string]string) (n int, err error) {
	sum := func(keys ...string) (total int) {
		for _, key := range keys {
			x, bad := strconv.Atoi(stats[key])
			if bad != nil {
				err = errors.Join(err, fmt.Errorf("stats: %s is %q", key, stats[key]))
			}
			total += x
		}
		return total
	}
	n = sum("total-jobs") - sum("current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried")
	return n, err
}
