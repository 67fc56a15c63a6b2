package client_test

import (
	"database/sql"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// What is written in a caller's transaction is stored as it was given, or refused, in every sql_mode: prepared and interpolated, into
// tasks and into an outbox.
func TestWhatACallerWritesIsStoredAsGivenInEverySQLMode(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c, own := open(t, cfg), session(t, devtest.DSN(t), "")
	withOutbox := withOutbox(t, cfg)
	relaying := open(t, withOutbox)
	bizID, modes := uint64(1000), devtest.SQLModes(t)
	for _, mode := range modes {
		for _, params := range []string{"&charset=gbk&sql_select_limit=0", "&interpolateParams=true&charset=latin1"} {
			db := session(t, devtest.DSN(t), "sql_mode="+url.QueryEscape("'"+mode+"'")+params)
			bizID++
			p := &modePlay{t: t, what: mode + params, client: c, relaying: relaying, db: db, own: own, bizID: bizID, outbox: withOutbox.Outbox.Table}
			p.tasks()
			p.changes()
			p.relayed()
		}
	}
	t.Logf("%d modes: %q", len(modes), modes)
}

type modePlay struct {
	t                *testing.T
	what             string
	client, relaying *tocsin.Client
	db, own          *sql.DB
	bizID            uint64
	outbox           string
}

// given is a task and what is to be stored of it.
type given struct {
	task             tocsin.NewTask
	payload, headers string
	key              string
}

// given are tasks with and without each text; the last one has a key.
func (p *modePlay) given() []given {
	plain := func(payload string) tocsin.NewTask { return remind.New(p.bizID, payload, tocsin.In(day)) }
	return []given{
		{task: plain("")},
		{task: plain("ü 🔔 \\ ' \" x").Dedup("ключ '\\").Header("h", ""), payload: "ü 🔔 \\ ' \" x", headers: `{"h":""}`},
		{task: plain("  ").Unique("u", live), payload: "  "},
		{task: remind.NewKey(p.key(), "", tocsin.In(day)).Header("h", "订 \\ ' \""), headers: `{"h":"订 \\ ' \""}`, key: p.key()},
	}
}

// key is one that has no number.
func (p *modePlay) key() string { return "ord '\\ " + strconv.FormatUint(p.bizID, 10) }

func (p *modePlay) tasks() {
	p.t.Helper()
	for i, want := range p.given() {
		tx := begin(p.t, p.db)
		added, err := p.client.AddTx(p.t.Context(), tx, want.task)
		if err != nil {
			p.t.Errorf("%s: task %d: %v", p.what, i, err)
			_ = tx.Rollback()
			continue
		}
		commit(p.t, tx)
		got := get(p.t, p.client, added.JobID)
		if got.Payload != want.payload || string(got.Headers) != want.headers || got.BizKey != want.key {
			p.t.Errorf("%s: task %d: stored %+v", p.what, i, got)
		}
	}
}

// changes reschedules, completes and cancels.
func (p *modePlay) changes() {
	p.t.Helper()
	tx := begin(p.t, p.db)
	moved, err := p.client.RescheduleTx(p.t.Context(), tx, remind.Of(p.bizID), tocsin.In(2*day))
	if err != nil || moved.Changed != 3 {
		p.t.Errorf("%s: reschedule %+v, %v", p.what, moved, err)
	}
	commit(p.t, tx)
	all := listed(p.t, p.client, p.bizID)
	for _, info := range all {
		if ahead := info.ActionTime.Sub(info.Modified); ahead != 2*day {
			p.t.Errorf("%s: rescheduled by %s", p.what, ahead)
		}
	}
	tx = begin(p.t, p.db)
	if err := tocsin.CompleteTx(p.t.Context(), tx, all[0]); err != nil {
		p.t.Errorf("%s: complete: %v", p.what, err)
	}
	gone, err := p.client.CancelTx(p.t.Context(), tx, remind.Of(p.bizID))
	if err != nil || gone.Changed != 2 || gone.Final != 1 {
		p.t.Errorf("%s: cancel %+v, %v", p.what, gone, err)
	}
	commit(p.t, tx)
}

// relayed reads an outbox's rows: of three adds and a cancel.
func (p *modePlay) relayed() {
	p.t.Helper()
	tx := begin(p.t, p.db)
	given := p.given()
	for _, i := range []int{0, 1, 3} {
		if _, err := p.relaying.AddTx(p.t.Context(), tx, given[i].task); err != nil {
			p.t.Errorf("%s: through the outbox: %v", p.what, err)
		}
	}
	if _, err := p.relaying.CancelTx(p.t.Context(), tx, remind.Of(p.bizID)); err != nil {
		p.t.Errorf("%s: cancel through the outbox: %v", p.what, err)
	}
	commit(p.t, tx)
	query := `SELECT CONCAT_WS('|', op, biz_id, biz_key, COALESCE(dedup_key, 'none'), COALESCE(headers, 'none'), attribute) FROM ` + p.outbox + ` WHERE biz_id IN (?, 0) ORDER BY id DESC LIMIT 4`
	rows := must[*sql.Rows](p.t)(p.own.QueryContext(p.t.Context(), query, p.bizID))
	defer rows.Close()
	var got []string
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			p.t.Error(err)
		}
		got = append(got, strings.ReplaceAll(one, p.key(), "KEY"))
	}
	biz := strconv.FormatUint(p.bizID, 10)
	want := []string{
		"cancel|" + biz + "||none|none|",
		"add|0|KEY|none|" + given[3].headers + "|",
		"add|" + biz + `||ключ '\|` + given[1].headers + "|" + given[1].payload,
		"add|" + biz + "||none|none|",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		p.t.Errorf("%s: the outbox has\n%q, want\n%q", p.what, got, want)
	}
}
