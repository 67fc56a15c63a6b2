package operator

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/internal/store"
)

// healthy is a server with nothing to complain about, for use.
func healthy() store.Facts {
	return store.Facts{
		Version: "10.11.6-MariaDB-log", VersionComment: "Debian 12", Hostname: "db1", ServerID: "f6e1a7a2",
		LogBin: true, FlushLogAtCommit: 1, SyncBinlog: 1,
		TableOpenCache: 20000, OpenInstances: 1, TableDefCache: 20000, InnoDBOpenFiles: 20000, OpenFilesLimit: 50000,
		MaxConnections: 500, MaxAllowedPacket: 16 << 20,
		Clock: store.Offset{Ahead: 3 * time.Millisecond, RoundTrip: time.Millisecond},
	}
}

var use = serverUse{Name: "db1", Tables: 8192, Conns: 32}

// faults are what one setting can be like, and the complaint about it.
var faults = map[string]struct {
	spoil func(*store.Facts)
	level Level
	check string
	is    string
	fix   string
}{
	"a replica": {
		func(f *store.Facts) { f.ReadOnly = "read_only is on" }, Fail, "read-only",
		"read_only is on", "at the primary",
	},
	"a proxy in between": {
		func(f *store.Facts) { f.Proxy = "version_comment names ProxySQL" }, Warn, "proxy",
		"ProxySQL", "MySQL server itself",
	},
	"a log that is flushed once a second": {
		func(f *store.Facts) { f.FlushLogAtCommit = 2 }, Fail, "durability",
		"innodb_flush_log_at_trx_commit is 2: a crash", "set innodb_flush_log_at_trx_commit = 1 in my.cnf",
	},
	"a log and a binary log that are not flushed": {
		func(f *store.Facts) { f.FlushLogAtCommit, f.SyncBinlog = 0, 0 }, Fail, "durability",
		"innodb_flush_log_at_trx_commit is 0 and sync_binlog is 0", "set innodb_flush_log_at_trx_commit = 1 and sync_binlog = 1 in my.cnf",
	},
	"the open tables of MySQL's default": {
		func(f *store.Facts) { f.TableOpenCache = 4000 }, Warn, "table_open_cache",
		"table_open_cache is 4000 for 8192 task tables", "set table_open_cache = 17000 in my.cnf",
	},
	"a cache of open tables that MySQL divides": {
		func(f *store.Facts) { f.Version, f.VersionComment, f.OpenInstances = "9.7.0", "MySQL", 16 }, Warn, "table_open_cache",
		"table_open_cache is 20000 in 16 instances, so a connection has room for 1250 of 8192 task tables", "set table_open_cache = 20000 and table_open_cache_instances = 1 in my.cnf",
	},
	"few files beside a larger cache": {
		func(f *store.Facts) { f.TableOpenCache, f.OpenFilesLimit = 4000, 20000 }, Warn, "table_open_cache",
		"table_open_cache is 4000 for 8192 task tables", "set table_open_cache = 17000 and open_files_limit = 35000 in my.cnf",
	},
	"few files of InnoDB": {
		func(f *store.Facts) { f.InnoDBOpenFiles = 2000 }, Warn, "innodb_open_files",
		"innodb_open_files is 2000 for 8192 task tables", "set innodb_open_files = 9000 in my.cnf",
	},
	"the definitions of MariaDB's default": {
		func(f *store.Facts) { f.TableDefCache = 400 }, Warn, "table_definition_cache",
		"table_definition_cache is 400 for 8192 task tables", "set table_definition_cache = 9000 in my.cnf",
	},
	"few files": {
		func(f *store.Facts) { f.OpenFilesLimit = 1024 }, Warn, "open_files_limit",
		"1024 for 8192 task tables and 500 connections", "set open_files_limit = 9000 in my.cnf, and LimitNOFILE=9000",
	},
	"fewer connections than a cluster takes": {
		func(f *store.Facts) { f.MaxConnections = 95 }, Warn, "max_connections",
		"max_connections is 95, and 2 nodes and a sweeper may open 96, 32 each", "set max_connections = 1000 in my.cnf",
	},
	"fewer connections than one process takes": {
		func(f *store.Facts) { f.MaxConnections = 31 }, Fail, "max_connections", "is 31", "max_connections",
	},
	"packets smaller than one batch": {
		func(f *store.Facts) { f.MaxAllowedPacket = 1<<20 - 1 }, Fail, "max_allowed_packet", "1048575 bytes", "= 16M",
	},
	"small packets": {
		func(f *store.Facts) { f.MaxAllowedPacket = 1 << 20 }, Warn, "max_allowed_packet", "1048576 bytes", "= 16M",
	},
	"a clock that is ahead": {
		func(f *store.Facts) { f.Clock.Ahead = 90 * time.Second }, Warn, "clock", "1m30s ahead of this machine's", "NTP",
	},
	"a clock that is behind": {
		func(f *store.Facts) { f.Clock.Ahead = -2 * time.Second }, Warn, "clock", "2s behind this machine's", "NTP",
	},
	"an old MySQL": {
		func(f *store.Facts) { f.Version, f.VersionComment = "5.7.44-log", "MySQL Community Server" }, Fail, "version",
		"MySQL 5.7.44-log", "upgrade to MySQL 8.0 or newer",
	},
	"an old MariaDB that calls itself 5.5.5": {
		func(f *store.Facts) { f.Version = "5.5.5-10.5.23-MariaDB" }, Fail, "version", "10.5.23", "upgrade to MariaDB 10.6 or newer",
	},
	"TiDB": {
		func(f *store.Facts) {
			f.Version, f.VersionComment = "8.0.11-TiDB-v8.5.1", "TiDB Server (Apache License 2.0)"
		}, Warn, "version",
		`unknown: TiDB, version "8.0.11-TiDB-v8.5.1", is neither MySQL nor MariaDB`, "use MySQL or MariaDB",
	},
	"a server that names itself in its comment": {
		func(f *store.Facts) { f.Version, f.VersionComment = "5.7.32", "SingleStoreDB source distribution" }, Warn, "version", "unknown: SingleStore", "use MySQL or MariaDB",
	},
	"something else": {
		func(f *store.Facts) { f.Version, f.VersionComment = "dev", "" }, Warn, "version", `version "dev"`, "run the tests",
	},
}

