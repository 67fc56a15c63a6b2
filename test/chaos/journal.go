package chaos

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

// record is the begin or the end of one delivery.
type record struct {
	Begin    bool
	OK       bool // of an end: the task is done for the handler
	JobID    tocsin.JobID
	Version  uint32
	Attempts int // failed ones before this
	Node     string
	At       time.Time
	Due      time.Time // the row's due_time as delivered; zero where the delivery did not tell
	Callback bool      // the receiver or the consumer saw it, which is later than the node began it
	Offset   string    // of a message, in its topic; "": it is none
	Lease    string    // of a task that a worker asked for: the claimer of its row; "": it did not
	ofRun
}

// ofRun is what the delivery of a schedule's run was told.
type ofRun struct {
	Schedule string    // its name; "": the task is no run
	Fire     time.Time // the nominal time; zero: of no fire time
	Mark     int       // in the payload
}

// journal is the file of one process. A line is one write, so that a process
// killed between two lines leaves whole ones. Safe for concurrent use.
type journal struct {
	node string

	mu   sync.Mutex
	file *os.File
}

func openJournal(path, node string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &journal{node: node, file: f}, nil
}

// write appends a record. A journal that can't be written would hide deliveries:
// it ends the process.
func (j *journal) write(r record) {
	if r.Node == "" {
		r.Node = j.node
	}
	j.append(r.line())
}

func (j *journal) append(line []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(line); err != nil {
		fmt.Fprintf(os.Stderr, "journal: %v\n", err)
		os.Exit(4)
	}
}

func (j *journal) close() error { return j.file.Close() }

// line is "b|s|f job_id version attempts node at due", times in microseconds; of a run, then "schedule fire mark", of a message "offset", of a task that a worker asked for "lease".
func (r record) line() []byte {
	what := "f"
	switch {
	case r.Begin:
		what = "b"
	case r.OK:
		what = "s"
	}
	line := fmt.Appendf(nil, "%s %d %d %d %s %d %d", what, r.JobID, r.Version, r.Attempts, r.Node, r.At.UnixMicro(), r.Due.UnixMicro())
	if word := r.Offset + r.Lease; word != "" {
		line = fmt.Appendf(line, " %s", word)
	}
	if r.Schedule != "" {
		line = fmt.Appendf(line, " %s %d %d", r.Schedule, r.Fire.UnixMicro(), r.Mark)
	}
	return append(line, '\n')
}

// parseRecord reads what line wrote.
func parseRecord(line []byte) (record, error) {
	f := bytes.Fields(line)
	if len(f) != 7 && len(f) != 8 && len(f) != 10 {
		return record{}, fmt.Errorf("journal: %d words in %q", len(f), line)
	}
	var n [7]int64
	numbers := append([][]byte{f[1], f[2], f[3], f[5], f[6]}, f[min(8, len(f)):]...)
	for i, word := range numbers {
		v, err := strconv.ParseInt(string(word), 10, 64)
		if err != nil {
			return record{}, fmt.Errorf("journal: %w", err)
		}
		n[i] = v
	}
	r := record{
		Begin: f[0][0] == 'b', OK: f[0][0] == 's', JobID: tocsin.JobID(n[0]), Version: uint32(n[1]), Attempts: int(n[2]),
		Node: string(f[4]), At: time.UnixMicro(n[3]), Due: time.UnixMicro(n[4]),
	}
	switch len(f) {
	case 8:
		if _, _, lease := store.LeaseBegan(string(f[7])); lease {
			r.Lease = string(f[7])
		} else {
			r.Offset = string(f[7])
		}
	case 10:
		r.ofRun = ofRun{Schedule: string(f[7]), Fire: time.UnixMicro(n[5]), Mark: int(n[6])}
	}
	return r, nil
}

// readJournals reads all records below a folder. A last line without an end was
// never finished: its delivery had not begun.
func readJournals(dir string) ([]record, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+journalSuffix))
	if err != nil {
		return nil, err
	}
	var all []record
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
			r, err := parseRecord(line)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			r.Callback = slices.Contains([]string{receiverName + journalSuffix, consumerName + journalSuffix}, filepath.Base(path))
			all = append(all, r)
		}
	}
	return all, nil
}

// These begin the names of the journal files of the receiver, and of the broker's consumer.
const (
	receiverName = "receiver"
	consumerName = "consumer"
)

// journalSuffix ends the names of journal files.
const journalSuffix = ".journal"

// delivery is one attempt as its process saw it.
type delivery struct {
	record
	End time.Time // zero: it never ended there, or the process was killed
	OK  bool
}

// String is for a breach's trace.
func (d delivery) String() string {
	end := "no end"
	if !d.End.IsZero() {
		end = "ended " + d.End.UTC().Format(clockForm)
		if d.OK {
			end += " well"
		}
	}
	if d.Offset != "" {
		end = "at offset " + d.Offset
	}
	if d.Lease != "" {
		end += ", " + d.Lease
	}
	return fmt.Sprintf("delivered %s by %s attempts %d version %d %s", d.At.UTC().Format(clockForm), d.Node, d.Attempts, d.Version, end)
}

// deliveries pairs begins and ends, by job_id, each in order of time.
func deliveries(records []record) map[tocsin.JobID][]delivery {
	slices.SortStableFunc(records, func(a, b record) int { return cmp.Or(a.At.Compare(b.At), rank(a)-rank(b)) })
	all := map[tocsin.JobID][]delivery{}
	for _, r := range records {
		if r.Begin {
			all[r.JobID] = append(all[r.JobID], delivery{record: r})
			continue
		}
		of := all[r.JobID]
		for i := range of {
			if d := &of[i]; d.End.IsZero() && d.Node == r.Node && d.Version == r.Version && d.Attempts == r.Attempts {
				d.End, d.OK = r.At, r.OK
				break
			}
		}
	}
	return all
}

// rank puts a begin before an end of the same microsecond.
func rank(r record) int {
	if r.Begin {
		return 0
	}
	return 1
}

// seatOf is the seat's name in that of a process: n2-7 sat in n2.
func seatOf(node string) string {
	seat, _, _ := strings.Cut(node, "-")
	return seat
}

// second is a delivery of an attempt that had been delivered before.
type second struct {
	first, again delivery
	ranOut       bool // a claim of the task ran out
}

// seconds finds them: the same task, version and attempt, started again.
func seconds(of []delivery) (all []second) {
	type key struct {
		version  uint32
		attempts int
	}
	last := map[key]delivery{}
	for _, d := range of {
		k := key{d.Version, d.Attempts}
		if before, seen := last[k]; seen {
			all = append(all, second{first: before, again: d})
		}
		last[k] = d
	}
	return all
}
