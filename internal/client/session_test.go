package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
)

// A dangerous variable, and values of it that once lost tasks, or could. Some have no default of the server, or are refused there.
type dangerous struct {
	name    string
	values  []string
	session bool // it has no default
	only    int  // the product that has it; 0: both
}

const (
	ofMariaDB = 1 + iota
	ofMySQL
)

var dangers = []dangerous{
	{name: "completion_type", values: []string{"'CHAIN'", "'RELEASE'"}},
	{name: "autocommit", values: []string{"0"}},
	{name: "sql_mode", values: []string{"''", "'ANSI'", "'NO_BACKSLASH_ESCAPES'", "'TRADITIONAL'", "'HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION'"}},
	{name: "sql_mode", values: []string{"'ORACLE'", "'EMPTY_STRING_IS_NULL'", "'MSSQL,SIMULTANEOUS_ASSIGNMENT'", "'POSTGRESQL'"}, only: ofMariaDB},
	{name: "transaction_read_only", values: []string{"1"}, only: ofMySQL},
	{name: "tx_read_only", values: []string{"1"}, only: ofMariaDB},
	{name: "transaction_isolation", values: []string{"'SERIALIZABLE'", "'READ-UNCOMMITTED'"}, only: ofMySQL},
	{name: "tx_isolation", values: []string{"'SERIALIZABLE'", "'READ-UNCOMMITTED'"}, only: ofMariaDB},
	{name: "sql_safe_updates", values: []string{"1"}},
	{name: "sql_select_limit", values: []string{"0", "1"}},
	{name: "sql_big_selects = 0, {scope} max_join_size", values: []string{"1"}, only: ofMySQL},
	{name: "max_join_size", values: []string{"1"}},
	{name: "sql_log_bin", values: []string{"0"}, session: true},
	{name: "insert_id", values: []string{"7"}, session: true},
	{name: "timestamp", values: []string{"5", "4000000000"}, session: true, only: ofMySQL},
	{name: "timestamp", values: []string{"5", "2000000000"}, session: true, only: ofMariaDB},
	{name: "gtid_next", values: []string{"'3e11fa47-71ca-11e1-9e33-c80aa9429562:23'"}, session: true, only: ofMySQL},
	{name: "skip_replication", values: []string{"1"}, session: true, only: ofMariaDB},
	{name: "server_id", values: []string{"77"}, session: true, only: ofMariaDB},
	{name: "max_statement_time", values: []string{"0.05"}, only: ofMariaDB},
	{name: "max_execution_time", values: []string{"1"}, only: ofMySQL},
	{name: "time_zone", values: []string{"'-09:30'", "'+13:00'"}},
	{name: "character_set_client", values: []string{"gbk", "latin1"}},
	{name: "character_set_connection", values: []string{"ucs2", "sjis"}},
	{name: "character_set_results", values: []string{"latin1"}},
	{name: "collation_connection", values: []string{"utf8mb4_unicode_ci"}},
	{name: "unique_checks", values: []string{"0"}},
	{name: "foreign_key_checks", values: []string{"0"}},
	{name: "sql_auto_is_null", values: []string{"1"}},
	{name: "lock_wait_timeout", values: []string{"1", "31536000"}},
	{name: "innodb_lock_wait_timeout", values: []string{"1", "1073741824"}},
	{name: "wait_timeout", values: []string{"1"}},
	{name: "idle_transaction_timeout", values: []string{"1"}, only: ofMariaDB},
	{name: "div_precision_increment", values: []string{"0"}},
	{name: "group_concat_max_len", values: []string{"4"}},
	{name: "max_sort_length", values: []string{"64"}},
	{name: "old_mode", values: []string{"'ZERO_DATE_TIME_CAST,NO_DUP_KEY_WARNINGS_WITH_IGNORE'"}, only: ofMariaDB},
	{name: "sql_if_exists", values: []string{"1"}, only: ofMariaDB},
	{name: "innodb_snapshot_isolation", values: []string{"1"}, only: ofMariaDB},
	{name: "auto_increment_increment", values: []string{"3"}},
	{name: "binlog_row_image", values: []string{"'MINIMAL'"}},
}

// begun are what init_connect can do besides setting variables.
var begun = []string{"BEGIN", "SET TRANSACTION READ ONLY", "SET autocommit = 0; INSERT INTO audit.log (v) VALUES (1)", "LOCK TABLES audit.log READ", "SET completion_type = 1; BEGIN"}

// What an Add has acknowledged is committed, whatever a session begins with: with the server's defaults, with init_connect, or with
// the DSN.
func TestAcknowledgedAddsAreCommittedWhateverTheSession(t *testing.T) {
	t.Parallel()
	m := must[*devserver.MariaDB](t)(devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{Dir: t.TempDir(), Args: []string{"--log-bin=log", "--server-id=3"}}))
	t.Cleanup(func() { _ = m.Stop() })
	cfg := cluster(t, tocsin.Server{Name: "db1", DSN: m.DSN()})
	root := session(t, m.DSN(), "")
	right, product := "SESSION_VARIABLES_ADMIN", ofMySQL
	if !m.IsMySQL() {
		right, product = "BINLOG ADMIN, BINLOG REPLAY", ofMariaDB
	}
	for _, statement := range []string{
		"CREATE DATABASE audit", "CREATE TABLE audit.log (id INT AUTO_INCREMENT PRIMARY KEY, v INT)", "CREATE USER shop@'%'",
		"GRANT SELECT, INSERT, UPDATE, DELETE, LOCK TABLES ON *.* TO shop@'%'", "GRANT " + right + " ON *.* TO shop@'%'",
	} {
		exec(t, root, statement)
	}
	s := &hostileServer{t: t, root: root, cfg: cfg, shop: strings.Replace(m.DSN(), "root@", "shop@", 1)}
	for _, d := range dangers {
		if d.only != 0 && d.only != product {
			continue
		}
		for _, value := range d.values {
			if name := strings.ReplaceAll(d.name, "{scope}", ""); !d.session {
				s.asDefault(d.name, value)
				s.asInit(fmt.Sprintf("SET SESSION %s = %s", name, value))
			} else {
				s.asInit(fmt.Sprintf("SET SESSION %s = %s", name, value))
			}
		}
	}
	for _, init := range begun {
		s.asInit(init)
	}
	t.Logf("%d plays, %d refused, %d adds acknowledged, %d lost", s.plays, s.refused, s.acknowledged, s.lost)
}

