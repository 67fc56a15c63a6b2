package tocsin_test

import (
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestBadInputIsRefusedInOneLineAndNothingIsStored(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	day := tocsin.In(day)
	far := time.Now().AddDate(11, 0, 0)
	for name, bad := range map[string]struct {
		task tocsin.NewTask
		want string
		kind error
	}{
		"no when":              {remind.New(1, "x", tocsin.When{}), "no action time: use tocsin.In or tocsin.At", tocsin.ErrInvalid},
		"zero time":            {remind.New(1, "x", tocsin.At(time.Time{})), "action time is the zero time", tocsin.ErrInvalid},
		"too far at":           {remind.New(1, "x", tocsin.At(far)), "more than 10 years away", tocsin.ErrInvalid},
		"too far in":           {remind.New(1, "x", tocsin.In(math.MaxInt64)), "more than 10 years away", tocsin.ErrInvalid},
		"before the calendar":  {remind.New(1, "x", tocsin.At(time.Date(33, 4, 3, 0, 0, 0, 0, time.UTC))), "before the year 1000", tocsin.ErrInvalid},
		"long payload":         {remind.New(1, strings.Repeat("ä", 8193), day), "payload has 8193 characters: at most 8192", tocsin.ErrInvalid},
		"Dedup and Unique":     {remind.New(1, "x", day).Dedup("a").Unique("b", tocsin.While(tocsin.Pending, tocsin.Claimed)), "Dedup and Unique on one task: use one of both", tocsin.ErrInvalid},
		"Unique and Dedup":     {remind.New(1, "x", day).Unique("b", tocsin.While(tocsin.Pending, tocsin.Claimed)).Dedup("b"), "Dedup and Unique on one task: use one of both", tocsin.ErrInvalid},
		"payload not UTF-8":    {remind.New(1, "a\xff", day), "payload is not UTF-8", tocsin.ErrInvalid},
		"long dedup_key":       {remind.New(1, "x", day).Dedup(strings.Repeat("k", 65)), "dedup_key has 65 bytes: at most 64", tocsin.ErrInvalid},
		"dedup_key of a run":   {remind.New(1, "x", day).Dedup("\x00k"), "dedup_key begins with a zero byte: such keys are reserved for runs of schedules", tocsin.ErrInvalid},
		"unique key of a run":  {remind.New(1, "x", day).Unique("\x00", live), "dedup_key begins with a zero byte: such keys are reserved for runs of schedules", tocsin.ErrInvalid},
		"no biz_id":            {remind.New(0, "x", day), `biz type "coupon.remind": biz_id is 0`, tocsin.ErrInvalid},
		"unknown biz type":     {tocsin.Define[string]("no.such").New(1, "x", day), `unknown biz type "no.such": apply it with 'tocsin biz apply'`, tocsin.ErrUnknownBizType},
		"a name none can have": {tocsin.Define[string]("Order.Close").New(1, "x", day), `biz type "Order.Close": use lower-case letters`, tocsin.ErrInvalid},
		"no name":              {tocsin.BizType[string]{}.New(1, "x", day), `biz type "": use lower-case letters`, tocsin.ErrInvalid},
		"payload fails":        {tocsin.Define[float64]("order.close").New(1, math.NaN(), day), "payload of type float64: json: unsupported value: NaN", tocsin.ErrInvalid},
		"the zero task":        {tocsin.NewTask{}, "no action time: use tocsin.In or tocsin.At", tocsin.ErrInvalid},
	} {
		tx := must[*sql.Tx](t)(db.Begin())
		_, one := c.Add(t.Context(), bad.task)
		_, inTx := c.AddTx(t.Context(), tx, bad.task)
		_, many := c.AddMany(t.Context(), []tocsin.NewTask{bad.task})
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		for how, err := range map[string]error{"Add": one, "AddTx": inTx, "AddMany": many} {
			if !errors.Is(err, bad.kind) || !strings.Contains(err.Error(), bad.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: %v", name, how, err)
			}
		}
	}
	for n := range cfg.Layout.Total() {
		if rows := count(t, db, "SELECT COUNT(*) FROM "+cfg.Layout.Table(n)); rows != 0 {
			t.Errorf("%s has %d rows", cfg.Layout.Table(n), rows)
		}
	}
}

func TestBadChangesAreRefused(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	id := add(t, c, remind.New(1, "x", tocsin.In(day))).JobID
	for name, bad := range map[string]struct {
		ref  tocsin.Ref
		when tocsin.When
		want string
		kind error
	}{
		"no when":                  {tocsin.ByID(id), tocsin.When{}, "no action time", tocsin.ErrInvalid},
		"no ref":                   {tocsin.Ref{}, tocsin.In(0), "no job_id and no biz_id", tocsin.ErrInvalid},
		"job_id 0":                 {tocsin.ByID(0), tocsin.In(0), "no job_id and no biz_id", tocsin.ErrInvalid},
		"unknown job_id":           {tocsin.ByID(id + 1), tocsin.In(0), "no task", tocsin.ErrNotFound},
		"job_id of another layout": {tocsin.ByID(id | 8191<<9), tocsin.In(0), "no task", tocsin.ErrNotFound},
		"a name none can have":     {tocsin.Define[int]("no such").Of(1), tocsin.In(0), `biz type "no such": use lower-case letters`, tocsin.ErrInvalid},
		"unknown biz type":         {tocsin.Define[int]("no.such").Of(1), tocsin.In(0), "unknown biz type", tocsin.ErrUnknownBizType},
	} {
		if _, err := c.Reschedule(t.Context(), bad.ref, bad.when); !errors.Is(err, bad.kind) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := get(t, c, id); got.Version != 0 || got.Status != tocsin.Pending {
		t.Errorf("got %+v", got)
	}
}
