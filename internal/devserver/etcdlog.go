package devserver

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
)

// etcdServing begins the message of every etcd since 3.4 when it has joined its cluster and its clients are served; the
// rest says whether with TLS.
const etcdServing = "serving client traffic"

// etcdLog passes etcd's log on, keeps what explains a failure, and notices when etcd serves.
type etcdLog struct {
	logTail
	ready chan struct{}
	once  sync.Once
}

func newEtcdLog(dst io.Writer) *etcdLog {
	l := &etcdLog{ready: make(chan struct{})}
	l.logTail = logTail{dst: dst, failure: l.read}
	return l
}

// read looks at a line. It is a JSON object, except before etcd has read its options. read returns what failed.
func (l *etcdLog) read(line string) string {
	var entry struct{ Level, Msg, Error string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		if strings.HasPrefix(line, "flag provided but not defined") {
			return line + ": etcd 3.4 or newer is needed"
		}
		return ""
	}
	if strings.HasPrefix(entry.Msg, etcdServing) {
		l.once.Do(func() { close(l.ready) })
	}
	switch {
	case !slices.Contains([]string{"error", "dpanic", "panic", "fatal"}, entry.Level):
		return ""
	case entry.Error != "":
		return entry.Error
	}
	return entry.Msg
}
