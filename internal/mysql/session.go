package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What Tocsin's statements mean depends on variables of the session. Their values come from the server's defaults, from
// init_connect and from the DSN. This file judges every variable with a session value of MariaDB and MySQL, once: settings are set
// on every connection, a connection with one of unfits is refused, and harmless change nothing that Tocsin relies on.

// assignment is what every connection gets, whatever the server, init_connect and the DSN say. No user needs a right for it.
type assignment struct {
	names string // of the variables; a statement may set several
	value string
	only  string // the product, as its comments that are executed begin; "": both
}

const (
	onlyMariaDB = "/*M! "
	onlyMySQL   = "/*!80000 "
)

// first are set before the others: in another sql_mode the rest may have another meaning.
var first = []assignment{
	{names: "sql_mode", value: "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"},
	{names: "completion_type", value: "0"}, // a COMMIT that begins the next transaction would lose what follows
}

// settings are the others.
var settings = []assignment{
	{names: "autocommit", value: "1"}, // without, an insert is lost with its connection
	{names: "time_zone", value: "'+00:00'"},
	{names: "lock_wait_timeout", value: "1"},
	{names: "innodb_lock_wait_timeout", value: "1"},
	{names: "sql_select_limit", value: "18446744073709551615"}, // a SELECT without LIMIT would miss rows
	{names: "sql_safe_updates", value: "0"},
	{names: "sql_big_selects", value: "1"}, // and so max_join_size does not matter
	{names: "sql_auto_is_null", value: "0"},
	{names: "unique_checks", value: "1"}, // else InnoDB may store a second task with a dedup_key
	{names: "foreign_key_checks", value: "1"},
	{names: "div_precision_increment", value: "4"},
	{names: "group_concat_max_len", value: "1048576"}, // else a list of ids may end within an id
	{names: "max_sort_length", value: "1024"},         // else names are put in order by their first letters
	{names: "max_statement_time", value: "0", only: onlyMariaDB},
	{names: "check_constraint_checks", value: "1", only: onlyMariaDB},
	{names: "old_mode", value: "''", only: onlyMariaDB},
	{names: "sql_if_exists", value: "0", only: onlyMariaDB}, // an ALTER of a table that is not there would succeed
	{names: "skip_replication", value: "0", only: onlyMariaDB},
	{names: "max_execution_time", value: "0", only: onlyMySQL},
	{names: "timestamp", value: "DEFAULT", only: onlyMySQL}, // else the clock of the session stands still; MariaDB may refuse to set it
}

// charset and access set variables that have statements of their own. charset comes before all: the texts of the others are read in
// it. MariaDB before 11.1 has tx_isolation and tx_read_only, MySQL 8 transaction_isolation and transaction_read_only; the statement
// works on both.
var (
	charset = assignment{names: "character_set_client character_set_connection character_set_results collation_connection", value: "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci"}
	access  = assignment{names: "transaction_isolation transaction_read_only tx_isolation tx_read_only", value: "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"}
)

// unfit is a value that a connection is refused for: Tocsin's users may lack the right to set it, or it can't be set back.
type unfit struct {
	name string
	when string // an expression that is true of such a value
	only string // as of assignment
	why  string
}

var unfits = []unfit{
	{name: "sql_log_bin", when: "@@sql_log_bin = 0", why: "replicas and backups would lack what is written"},
	{name: "insert_id", when: "@@insert_id <> 0", why: "a new row would take its number from that"},
	{name: "gtid_next", when: "@@gtid_next NOT LIKE 'AUTOMATIC%'", only: onlyMySQL, why: "the first transaction would take that number, and the next one fail"},
	{name: "server_id", when: "@@session.server_id <> @@global.server_id", only: onlyMariaDB, why: "the server with that number would not replicate what is written"},
	{name: "timestamp", when: "ABS(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), SYSDATE())) > 1", why: "the clock of the session stands still"},
}

