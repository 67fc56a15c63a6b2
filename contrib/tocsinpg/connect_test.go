package tocsinpg_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

// The rights that `tocsin outbox plan` and `tocsin ddl grants` print are enough for a service and a relay.
func TestTheRightsOfThePlanAreEnough(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	service, relays, audits := s.Config.Layout.Prefix+"s", s.Config.Layout.Prefix+"r", s.Config.Layout.Prefix+"a"
	for _, role := range []string{service, relays, audits} {
		s.Exec("CREATE ROLE " + role + " LOGIN")
	}
	s.Exec("REVOKE ALL ON SCHEMA public FROM public")
	plan, err := tocsinpg.PlanOutbox(s.From.Table)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(plan) {
		if _, grant, ok := strings.Cut(strings.TrimSpace(line), "GRANT "); ok {
			s.Exec(strings.NewReplacer("TO service", "TO "+service, "TO tocsin_relay", "TO "+relays, "TO tocsin_audit", "TO "+audits).Replace("GRANT " + grant))
		}
	}
	admins := s.From.DSN
	as := func(user string) string { return strings.Replace(admins, "//postgres@", "//"+user+"@", 1) }
	s.From.DSN = as(relays)
	var log devtest.Log
	if next, err := s.Session().Next(t.Context()); next == 0 || err != nil {
		t.Errorf("a relay reads the next id %d, %v", next, err)
	}
	cfg := s.config(&log)
	cfg.GapAge = 1
	s.relay(cfg)
	admin := s.DB
	s.DB = s.openDB(as(service))
	tx := s.Begin()
	if err := errors.Join(s.AddTx(tx, 1, "gone", tocsin.In(day)), tx.Rollback()); err != nil {
		t.Fatal(err)
	}
	s.Add(1, "a", tocsin.In(day))
	s.Cancel(1)
	s.Add(1, "b", tocsin.In(day))
	s.Want(1, "a cancelled, b pending")
	if _, err := s.DB.Exec("SELECT count(*) FROM tocsin_outbox"); err == nil {
		t.Error("the service may read the outbox")
	}
	s.Exec("INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms) VALUES ('no.such', 9, 1)")
	s.DB = admin
	s.Await("one row to be left, set aside", func() bool { return s.Number("SELECT count(*) FROM tocsin_outbox WHERE last_error = ''") == 0 })
	for _, line := range log.Lines("outbox can't be relayed: its rows wait") {
		t.Errorf("%v", line)
	}
	s.DB = s.openDB(as(audits))
	if n := s.Number("SELECT count(*) FROM tocsin_outbox"); n != 1 {
		t.Errorf("an audit sees %d rows", n)
	}
	if _, err := s.DB.Exec("DELETE FROM tocsin_outbox"); err == nil {
		t.Error("an audit may delete rows")
	}
	s.DB = s.openDB(as(relays))
	for _, text := range []string{"UPDATE tocsin_outbox SET biz_id = 1", "INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms) VALUES ('x', 1, 1)", "TRUNCATE tocsin_outbox"} {
		if _, err := s.DB.Exec(text); err == nil {
			t.Errorf("a relay may %s", text)
		}
	}
}

func TestConfigsThatCantBeRightAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  outbox.Config
		want string
	}{
		"good":          {outbox.Config{DSN: "postgres://u:p@h1:5432,h2:5433/shop?sslmode=require", Table: "public.tocsin_outbox", Driver: tocsinpg.Driver{}}, ""},
		"good too":      {outbox.Config{DSN: "postgresql://u@h/shop", Table: "Shop-1.out$box", Driver: tocsinpg.Driver{}}, ""},
		"no driver":     {outbox.Config{DSN: "postgres://u@h/shop", Table: "public.tocsin_outbox"}, "set Driver to that of package tocsinpg"},
		"no schema":     {outbox.Config{DSN: "postgres://u@h/shop", Table: "tocsin_outbox", Driver: tocsinpg.Driver{}}, "name its schema too"},
		"no database":   {outbox.Config{DSN: "postgres://u@h", Table: "public.tocsin_outbox", Driver: tocsinpg.Driver{}}, "names its database"},
		"no URL":        {outbox.Config{DSN: "host=h dbname=shop", Table: "public.tocsin_outbox", Driver: tocsinpg.Driver{}}, "is a URL"},
		"MySQL's":       {outbox.Config{DSN: "u@tcp(h:1)/", Table: "shop.tocsin_outbox", Driver: tocsinpg.Driver{}}, "is a URL"},
		"no port":       {outbox.Config{DSN: "postgres://u:secret@h:x/shop", Table: "public.tocsin_outbox", Driver: tocsinpg.Driver{}}, "port"},
		"a wrong table": {outbox.Config{DSN: "postgres://u@h/shop", Table: "public.a b", Driver: tocsinpg.Driver{}}, "of letters, digits"},
	} {
		err := c.cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	cfgs := tocsinpg.Drive([]outbox.Config{{DSN: "postgres://u@h/shop"}, {DSN: "u@tcp(h:1)/"}})
	if cfgs[0].Driver != (tocsinpg.Driver{}) || cfgs[1].Driver != nil {
		t.Errorf("%+v", cfgs)
	}
}