// advised are the settings that operations.md advises, each with a value that the doctor complains of.
var advised = map[string]func(*store.Facts){
	"innodb_flush_log_at_trx_commit": func(f *store.Facts) { f.FlushLogAtCommit = 2 },
	"sync_binlog":                    func(f *store.Facts) { f.SyncBinlog = 0 },
	"table_open_cache":               func(f *store.Facts) { f.TableOpenCache = 1 },
	"table_open_cache_instances":     func(f *store.Facts) { f.Version, f.VersionComment, f.OpenInstances = "9.7.0", "MySQL", 16 },
	"table_definition_cache":         func(f *store.Facts) { f.TableDefCache = 1 },
	"innodb_open_files":              func(f *store.Facts) { f.InnoDBOpenFiles = 1 },
	"open_files_limit":               func(f *store.Facts) { f.OpenFilesLimit = 1 },
	"max_connections":                func(f *store.Facts) { f.MaxConnections = 1 },
	"max_allowed_packet":             func(f *store.Facts) { f.MaxAllowedPacket = 1 },
}

// The settings that the page advises are those that the doctor looks at; of max_prepared_stmt_count the page says that the default will do.
func TestTheDoctorChecksWhatThePageAdvises(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Settings of MySQL that matter")
	section, _, _ = strings.Cut(section, "\n\nIn MariaDB")
	var told []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(section, -1) {
		told = append(told, row[1])
	}
	slices.Sort(told)
	want := append(slices.Collect(maps.Keys(advised)), "max_prepared_stmt_count")
	if slices.Sort(want); !slices.Equal(told, want) {
		t.Errorf("the page advises %v\nthe doctor checks %v", told, want)
	}
	for name, spoil := range advised {
		f := healthy()
		spoil(&f)
		if !slices.ContainsFunc(settings(f, use), func(c Check) bool { return c.Level != OK && strings.Contains(c.Fix, name+" = ") }) {
			t.Errorf("the doctor does not say what to do about %s", name)
		}
	}
	for _, check := range settings(healthy(), use) {
		if strings.Contains(check.Name, "_") && advised[check.Name] == nil {
			t.Errorf("the doctor checks %s, which the page does not advise", check.Name)
		}
	}
}

