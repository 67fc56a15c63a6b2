package mysql_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// The variables that have a session value, by the server itself.
const (
	mariaDBVariables = "SELECT LOWER(variable_name) FROM information_schema.system_variables WHERE variable_scope <> 'GLOBAL'"
	mySQLVariables   = "SELECT LOWER(variable_name) FROM performance_schema.variables_metadata WHERE variable_scope <> 'GLOBAL'"
)

// TestEveryVariableOfASessionIsJudged fails if a new version of a server has a variable that nobody has judged: add it to session.go,
// to what is set, refused or harmless.
func TestEveryVariableOfASessionIsJudged(t *testing.T) {
	t.Parallel()
	query := mariaDBVariables
	if devtest.IsMySQL(t) {
		query = mySQLVariables
	}
	var names []string
	if err := open(t, devtest.DSN(t)).DB.SelectContext(t.Context(), &names, query); err != nil {
		t.Fatal(err)
	}
	verdicts, counts := mysql.Verdicts(), map[string]int{}
	for _, name := range names {
		counts[strings.Join(verdicts[name], "+")]++
		if verdicts[name] == nil {
			t.Errorf("%s is not judged", name)
		}
	}
	for name, all := range verdicts {
		if len(all) > 1 && !slices.Equal(all, []string{"set", "refused"}) {
			t.Errorf("%s is judged more than once: %v", name, all)
		}
	}
	if len(names) < 150 {
		t.Errorf("the server lists %d variables", len(names))
	}
	t.Logf("%d variables: %v", len(names), counts)
}

// values are of a session of Tocsin's, on both servers unless only one has them.
var values = map[string]string{
	"autocommit": "1", "completion_type": "NO_CHAIN", "time_zone": "+00:00", "sql_mode": "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION",
	"lock_wait_timeout": "1", "innodb_lock_wait_timeout": "1", "sql_select_limit": "18446744073709551615", "sql_safe_updates": "0",
	"sql_big_selects": "1", "sql_auto_is_null": "0", "unique_checks": "1", "foreign_key_checks": "1", "div_precision_increment": "4",
	"group_concat_max_len": "1048576", "max_sort_length": "1024", "character_set_client": "utf8mb4", "character_set_results": "utf8mb4",
	"character_set_connection": "utf8mb4", "collation_connection": "utf8mb4_general_ci",
}

var (
	mariaDBValues = map[string]string{
		"tx_isolation": "READ-COMMITTED", "tx_read_only": "0", "max_statement_time": "0", "check_constraint_checks": "1", "old_mode": "",
		"sql_if_exists": "0", "skip_replication": "0", "in_transaction": "0",
	}
	mySQLValues = map[string]string{
		"transaction_isolation": "READ-COMMITTED", "transaction_read_only": "0", "max_execution_time": "0",
	}
)

// hostile are the values that a test of one setting tries; of MariaDB or MySQL, where only one has the variable.
var hostile = []struct{ set, mysql, mariaDB string }{
	{set: "autocommit = 0, completion_type = 'CHAIN', time_zone = '-09:30'"},
	{set: "completion_type = 'RELEASE', sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES', lock_wait_timeout = 60, innodb_lock_wait_timeout = 60"},
	{set: "sql_select_limit = 1, sql_safe_updates = 1, max_join_size = 1, sql_big_selects = 0, sql_auto_is_null = 1"},
	{set: "unique_checks = 0, foreign_key_checks = 0, div_precision_increment = 0, group_concat_max_len = 8, max_sort_length = 64"},
	{set: "character_set_client = gbk, character_set_results = latin1, collation_connection = 'gbk_bin'"},
	{mariaDB: "tx_isolation = 'SERIALIZABLE', tx_read_only = 1, max_statement_time = 50, check_constraint_checks = 0"},
	{mariaDB: "sql_mode = 'ORACLE,EMPTY_STRING_IS_NULL', old_mode = 'ZERO_DATE_TIME_CAST', sql_if_exists = 1, skip_replication = 1"},
	{mysql: "transaction_isolation = 'SERIALIZABLE', transaction_read_only = 1, max_execution_time = 9000, timestamp = 5"},
}

// TestNothingChangesTheSession sets in the DSN, as init_connect could, what a session must not have.
func TestNothingChangesTheSession(t *testing.T) {
	t.Parallel()
	sets := []string{""}
	for _, h := range hostile {
		for _, set := range []string{h.set, h.mysql, h.mariaDB} {
			if set != "" && (set == h.set || (set == h.mysql) == devtest.IsMySQL(t)) {
				sets = append(sets, set)
			}
		}
	}
	want := []map[string]string{values, mariaDBValues}
	if devtest.IsMySQL(t) {
		want[1] = mySQLValues
	}
	for _, set := range sets {
		s := open(t, dsnWith(t, set))
		for _, some := range want {
			for name, value := range some {
				var got string
				if err := s.DB.QueryRowContext(t.Context(), "SELECT @@"+name).Scan(&got); err != nil || got != value {
					t.Errorf("%s: %s is %q, want %q, %v", set, name, got, value, err)
				}
			}
		}
	}
}

// dsnWith is the DSN of the shared server whose connections begin with a SET.
func dsnWith(t *testing.T, set string) string {
	t.Helper()
	cfg, err := driver.ParseDSN(devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	for assignment := range strings.SplitSeq(set, ", ") {
		if name, value, ok := strings.Cut(assignment, " = "); ok {
			cfg.Params = with(cfg.Params, name, value)
		}
	}
	return cfg.FormatDSN()
}

func with(params map[string]string, name, value string) map[string]string {
	if params == nil {
		params = map[string]string{}
	}
	params[name] = value
	return params
}

// TestAnUnfitSessionIsRefused sets what Tocsin's users may not set back.
func TestAnUnfitSessionIsRefused(t *testing.T) {
	t.Parallel()
	all := map[string]string{"sql_log_bin": "0", "insert_id": "7"}
	if devtest.IsMySQL(t) {
		all["gtid_next"] = "'3e11fa47-71ca-11e1-9e33-c80aa9429562:23'"
	} else {
		all["server_id"], all["timestamp"] = "77", "5"
	}
	for name, value := range all {
		_, err := open(t, dsnWith(t, name+" = "+value)).DB.ExecContext(t.Context(), "DO 1")
		if !errors.Is(err, mysql.ErrSession) || mysql.ClassOf(err) != mysql.Barred || !strings.Contains(err.Error(), "sets "+name+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNothingIsOpenAtTheStart begins what init_connect could, on a connection that then becomes one of Tocsin's.
func TestNothingIsOpenAtTheStart(t *testing.T) {
	t.Parallel()
	for _, begun := range []string{
		"BEGIN", "SET TRANSACTION READ ONLY", "LOCK TABLES mysql.db READ", "SET autocommit = 0", "SET completion_type = 1; BEGIN", "SET completion_type = 2; BEGIN",
	} {
		db, err := sql.Open("mysql", devtest.DSN(t)+"?multiStatements=true")
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1)
		// A server refuses the last but one while tables are locked, and the last one in a transaction.
		for _, statement := range []string{begun, mysql.Session, "DO (SELECT COUNT(*) FROM mysql.func)", "SET TRANSACTION READ WRITE"} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Errorf("%s: %.40s: %v", begun, statement, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