// harmless are the variables that may have any value, by the reason.
var harmless = []struct{ because, names string }{
	{"it decides how rows are found or sorted, not which; statements that lock rows name their index", `
		big_tables bulk_insert_buffer_size eq_range_index_dive_limit expensive_subquery_limit in_predicate_conversion_threshold join_buffer_size
		join_buffer_space_limit join_cache_level max_heap_table_size max_length_for_sort_data max_rowid_filter_size max_seeks_for_key max_tmp_tables
		mrr_buffer_size optimizer_adjust_secondary_key_costs optimizer_extra_pruning_depth optimizer_join_limit_pref_ratio optimizer_max_sel_arg_weight
		optimizer_max_sel_args optimizer_max_subgraph_pairs optimizer_prune_level optimizer_search_depth optimizer_selectivity_sampling_limit
		optimizer_switch optimizer_use_condition_selectivity preload_buffer_size query_alloc_block_size query_prealloc_size range_alloc_block_size
		range_optimizer_max_mem_size read_buffer_size read_rnd_buffer_size rowid_merge_buff_size set_operations_buffer_size sort_buffer_size
		sql_buffer_result thread_pool_priority tmp_disk_table_size tmp_memory_table_size tmp_table_size transaction_alloc_block_size
		transaction_prealloc_size use_stat_tables internal_tmp_mem_storage_engine windowing_use_high_precision tcp_nodelay
		optimizer_scan_setup_cost optimizer_where_cost new_mode`},
	{"a cache that the server keeps right", "query_cache_strip_comments query_cache_type query_cache_wlock_invalidate"},
	{"statistics, traces and logs for people", `
		analyze_max_length analyze_sample_percentage aria_stats_method binlog_annotate_row_events binlog_rows_query_log_events
		end_markers_in_json explain_format explain_json_format_version histogram_generation_max_mem_size histogram_size histogram_type
		log_disabled_statements log_queries_not_using_indexes log_slow_admin_statements log_slow_disabled_statements log_slow_filter log_slow_max_warnings
		log_slow_min_examined_row_limit log_slow_query log_slow_query_time log_slow_rate_limit log_slow_slave_statements log_slow_verbosity log_warnings
		long_query_time log_slow_always_query_time min_examined_row_limit myisam_stats_method optimizer_trace optimizer_trace_features optimizer_trace_limit
		optimizer_trace_max_mem_size optimizer_trace_offset profiling profiling_history_size progress_report_time slow_query_log sql_log_off
		terminology_use_previous`},
	{"it changes the text of messages and warnings, which decide nothing: errors are told by their numbers", `
		lc_messages max_error_count note_verbosity sql_notes sql_warnings`},
	{"only for statements, functions and kinds of objects that Tocsin does not use: LOAD DATA, SELECT INTO, LOCK TABLES, REPAIR, ANALYZE, HANDLER, " +
		"recursion, vectors, views, triggers, routines, geometry, full text, XA, names of days, WEEK, RAND, AES_ENCRYPT, SHOW CREATE, accounts with passwords", `
		aria_repair_threads aria_sort_buffer_size block_encryption_mode character_set_filesystem cte_max_recursion_depth default_regex_flags
		default_week_format enable_cascade_triggers generated_random_password_length innodb_ft_enable_stopword innodb_ft_user_stopword_table
		innodb_table_locks lc_time_names low_priority_updates max_points_in_geometry max_recursive_iterations max_sp_recursion_depth
		myisam_repair_threads myisam_sort_buffer_size old_passwords print_identified_with_as_hex rand_seed1 rand_seed2 select_into_buffer_size
		select_into_disk_sync select_into_disk_sync_delay show_create_table_skip_secondary_engine show_create_table_verbosity sql_quote_show_create
		standard_compliant_cte updatable_views_with_limit xa_detach_on_prepare restrict_fk_on_non_standard_key default_tmp_storage_engine
		mhnsw_default_distance mhnsw_default_m mhnsw_ef_search`},
	{"only for other storage engines and kinds of tables than Tocsin's: MyISAM, Aria, NDB, secondary and external engines, tables with " +
		"versions, compressed columns", `
		binlog_direct_non_transactional_updates column_compression_threshold column_compression_zlib_level
		column_compression_zlib_strategy column_compression_zlib_wrap deadlock_search_depth_long deadlock_search_depth_short deadlock_timeout_long
		deadlock_timeout_short enable_secondary_engine_statistics external_table_secondary_storage_engine external_table_storage_engine
		keep_files_on_create max_delayed_threads max_insert_delayed_threads secondary_engine_cost_threshold system_versioning_alter_history
		system_versioning_asof system_versioning_insert_history transaction_allow_batching use_secondary_engine`},
	{"it is about tables that are made or altered: the statements name engine, character set, primary key, defaults and algorithm, and " +
		"fail or are checked by verify", `
		alter_algorithm character_set_collations character_set_database character_set_server collation_database collation_server default_collation_for_utf8mb4
		default_storage_engine default_table_encryption enforce_storage_engine explicit_defaults_for_timestamp innodb_compression_default
		innodb_ddl_buffer_size innodb_ddl_threads innodb_default_encryption_key_id innodb_parallel_read_threads innodb_strict_mode innodb_tmpdir
		old_alter_table show_gipk_in_create_table_and_information_schema sql_generate_invisible_primary_key sql_require_primary_key storage_engine`},
	{"at READ COMMITTED it has no effect", "innodb_snapshot_isolation"},
	{"a limit that ends a statement or the session with an error: what was not committed is rolled back, and the error says so", `
		connection_memory_chunk_size connection_memory_limit global_connection_memory_tracking idle_readonly_transaction_timeout idle_transaction_timeout
		idle_write_transaction_timeout interactive_timeout max_allowed_packet max_join_size max_session_mem_used max_tmp_session_space_usage max_user_connections
		net_buffer_length net_read_timeout net_retry_count net_write_timeout parser_max_mem_size require_row_format wait_timeout`},
	{"the driver does not ask for what it sends", `
		redirect_url resultset_metadata session_track_gtids session_track_schema session_track_state_change session_track_system_variables
		session_track_transaction_info`},
	{"numbers with gaps, as there are after each rollback", "auto_increment_increment auto_increment_offset"},
	{"the form of the binary log: it has the same rows; a server that refuses writes at STATEMENT says so, and doctor does", `
		binlog_alter_two_phase binlog_format binlog_row_image binlog_row_value_options binlog_transaction_compression
		binlog_transaction_compression_level_zstd`},
	{"only for a session that applies another server's events", `
		default_master_connection gtid_domain_id gtid_seq_no immediate_server_version max_relay_log_size original_commit_timestamp
		original_server_version pseudo_replica_mode pseudo_slave_mode pseudo_thread_id rbr_exec_mode skip_parallel_replication sql_slave_skip_counter`},
	{"how long a cluster's reads and DDL wait for its other members; turning wsrep off takes the right SUPER", `
		group_replication_consistency wsrep_causal_reads wsrep_dirty_reads wsrep_gtid_seq_no wsrep_on wsrep_osu_method wsrep_retry_autocommit
		wsrep_sync_wait wsrep_trx_fragment_size wsrep_trx_fragment_unit`},
	{"the statements that read the statistics of tables set it themselves", "information_schema_stats_expiry"},
	{"it only tells of the session, or of its last statement", `
		error_count external_user gtid_owned identity in_transaction last_gtid last_insert_id proxy_user statement_id warning_count`},
	{"without effect, for compatibility with old programs", "old"},
}