func TestEachFaultOfAServerIsNamedWithItsCure(t *testing.T) {
	t.Parallel()
	for name, c := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := healthy()
			c.spoil(&f)
			for _, got := range settings(f, use) {
				switch {
				case got.Name != c.check && got.Level != OK:
					t.Errorf("complains of %+v too", got)
				case got.Name == c.check && (got.Level != c.level || !strings.Contains(got.Is, c.is) || !strings.Contains(got.Fix, c.fix)):
					t.Errorf("got %+v\nwant %s, %q, %q", got, c.level, c.is, c.fix)
				}
			}
		})
	}
}

func TestWhatIsNoFaultIsNotNamed(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*store.Facts){
		"a healthy server": func(*store.Facts) {},
		"no binary log, so its flushing does not matter": func(f *store.Facts) { f.LogBin, f.SyncBinlog = false, 0 },
		"a clock seen through a slow network":            func(f *store.Facts) { f.Clock = store.Offset{Ahead: 3 * time.Second, RoundTrip: 5 * time.Second} },
		"MySQL 8.0":                                      func(f *store.Facts) { f.Version, f.VersionComment = "8.0.36", "MySQL Community Server - GPL" },
		"MariaDB 11, which says so in the comment only":  func(f *store.Facts) { f.Version, f.VersionComment = "11.4.2", "mariadb.org binary" },
		"settings that the server does not have": func(f *store.Facts) {
			f.FlushLogAtCommit, f.SyncBinlog, f.TableOpenCache, f.TableDefCache = -1, -1, -1, -1
			f.OpenFilesLimit, f.MaxConnections, f.MaxAllowedPacket = -1, -1, -1
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := healthy()
			spoil(&f)
			checks := settings(f, use)
			for _, c := range checks {
				if c.Level != OK || c.Fix != "" || c.Is == "" {
					t.Errorf("%+v", c)
				}
			}
			if len(checks) != 11 {
				t.Errorf("%d checks, want 11", len(checks))
			}
		})
	}
}

// setting is the advice of a fix that sets a number; a fix may set several.
var setting = regexp.MustCompile(`(\w+) = (\d+)`)

func TestTheAdviceIsEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := healthy()
		targets := map[string]*int{
			"table_open_cache": &f.TableOpenCache, "table_definition_cache": &f.TableDefCache,
			"open_files_limit": &f.OpenFilesLimit, "max_connections": &f.MaxConnections,
		}
		for name, target := range targets {
			*target = rapid.IntRange(1, 30000).Draw(t, name)
		}
		u := serverUse{Tables: rapid.IntRange(1, 8192).Draw(t, "tables"), Conns: rapid.IntRange(1, 500).Draw(t, "conns")}
		for range 2 { // more connections need more files
			for _, c := range settings(f, u) {
				for _, m := range setting.FindAllStringSubmatch(c.Fix, -1) {
					if target, known := targets[m[1]]; known {
						n, _ := strconv.Atoi(m[2])
						*target = max(*target, n)
					}
				}
			}
		}
		if checks := settings(f, u); Worst(checks) != OK {
			t.Fatalf("after following the advice: %+v", checks)
		}
	})
}

func TestOneServerUnderTwoNamesIsSeen(t *testing.T) {
	t.Parallel()
	uses := []serverUse{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}}
	facts := []store.Facts{{ServerID: "u-1"}, {ServerID: "u-2"}, {ServerID: "u-1"}, {}, {}}
	checks := same(uses, facts)
	if len(checks) != 1 || checks[0].Subject != "server c" || checks[0].Is != "is the same server as a" || checks[0].Level != Warn {
		t.Errorf("%+v", checks)
	}
	facts[0].ServerID, facts[2].ServerID = "1", "1"
	if checks := same(uses, facts); checks != nil {
		t.Errorf("server_id 1, a default, is taken for an identity: %+v", checks)
	}
}
