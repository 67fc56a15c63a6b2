package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
)

// actActs writes an act down as commands do, which say nothing if that fails.
func (u *roleUser) actActs() error {
	o, err := operator.Open(u.t.Context(), tocsin.Config{Layout: u.layout, Servers: []tocsin.Server{{Name: "db1", DSN: u.asUser(u.dsn())}}})
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }()
	return errors.Join(o.Note(u.t.Context(), []operator.PastAct{{At: time.Now(), Person: "p", Via: operator.ViaCommand, Operation: "o", Object: "x", Outcome: "ok"}}), u.runAll("acts"))
}

// What commands change, or may have, is an act each. Those that are called wrongly, or only look, leave none.
func TestCommandsLeaveActs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("biz", "pause", "order.close").ok(t)
	s.run("task", "bury", "118010532085006336", "--reason", "the order is void").refused(t, exitFailed)
	s.run("task", "redrive", "--all", "--dry-run").ok(t)
	s.run("task", "redrive", "--type", "order.close", "--error", "503").ok(t)
	s.run("biz", "pause").refused(t, exitUsage)
	s.run("biz", "list").ok(t)
	got := decode[struct {
		Acts []operator.PastAct `json:"acts"`
		More bool               `json:"more"`
	}](t, s.run("acts", "--json"))
	if len(got.Acts) != 4 || got.More || got.Acts[3].Operation != "apply_biz_types" { // the site's own
		t.Fatalf("%+v", got)
	}
	redrive, bury, pause := got.Acts[0], got.Acts[1], got.Acts[2]
	if redrive.Operation != "redrive_tasks" || redrive.Object != "biz type order.close, dead tasks --error 503" {
		t.Errorf("%+v", redrive)
	}
	if bury.Operation != "bury_task" || !strings.HasPrefix(bury.Object, "task 118010532085006336") || bury.Reason != "the order is void" || bury.Outcome == "ok" || bury.Outcome == "" {
		t.Errorf("%+v", bury)
	}
	if pause.Operation != "pause_biz_type" || pause.Object != "biz type order.close" || pause.Outcome != "ok" || pause.Via != operator.ViaCommand || pause.Person != person() {
		t.Errorf("%+v", pause)
	}
	s.run("acts", "--object", "biz type", "--from", "2026-01-01T00:00:00Z").says(t, "pause_biz_type", "biz type order.close")
	s.run("acts", "--object", "order.close").says(t, "pause_biz_type", "biz type order.close, dead tasks")
	s.run("acts", "--limit", "0").refused(t, exitUsage, "--limit 0")
	s.run("acts", "--from", "now").refused(t, exitUsage, "--from")
}