// session returns what is run on every new connection, in one packet, after what init_connect and the DSN say; more are further
// settings. It ends a transaction that init_connect has begun. The empty transaction at the end takes up what SET TRANSACTION says of
// the next one only, and releases locks of tables. A row follows, see refusedSQL.
func session(more ...assignment) string {
	rest := set(append(settings[:len(settings):len(settings)], more...))
	stands := slices.ContainsFunc(more, func(a assignment) bool { return a.names == "timestamp" })
	return "/* tocsin session */ " + charset.value + ";\n" + set(first) + ";\nCOMMIT AND NO CHAIN NO RELEASE;\n" +
		access.value + ";\n" + rest + ";\nSTART TRANSACTION;\nCOMMIT;\n" + refusedSQL(stands)
}

// set is a statement that sets variables. One of a single product must not be the first.
func set(all []assignment) string {
	var text strings.Builder
	text.WriteString("SET SESSION")
	for i, s := range all {
		one := fmt.Sprintf(" %s = %s", s.names, s.value)
		switch {
		case s.only != "":
			one = s.only + "," + one + " */"
		case i > 0:
			one = "," + one
		}
		text.WriteString("\n   " + one)
	}
	return text.String()
}

// refusedSQL returns a row with the names of unfits that the session has, separated by commas; "": none. The clock of the session
// may stand still.
func refusedSQL(stands bool) string {
	text := "SELECT /* tocsin session */ CONCAT_WS(','"
	for _, u := range unfits {
		if stands && u.name == "timestamp" {
			continue
		}
		if u.only == "" {
			text += fmt.Sprintf(",\n    IF(%s, '%s', NULL)", u.when, u.name)
		} else {
			text += fmt.Sprintf("\n    %s, IF(%s, '%s', NULL) */", u.only, u.when, u.name)
		}
	}
	return text + ")"
}

