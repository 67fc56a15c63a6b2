package dispatcher

import (
	"time"

	"github.com/tocsinhq/tocsin/internal/store"
)

// Newer is what is known of rows of a biz type that are left alone, since their payload has a newer version than this
// program reads. Such a row stays as it is, for a program that reads it: it is neither delivered nor settled here, and it is
// not queued. The scanner finds it again with its next full peek. A row that is claimed under a session has shown its version only then: it goes back, for a minute.
type Newer struct {
	Version int       // the newest one
	Known   int       // the newest one that this program reads
	Times   int       // a row was left; the same row may count several times
	Last    time.Time // that was
}

// leavesNewer reports whether a row has to be left alone, and notes that. It may be called under server.mu.
func (k *kind) leavesNewer(row *store.Row) bool {
	known := k.rule.Load().version
	if known == 0 || row.PayloadVersion <= known {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newer = Newer{Version: max(k.newer.Version, row.PayloadVersion), Known: known, Times: k.newer.Times + 1, Last: time.Now()}
	k.d.metrics.droppedNewer.Inc()
	return true
}

// Newer returns what was left alone so far, by the numbers of the biz types.
func (d *Dispatcher) Newer() map[uint64]Newer {
	all := make(map[uint64]Newer)
	for _, k := range d.allKinds() {
		k.mu.Lock()
		if k.newer.Times > 0 {
			all[k.number] = k.newer
		}
		k.mu.Unlock()
	}
	return all
}