// The first address that takes writes is used.
func TestTheAddressThatTakesWritesIsUsed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	u, err := url.Parse(s.From.DSN)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = "127.0.0.1:1," + u.Host
	s.From.DSN = u.String()
	s.Session()
	s.Exec("ALTER DATABASE " + s.Config.Layout.Prefix + " SET default_transaction_read_only = on")
	if _, err := s.Outbox().Session(t.Context()); err == nil || !strings.Contains(err.Error(), "read only connection") {
		t.Errorf("a standby is used: %v", err)
	}
}

// A pooler answers with a process number of its own.
func TestAPoolerIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	u, err := url.Parse(s.From.DSN)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	ended := make(chan struct{})
	go func() { defer close(ended); pool(listener, server) }()
	t.Cleanup(func() { _ = listener.Close(); <-ended })
	u.Host = listener.Addr().String()
	s.From.DSN = u.String()
	if _, err := s.Outbox().Session(t.Context()); err == nil || !strings.Contains(err.Error(), "goes through a pooler") {
		t.Errorf("%v", err)
	}
}

// pool passes connections on one after the other, with another process number, until the listener is closed.
func pool(listener net.Listener, server string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		behind, err := net.Dial("tcp", server)
		if err == nil {
			go func() { _, _ = io.Copy(behind, client); _ = behind.Close() }()
			renumber(client, behind)
		}
		_ = client.Close()
	}
}

// renumber copies messages, and changes that with the process number.
func renumber(to io.Writer, from io.Reader) {
	head := make([]byte, 5) // kind and length
	for {
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		if head[0] == 'K' {
			body[3]++
		}
		if _, err := to.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// A copy of a table has its identity too.
func TestACopyWithTheSameIdentityIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Exec("CREATE SCHEMA copy")
	s.Exec("CREATE TABLE copy.tocsin_outbox (LIKE public.tocsin_outbox INCLUDING ALL)")
	var comment string
	if err := s.DB.QueryRow("SELECT obj_description('public.tocsin_outbox'::regclass, 'pg_class')").Scan(&comment); err != nil {
		t.Fatal(err)
	}
	s.Exec("COMMENT ON TABLE copy.tocsin_outbox IS '" + comment + "'")
	var log devtest.Log
	s.relay(s.config(&log))
	log.Await(t, "outbox is relayed by this process")
	s.From.Table = "copy.tocsin_outbox"
	if leads, err := s.Session().Lead(t.Context(), 2*time.Second); leads || err == nil || !strings.Contains(err.Error(), "another table, in database "+s.Config.Layout.Prefix+", has the same identity") {
		t.Error(leads, err)
	}
	s.warns("one is a copy of the other")
}

// A copy of a database has the identities of its outboxes, and locks of its own.
func TestACopyInAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	name := s.Config.Layout.Prefix + "_copy"
	_ = s.DB.Close() // a database in use is not copied
	s.DB = s.openDB(devtest.PostgreSQL(t, "postgres"))
	s.Exec("CREATE DATABASE " + name + " TEMPLATE " + s.Config.Layout.Prefix)
	var log devtest.Log
	s.relay(s.config(&log))
	log.Await(t, "outbox is relayed by this process")
	s.From.DSN = devtest.PostgreSQL(t, name)
	s.warns("in database " + s.Config.Layout.Prefix + ", has the same identity")
}

// warns runs a relay, which logs once why it relays nothing.
func (s *shop) warns(why string) {
	s.TB.Helper()
	var log devtest.Log
	stop := s.relay(s.config(&log))
	line := log.Await(s.TB, "outbox can't be relayed: its rows wait")
	stop()
	if text := fmt.Sprint(line["error"]); !strings.Contains(text, why) || len(log.Lines("outbox is relayed by this process")) > 0 {
		s.TB.Errorf("says %q", text)
	}
}

// The settings of a session do not depend on those of its user or database.
func TestASessionOfARelayEndsSoonIfItHangs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	conn, err := tocsinpg.Connect(t.Context(), s.From)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for name, want := range map[string]string{
		"idle_session_timeout": "10s", "idle_in_transaction_session_timeout": "10s", "transaction_isolation": "read committed", "TimeZone": "UTC",
		"application_name": "tocsin relay",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, want %q: %v", name, got, want, err)
		}
	}
}