// hostileServer plays adds.
type hostileServer struct {
	t                                  *testing.T
	root                               *sql.DB
	cfg                                tocsin.Config
	shop                               string // DSN of a user that init_connect is run for
	bizID                              uint64
	plays, refused, acknowledged, lost int
}

// asDefault plays with a value as the server's default.
func (s *hostileServer) asDefault(name, value string) {
	s.t.Helper()
	former := ""
	variable := name[strings.LastIndex(name, " ")+1:]
	if err := s.root.QueryRowContext(s.t.Context(), "SELECT @@global."+variable).Scan(&former); err != nil {
		s.t.Errorf("%s: %v", name, err)
		return
	}
	set := "SET GLOBAL " + strings.ReplaceAll(name, "{scope}", "GLOBAL") + " = "
	exec(s.t, s.root, set+value)
	s.play(set+value, s.shop)
	if _, err := s.root.ExecContext(s.t.Context(), "SET GLOBAL "+variable+" = ?", former); err != nil {
		exec(s.t, s.root, "SET GLOBAL "+variable+" = "+former) // a number
	}
	if variable != name {
		exec(s.t, s.root, "SET GLOBAL sql_big_selects = 1")
	}
}

// asInit plays with init_connect.
func (s *hostileServer) asInit(init string) {
	s.t.Helper()
	exec(s.t, s.root, "SET GLOBAL init_connect = ?", init)
	s.play("init_connect: "+init, s.shop)
	exec(s.t, s.root, "SET GLOBAL init_connect = ''")
}

// play adds, cancels and adds again, and looks from another session, which was there before.
func (s *hostileServer) play(what, dsn string) {
	s.t.Helper()
	s.plays++
	cfg := s.cfg
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn}}
	c, err := tocsin.Open(s.t.Context(), cfg)
	if err != nil {
		s.refuse(what, err)
		return
	}
	defer c.Close()
	s.bizID++
	var acknowledged []tocsin.JobID
	add := func(task tocsin.NewTask) {
		added, err := c.Add(s.t.Context(), task)
		if err != nil {
			s.t.Errorf("%s: add: %v", what, err)
			return
		}
		acknowledged = append(acknowledged, added.JobID)
	}
	all, err := c.AddMany(s.t.Context(), []tocsin.NewTask{remind.New(s.bizID, "m", tocsin.In(day)), remind.New(s.bizID, "n", tocsin.In(0))})
	if err != nil {
		s.t.Errorf("%s: AddMany: %v", what, err)
	}
	for _, one := range all {
		acknowledged = append(acknowledged, one.JobID)
	}
	gone, err := c.Add(s.t.Context(), remind.New(s.bizID, "gone", tocsin.In(day)))
	if err != nil {
		s.t.Errorf("%s: add: %v", what, err)
	}
	for _, task := range []tocsin.NewTask{
		remind.New(s.bizID, "u", tocsin.In(day)).Unique("u", live), remind.New(s.bizID, "", tocsin.In(0)), remind.New(s.bizID, "k", tocsin.In(day)).Dedup("ключ"),
	} {
		add(task)
	}
	if done, err := c.Cancel(s.t.Context(), tocsin.ByID(gone.JobID)); err != nil || done.Changed != 1 {
		s.t.Errorf("%s: cancel: %+v, %v", what, done, err)
	}
	for _, task := range []tocsin.NewTask{remind.New(s.bizID, "ü 🔔 \\ ' \" x", tocsin.In(2*day)), remind.New(s.bizID, "h", tocsin.In(day)).Header("h", "订")} {
		add(task)
	}
	if again, err := c.Add(s.t.Context(), remind.New(s.bizID, "k", tocsin.In(day)).Dedup("ключ")); err != nil || !again.Existing {
		s.t.Errorf("%s: add again: %+v, %v", what, again, err)
	}
	if err := c.Close(); err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
	s.look(what, acknowledged)
}

// refuse notes an Open that was refused: with the reason, before anything was acknowledged.
func (s *hostileServer) refuse(what string, err error) {
	s.t.Helper()
	s.refused++
	if !errors.Is(err, tocsin.ErrUnreachable) && !strings.Contains(err.Error(), "init_connect") {
		s.t.Errorf("%s: %v", what, err)
	}
	s.t.Logf("%s: refused: %v", what, err)
}

// look counts the tasks that are lost.
func (s *hostileServer) look(what string, acknowledged []tocsin.JobID) {
	s.t.Helper()
	s.acknowledged += len(acknowledged)
	for _, id := range acknowledged {
		var created, due sql.NullString
		query := "SELECT gmt_create, ABS(TIMESTAMPDIFF(SECOND, gmt_create, UTC_TIMESTAMP())) < 60 FROM " + s.cfg.Layout.Table(id.Table()) + " WHERE job_id = ? AND status = 0"
		if err := s.root.QueryRowContext(context.Background(), query, uint64(id)).Scan(&created, &due); err != nil || due.String != "1" {
			s.lost++
			s.t.Errorf("%s: task %d is lost, or not as it was added: created %s, %v", what, id, created.String, err)
		}
	}
}
