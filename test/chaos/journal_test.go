package chaos

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestRecordReadsBackAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := record{
			Begin: rapid.Bool().Draw(t, "begin"), JobID: tocsin.JobID(rapid.Int64Min(1).Draw(t, "id")),
			Version: rapid.Uint32().Draw(t, "version"), Attempts: rapid.IntRange(0, 100).Draw(t, "attempts"),
			Node: rapid.StringMatching(`[a-z]+[0-9]-[0-9]+`).Draw(t, "node"),
			At:   time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "at")), Due: time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "due")),
		}
		if rapid.Bool().Draw(t, "run") {
			r.ofRun = ofRun{"every-second-7", time.UnixMicro(rapid.Int64Range(-62135596800000000, 4e15).Draw(t, "fire")), rapid.IntRange(0, 1000).Draw(t, "mark")}
		}
		if r.Schedule == "" && rapid.Bool().Draw(t, "leased") {
			r.Lease = store.NewLease(rapid.Int64Range(0, 4e12).Draw(t, "lease"))
		}
		r.OK = !r.Begin && rapid.Bool().Draw(t, "ok")
		got, err := parseRecord(r.line())
		if err != nil || got != r {
			t.Fatalf("wrote %+v, read %+v, %v", r, got, err)
		}
	})
}

func TestJournalOfAKilledProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := record{Begin: true, JobID: 7, Node: "n1-1", At: time.UnixMicro(5), Due: time.UnixMicro(4)}
	text := append(r.line(), r.line()[:9]...)
	if err := os.WriteFile(filepath.Join(dir, "n1-1"+journalSuffix), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readJournals(dir); err != nil || len(got) != 1 || got[0] != r {
		t.Errorf("read %+v, %v; want the one whole line", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "n2-1"+journalSuffix), []byte("b 1 x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readJournals(dir); err == nil {
		t.Error("a line that is no record was passed over")
	}
}
