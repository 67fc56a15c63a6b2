package tocsin_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestTheServerComputesTheSameBizIDOfAKey(t *testing.T) {
	t.Parallel()
	dbs := map[string]string{"utf8mb4": "", "latin1": "charset=latin1", "interpolated": "interpolateParams=true"}
	for name, params := range dbs {
		db := session(t, devtest.DSN(t), params)
		rapid.Check(t, func(rt *rapid.T) {
			key := rapid.StringN(1, -1, 64).Draw(rt, "key")
			var got uint64
			err := db.QueryRow("SELECT CONV(LEFT(SHA2(CONVERT(CAST(? AS BINARY) USING utf8mb4), 256), 16), 16, 10) & 9223372036854775807", []byte(key)).Scan(&got)
			if err != nil || got != tocsin.KeyID(key) {
				rt.Fatalf("%s: %q: %d, %v, want %d", name, key, got, err, tocsin.KeyID(key))
			}
		})
	}
	if id := tocsin.KeyID("ord_01J8Z3"); id != 8749688562897706837 {
		t.Errorf("docs/sql.md has another biz_id: %d", id)
	}
}

func TestChangesOfAKeyAndOfItsNumberAreApart(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	id := tocsin.KeyID("ord_1")
	ofKey, ofNumber := add(t, c, remind.NewKey("ord_1", "k", tocsin.In(day))), add(t, c, remind.New(id, "n", tocsin.In(day)))
	list := func(infos []tocsin.Info, err error) (ids []tocsin.JobID) {
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos {
			ids = append(ids, i.JobID)
		}
		return ids
	}
	if got := list(c.ListKey(t.Context(), "ord_1")); !slices.Equal(got, []tocsin.JobID{ofKey.JobID}) {
		t.Errorf("of the key: %v", got)
	}
	if got := list(c.List(t.Context(), id)); !slices.Equal(got, []tocsin.JobID{ofNumber.JobID}) {
		t.Errorf("of the number: %v", got)
	}
	db := session(t, devtest.DSN(t), "")
	for name, ref := range map[tocsin.JobID]tocsin.Ref{ofKey.JobID: remind.OfKey("ord_1"), ofNumber.JobID: remind.Of(id)} {
		tx := begin(t, db)
		far := must[tocsin.Change](t)(c.RescheduleTx(t.Context(), tx, ref, tocsin.In(2*day)))
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		moved := must[tocsin.Change](t)(c.Reschedule(t.Context(), ref, tocsin.In(0)))
		if moved != (tocsin.Change{Changed: 1}) || far != moved || get(t, c, name).Version != 2 || bells(t, c, db, name) != 1 {
			t.Errorf("%+v, %+v, %+v", moved, far, get(t, c, name))
		}
	}
	if done := must[tocsin.Change](t)(c.Cancel(t.Context(), remind.OfKey("ord_1"))); done != (tocsin.Change{Changed: 1, InDelivery: 1}) {
		t.Errorf("%+v", done)
	}
	tx := begin(t, db)
	if done := must[tocsin.Change](t)(c.CancelTx(t.Context(), tx, remind.Of(id))); done != (tocsin.Change{Changed: 1, InDelivery: 1}) {
		t.Errorf("%+v", done)
	}
	for _, key := range []string{"", strings.Repeat("k", 65), "\xff"} {
		_, list := c.ListKey(t.Context(), key)
		_, cancel := c.Cancel(t.Context(), remind.OfKey(key))
		_, reschedule := c.RescheduleTx(t.Context(), tx, remind.OfKey(key), tocsin.In(0))
		for _, err := range []error{list, cancel, reschedule} {
			if !errors.Is(err, tocsin.ErrInvalid) {
				t.Errorf("key %q: %v", key, err)
			}
		}
	}
}

// A collision is made by hand: the row of another key under this key's biz_id.
func TestADedupKeyOfAnotherBusinessKeyIsACollision(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	db := session(t, devtest.DSN(t), "")
	for name, other := range map[string]string{"another key": "evil", "a number": ""} {
		key := "ord_" + name
		first := add(t, c, remind.NewKey(key, "x", tocsin.In(day)).Dedup("d"))
		exec(t, db, "UPDATE "+c.Layout().Table(first.JobID.Table())+" SET biz_key = ? WHERE job_id = ?", []byte(other), uint64(first.JobID))
		task := remind.NewKey(key, "mine", tocsin.In(day)).Dedup("d")
		for way, add := range waysToAdd(c, db) {
			added, err := add(t.Context(), task, remind.NewKey(key, "alone", tocsin.In(day)))
			if !errors.Is(err, tocsin.ErrKeyCollision) || !strings.Contains(err.Error(), `key "`+key+`"`) || !strings.Contains(err.Error(), first.JobID.String()) {
				t.Errorf("%s, %s: %v", name, way, err)
			}
			if way == "AddMany" && (added[0].JobID != 0 || !errors.Is(added[0].Err, tocsin.ErrKeyCollision) || added[1].Err != nil) {
				t.Errorf("%s: %+v", name, added)
			}
		}
		if n := count(t, db, "SELECT COUNT(*) FROM "+c.Layout().Table(first.JobID.Table())+" WHERE attribute = 'mine'"); n != 0 {
			t.Errorf("%s: %d tasks are stored all the same", name, n)
		}
		if info := get(t, c, first.JobID); info.BizKey != other || info.Payload != "x" {
			t.Errorf("%s: the other task is %+v", name, info)
		}
		again := add(t, c, remind.NewKey(key, "fine", tocsin.In(day)).Dedup("other"))
		if same := add(t, c, remind.NewKey(key, "fine", tocsin.In(day)).Dedup("other")); !same.Existing || same.JobID != again.JobID {
			t.Errorf("%s: %+v", name, same)
		}
	}
}
