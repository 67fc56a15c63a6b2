package tocsin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestOptionalHeadersAreStoredIfTheyFit(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	x := remind.New(7, "x", tocsin.In(time.Hour))
	long := strings.Repeat("l", tocsin.MaxHeaders-len(`{"a":"","b":"2"}`))
	for name, want := range map[string]struct {
		task   tocsin.NewTask
		stored tocsin.Headers
	}{
		"all fit":                           {x.OptionalHeader("b", "2").Header("a", "1"), `{"a":"1","b":"2"}`},
		"only the first has room":           {x.OptionalHeader("b", "2").OptionalHeader("c", "3").Header("a", long), tocsin.Headers(`{"a":"` + long + `","b":"2"}`)},
		"one without room leaves the next":  {x.OptionalHeader("c", long).OptionalHeader("b", "2").Header("a", long), tocsin.Headers(`{"a":"` + long + `","b":"2"}`)},
		"none has room":                     {x.OptionalHeader("c", "3").Header("a", long+"1234567"), tocsin.Headers(`{"a":"` + long + `1234567"}`)},
		"a name and a text that aren't any": {x.OptionalHeader("a b", "1").OptionalHeader("c", "\xff").OptionalHeader("b", "2"), `{"b":"2"}`},
		"nothing is left":                   {x.OptionalHeader("a b", "1"), ""},
		"the last of a name counts":         {x.OptionalHeader("a", "1").Header("a", "2").Header("b", "1").OptionalHeader("b", "2"), `{"a":"2","b":"2"}`},
	} {
		for way, add := range waysToAdd(c, session(t, devtest.DSN(t), "")) {
			added, err := add(t.Context(), want.task)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, way, err)
			}
			if got := get(t, c, added[0].JobID).Headers; got != want.stored {
				t.Errorf("%s, %s: %s, want %s", name, way, got, want.stored)
			}
		}
	}
	if _, err := c.Add(t.Context(), x.OptionalHeader("a", "1").Header("b b", "2")); !errors.Is(err, tocsin.ErrInvalid) {
		t.Errorf("a bad header that is not optional: %v", err)
	}
}

func TestOptionalHeadersGoThroughAnOutbox(t *testing.T) {
	t.Parallel()
	cfg := withOutbox(t, cluster(t))
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	tx := begin(t, db)
	task := remind.New(7, "x", tocsin.In(0)).OptionalHeader("b", "2").OptionalHeader("a b", "1")
	must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task))
	must[[]tocsin.Added](t)(c.AddManyTx(t.Context(), tx, []tocsin.NewTask{task}))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM "+cfg.Outbox.Table+` WHERE headers = '{"b":"2"}'`); n != 2 {
		t.Errorf("%d rows with the header that can be stored", n)
	}
}
