package tocsin_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestTableNumberIsTheServersOwnCRC32(t *testing.T) {
	t.Parallel()
	db := session(t, devtest.DSN(t), "")
	ids := []uint64{1, 9, 10, 99, 4294967295, 4294967296, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64}
	for id := uint64(3); id < 1<<63; id *= 3 {
		ids = append(ids, id)
	}
	for _, l := range []tocsin.Layout{{Databases: 8, Tables: 1024}, {Databases: 8, Tables: 16}, {Databases: 1, Tables: 1}, {Databases: 3, Tables: 7}} {
		for _, id := range ids {
			if want := count(t, db, "SELECT CRC32(?) % ?", id, l.Total()); l.TableOf(id) != want {
				t.Errorf("layout %s, biz_id %d: table %d, the server says %d", l, id, l.TableOf(id), want)
			}
		}
	}
}

func TestTableNames(t *testing.T) {
	t.Parallel()
	l := tocsin.Layout{Databases: 8, Tables: 1024}
	for number, want := range map[int]string{0: "toc_0.task_0000", 1023: "toc_0.task_1023", 1024: "toc_1.task_0000", 8191: "toc_7.task_1023"} {
		if got := l.Table(number); got != want {
			t.Errorf("table %d: %s, want %s", number, got, want)
		}
	}
}

func TestLayoutRefuses(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]tocsin.Layout{
		"no database":                   {Databases: 0, Tables: 1},
		"no table":                      {Databases: 1, Tables: 0},
		"more tables than a job_id can": {Databases: 8, Tables: 1025},
		"numbers whose product is low":  {Databases: math.MaxInt, Tables: 2},
		"a prefix that is not a name":   {Databases: 1, Tables: 1, Prefix: "a`b"},
	} {
		if l.Validate() == nil {
			t.Errorf("%s: %s is accepted", name, l)
		}
	}
}

func FuzzTableOf(f *testing.F) {
	f.Add(uint64(1), uint16(8), uint16(1024))
	f.Add(uint64(math.MaxUint64), uint16(1), uint16(1))
	f.Fuzz(func(t *testing.T, bizID uint64, databases, tables uint16) {
		l := tocsin.Layout{Databases: int(databases), Tables: int(tables)}
		if l.Validate() != nil {
			return
		}
		n := l.TableOf(bizID)
		if n < 0 || n >= l.Total() {
			t.Fatalf("biz_id %d: table %d of layout %s", bizID, n, l)
		}
		if name := l.Table(n); !strings.HasPrefix(name, l.Database(l.DatabaseOf(n))+".") {
			t.Fatalf("table %d is %s, its database %s", n, name, l.Database(l.DatabaseOf(n)))
		}
	})
}

func TestEveryTableHasItsOwnName(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := tocsin.Layout{Databases: rapid.IntRange(1, 16).Draw(t, "databases"), Tables: rapid.IntRange(1, 64).Draw(t, "tables")}
		seen := map[string]bool{}
		for n := range l.Total() {
			seen[l.Table(n)] = true
		}
		if len(seen) != l.Total() {
			t.Fatalf("layout %s has %d names", l, len(seen))
		}
	})
}

func FuzzJobID(f *testing.F) {
	f.Add("1")
	f.Add("9223372036854775807")
	f.Add("0")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := tocsin.ParseJobID(text)
		if err != nil {
			if id != 0 {
				t.Fatalf("%q: %d beside an error", text, id)
			}
			return
		}
		if again, err := tocsin.ParseJobID(id.String()); again != id || err != nil {
			t.Fatalf("%d reads back as %d, %v", id, again, err)
		}
		var decoded tocsin.JobID
		b := must[[]byte](t)(json.Marshal(id))
		if err := json.Unmarshal(b, &decoded); decoded != id || err != nil {
			t.Fatalf("%s reads back as %d, %v", b, decoded, err)
		}
		if id.Table() < 0 || id.Table() >= tocsin.MaxTables || id.Time().Before(tocsin.Epoch) {
			t.Fatalf("%d: table %d, time %s", id, id.Table(), id.Time())
		}
	})
}

func TestJobIDTellsItsMillisecond(t *testing.T) {
	t.Parallel()
	if got := tocsin.JobID(1 << 22).Time(); !got.Equal(tocsin.Epoch.Add(time.Millisecond)) {
		t.Errorf("got %s", got)
	}
}
