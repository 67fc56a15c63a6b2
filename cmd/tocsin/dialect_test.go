package main

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pingcap/tidb/pkg/parser"
	_ "github.com/pingcap/tidb/pkg/parser/test_driver"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/outbox"
)

// refusedShapes are the statements that TiDB's parser refuses, by the word behind "tocsin" in their comment or by their beginning, and why
// they stay as they are.
var refusedShapes = map[string]string{}

// TestOtherDialectsCanReadTheStatements: what a cluster sends to its server is parsed by the grammar of TiDB, which is a third reading of
// MySQL's. TiDB itself is not supported: docs/operations.md says why.
func TestOtherDialectsCanReadTheStatements(t *testing.T) {
	t.Parallel()
	server := startServer(t, devserver.MariaDBConfig{})
	db := openDB(t, server.DSN())
	for _, statement := range []string{"SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = 1"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	s := bareSite(t)
	useAll(s, server.DSN())
	p, shapes, refused := parser.New(), map[string]bool{}, map[string]string{}
	for _, text := range loggedStatements(t, db) {
		shape := figures.ReplaceAllString(text, "0")
		if shapes[shape] {
			continue
		}
		shapes[shape] = true
		if _, _, err := p.Parse(text, "", ""); err != nil {
			refused[nameOfStatement(text)] = fmt.Sprintf("%v\n%s", err, text)
		}
	}
	names := map[string]bool{}
	for shape := range shapes {
		names[nameOfStatement(shape)] = true
	}
	t.Logf("%d shapes of %d statements", len(shapes), len(names))
	if len(names) < 75 {
		t.Errorf("only %d statements were sent", len(names))
	}
	for name, why := range refused {
		if refusedShapes[name] == "" {
			t.Errorf("%s: %s", name, why)
		}
	}
	for name := range refusedShapes {
		if refused[name] == "" {
			t.Errorf("%s is not refused: take it out of the list", name)
		}
	}
}

var (
	figures = regexp.MustCompile(`\d+`)
	sender  = regexp.MustCompile(`/\* tocsin ([^*]+) \*/`)
)

func nameOfStatement(text string) string {
	if found := sender.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return strings.Join(strings.Fields(text)[:min(4, len(strings.Fields(text)))], " ")
}

// useAll has the command and a client do what sends statements.
func useAll(s *site, dsn string) {
	s.t.Helper()
	table := s.prefix + "_0.tocsin_outbox"
	s.write("tocsin.yaml", s.yaml(s.layout, dsn))
	s.run("ddl", "apply", "--json").ok(s.t)
	s.write("tocsin.yaml", s.yaml(s.layout, dsn)+"outboxes:\n  - {name: shop, dsn: \""+dsn+"\", table: "+table+"}\n")
	s.run("outbox", "apply").ok(s.t)
	c := newCallbacks(s.t)
	s.applyCallbacks(c)
	s.applyBiz(s.text("biz.yaml") + "    history: true\n    attempts: 2\n    alarm: {to: alarm}\n" +
		"  - {name: alarm, number: 3, webhook: {url: \"" + c.URL + "\", allow: [127.0.0.0/8]}}\n" +
		"  - {name: sure, number: 4, strict: true, webhook: {url: \"" + c.URL + "\", allow: [127.0.0.0/8]}}\n")
	client, err := tocsin.Open(s.t.Context(), tocsin.Config{Layout: s.layout, Servers: []tocsin.Server{{Name: "db1", DSN: dsn}}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	coupon, sure := tocsin.Define[string]("coupon.remind"), tocsin.Define[string]("sure")
	ids := []string{}
	for i := range uint64(6) {
		added, err := client.Add(s.t.Context(), coupon.New(i+1, "x", tocsin.In(time.Hour)).Dedup("d"))
		if err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, added.JobID.String())
	}
	many := []tocsin.NewTask{}
	for i := range uint64(200) {
		many = append(many, coupon.New(i+1, "x", tocsin.In(0)), sure.New(i+1, "y", tocsin.In(0)), coupon.New(i+1, "z", tocsin.In(time.Second)))
	}
	if _, err := client.AddMany(s.t.Context(), many); err != nil {
		s.t.Fatal(err)
	}
	readRanges(s, outbox.Config{DSN: dsn, Table: table})
	inTx(s, dsn, func(tx *sql.Tx) (err error) {
		_, err = client.AddTx(s.t.Context(), tx, coupon.New(9, "tx", tocsin.In(0)))
		_, cancelled := client.CancelTx(s.t.Context(), tx, coupon.Of(10))
		_, moved := client.RescheduleTx(s.t.Context(), tx, coupon.Of(11), tocsin.In(0))
		return errors.Join(err, cancelled, moved)
	})
	s.serve("n1")
	s.write("schedules.yaml", "schedules:\n  - {name: often, biz_type: coupon.remind, cron: \"@every 1s\", overlap: queue, pause_after: 3}\n  - {name: daily, biz_type: sure, cron: \"0 4 * * *\", overlap: replace}\n")
	s.run("schedule", "apply", "schedules.yaml").ok(s.t)
	for _, line := range []string{
		"task list --biz-id 3", "task list --status dead --type coupon.remind", "task get " + ids[0], "task why " + ids[0], "task cancel " + ids[1], "task reschedule " + ids[2] + " --in 1s", "task runs " + ids[0],
		"task redrive --type coupon.remind", "biz list", "biz stats", "biz pause alarm", "biz resume alarm", "schedule list", "schedule show often", "schedule next daily",
		"schedule runs often", "schedule run-now daily", "schedule deactivate daily", "schedule activate daily", "schedule backfill daily --from 2026-01-01T00:00:00Z --to 2026-01-03T00:00:00Z", "cluster nodes", "cluster tables", "doctor",
		"ddl verify", "ddl finish", "outbox list", "outbox verify", "sweep --grace 1s", "purge", "purge --dry-run", "audit", "schedule delete daily",
	} {
		r := s.run(strings.Fields(line)...)
		if r.code == exitUsage {
			s.t.Errorf("%s: %s", line, r.stderr)
		}
	}
	s.waitFor("deliveries", func() bool { seen, _, _ := c.counts(); return seen > 300 })
}

// readRanges reads more ranges than one statement may have.
func readRanges(s *site, cfg outbox.Config) {
	s.t.Helper()
	o, err := outbox.Open(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	defer o.Close()
	session, err := o.Session(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	defer session.Close()
	var ranges []outbox.Range
	for i := range uint64(501) {
		ranges = append(ranges, outbox.Range{First: 2*i + 1, Last: 2*i + 1})
	}
	if _, err := session.Read(s.t.Context(), ranges, 10, nil); err != nil {
		s.t.Fatal(err)
	}
}

func inTx(s *site, dsn string, do func(*sql.Tx) error) {
	s.t.Helper()
	db := openDB(s.t, dsn)
	tx, err := db.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(do(tx), tx.Commit()); err != nil {
		s.t.Fatal(err)
	}
}

// loggedStatements returns what the server was sent.
func loggedStatements(t *testing.T, db *sql.DB) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT DISTINCT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE command_type IN ('Query', 'Prepare')")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, "general_log") {
			all = append(all, text)
		}
	}
	return all
}