// ErrSession is the error of a connection that is refused, as a variable of its session has a value that Tocsin can't work with.
var ErrSession = errors.New("the session is refused")

// begin runs session on a new connection, and refuses one that is unfit.
func (c *seeingConn) begin(ctx context.Context, session string) error {
	said, err := c.oneValue(ctx, session)
	if err != nil {
		return fmt.Errorf("set up session: %w", err)
	}
	for _, u := range unfits {
		for name := range strings.SplitSeq(said, ",") {
			if name == u.name {
				return fmt.Errorf("%w: init_connect of the server, or the dsn, sets %s: %s", ErrSession, u.name, u.why)
			}
		}
	}
	return nil
}

// oneValue returns the value that a query reads.
func (c *seeingConn) oneValue(ctx context.Context, query string) (string, error) {
	rows, err := c.QueryContext(ctx, query, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	value := make([]driver.Value, 1)
	if err := rows.Next(value); err != nil {
		return "", err
	}
	if b, ok := value[0].([]byte); ok {
		return string(b), nil
	}
	return fmt.Sprint(value[0]), nil
}

// ClockParam is a parameter of a DSN with which the clock of each session stands still at a time, in seconds since 1970. It is for
// kits that play through what happens at that time.
const ClockParam = "tocsin_clock"

// clock are the settings of a session whose DSN has a ClockParam.
func clock(at string) ([]assignment, error) {
	if at == "" {
		return nil, nil
	}
	if _, err := strconv.ParseFloat(at, 64); err != nil {
		return nil, fmt.Errorf("%s in the dsn must be seconds since 1970, not %q", ClockParam, at)
	}
	return []assignment{{names: "timestamp", value: at}}, nil
}

// waiting are the settings of a session whose client the server waits for no longer than that.
func waiting(limit time.Duration) []assignment {
	if limit <= 0 {
		return nil
	}
	seconds := strconv.Itoa(int(limit.Seconds()))
	return []assignment{{names: "wait_timeout", value: seconds}, {names: "net_write_timeout", value: seconds}}
}

// PeoplesMode is the sql_mode of a text that people run: a GRANT to a missing user must not create a user without a password, as
// MariaDB does unless NO_AUTO_CREATE_USER is on, which MySQL does not know.
const PeoplesMode = "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION' /*M! ',NO_AUTO_CREATE_USER' */"

// Prelude returns the statements with which a text that people run by hand gives its session what Tocsin's own have, except that it
// waits for locks as long as lockWait says. Each ends with a semicolon and a line.
func Prelude(lockWait time.Duration) string {
	all := append(slices.Clone(first), settings...)
	for i := range all {
		switch all[i].names {
		case "sql_mode":
			all[i].value = PeoplesMode
		case "lock_wait_timeout":
			all[i].value = strconv.Itoa(int(lockWait.Seconds()))
		}
	}
	modes := len(first)
	return charset.value + ";\n" + set(all[:modes]) + ";\n" + access.value + ";\n" + set(all[modes:]) + ";\n"
}
