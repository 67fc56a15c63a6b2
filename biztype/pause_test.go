package biztype_test

import (
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestSetPausedChangesNothingElse(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	apply(t, cfg, closeOrder, remind)
	want := load(t, cfg)
	for _, c := range []struct {
		paused  bool
		verdict biztype.Verdict
	}{{true, biztype.Changed}, {true, biztype.Unchanged}, {false, biztype.Changed}} {
		res, err := biztype.SetPaused(t.Context(), cfg, "order.close", c.paused)
		if err != nil || len(res.Types) != 1 || res.Types[0].Verdict != c.verdict {
			t.Errorf("paused %t: %+v, %v", c.paused, res, err)
		}
		want[0].Paused = c.paused
		if stored := load(t, cfg); !reflect.DeepEqual(stored, want) {
			t.Errorf("stored %+v\nwant %+v", stored, want)
		}
	}
	if _, err := biztype.SetPaused(t.Context(), cfg, "unheard", true); err == nil || !strings.Contains(err.Error(), `unknown biz type "unheard"`) {
		t.Errorf("%v", err)
	}
}

// storedPolicies reads the text of a type's policy from each database.
func storedPolicies(t *testing.T, cfg tocsin.Config, number int) (texts [2]string) {
	t.Helper()
	server, err := mysql.Open(client.Specs(cfg)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer server.DB.Close()
	for db := range texts {
		query := "SELECT policy FROM " + cfg.Layout.Database(db) + ".biz_type WHERE number = ?"
		if err := server.DB.GetContext(t.Context(), &texts[db], query, number); err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// Fields that a newer program wrote survive a pause, a resume and a repair in their order, both at the top and within a
// field that this program knows.
func TestAPauseKeepsTheFieldsThatThisProgramDoesNotKnow(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	apply(t, cfg, closeOrder, remind)
	const newer = `{"name":"coupon.remind","number":2,"urgency":12345678901234567890,` +
		`"webhook":{"url":"https://example.com/hook?a=1&b=2","method":"PUT"},"windows":[{"from":"9:00"}]}`
	for db := range 2 {
		execute(t, cfg, "UPDATE "+cfg.Layout.Database(db)+".biz_type SET policy = ?, revision = 7 WHERE number = 2", newer)
	}
	both := func(text string) [2]string { return [2]string{text, text} }
	for _, c := range []struct {
		paused bool
		want   string
	}{{true, strings.TrimSuffix(newer, "}") + `,"paused":true}`}, {false, newer}} {
		if _, err := biztype.SetPaused(t.Context(), cfg, "coupon.remind", c.paused); err != nil {
			t.Fatal(err)
		}
		if got := storedPolicies(t, cfg, 2); got != both(c.want) {
			t.Errorf("paused %t: stored\n%s\n%s\nwant\n%s", c.paused, got[0], got[1], c.want)
		}
	}
	execute(t, cfg, "DELETE FROM "+cfg.Layout.Database(1)+".biz_type WHERE number = 2")
	if got := verdicts(apply(t, cfg, remind)); got[0] != biztype.Repaired {
		t.Errorf("verdict %s", got[0])
	}
	if got := storedPolicies(t, cfg, 2); got != both(newer) {
		t.Errorf("after a repair: stored\n%s\n%s\nwant\n%s", got[0], got[1], newer)
	}
}

// A pause while others apply must neither be lost nor undo their change.
func TestSetPausedBesideAnApplyOfAnotherType(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	apply(t, cfg, closeOrder, remind)
	slower := remind
	slower.Attempts = 3
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := biztype.SetPaused(t.Context(), cfg, "order.close", true); err != nil {
			t.Error(err)
		}
	})
	both.Go(func() {
		if _, err := biztype.Apply(t.Context(), cfg, []biztype.Policy{slower}); err != nil {
			t.Error(err)
		}
	})
	both.Wait()
	if stored := load(t, cfg); len(stored) != 2 || !stored[0].Paused || stored[1].Attempts != 3 || stored[1].Paused {
		t.Errorf("%+v", stored)
	}
}

// Whoever pauses a type in need must not wait for the first server's disk.
func TestAPauseIsWrittenBesideADatabaseThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	apply(t, cfg, closeOrder, remind)
	execute(t, cfg, "CREATE TRIGGER "+cfg.Layout.Database(0)+".full BEFORE UPDATE ON "+cfg.Layout.Database(0)+
		".biz_type FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'")
	res, err := biztype.SetPaused(t.Context(), cfg, "order.close", true)
	if err == nil || !strings.Contains(err.Error(), "write biz types of "+cfg.Layout.Database(0)) || !strings.Contains(err.Error(), "is full") || res.Databases != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	if texts := storedPolicies(t, cfg, int(closeOrder.Number)); strings.Contains(texts[0], `"paused":true`) || !strings.Contains(texts[1], `"paused":true`) {
		t.Errorf("stored %q", texts)
	}
}
