package layoutrow

import "testing"

func TestARowIsRefusedWhereItDiffers(t *testing.T) {
	t.Parallel()
	good := Row{Asked: 1, Number: 1, Cluster: "a", Identity: "i1", Databases: 8, Tables: 16, Hash: "crc32", Version: 3, WorksWith: 3, State: "active", Ownership: ByRows, GraceMS: 60000}
	for name, c := range map[string]struct {
		change func(*Row)
		want   string
	}{
		"nothing differs":            {func(*Row) {}, ""},
		"a newer schema works still": {func(r *Row) { r.Version = SchemaVersion + 1 }, ""},
		"an older one works too":     {func(r *Row) { r.Version, r.WorksWith = OldestSchema, OldestSchema }, ""},
		"other layout":               {func(r *Row) { r.Tables = 1024 }, "layout of the config is 8x16, that of toc_1 on db1 is 8x1024"},
		"other cluster":              {func(r *Row) { r.Cluster = "b" }, `cluster of the config is "a", that of toc_1 on db1 is "b"`},
		"other identity":             {func(r *Row) { r.Identity = "i2" }, "identity of the config's other databases is i1, that of toc_1 on db1 is i2: it is of another cluster with the same id, correct the servers of the config"},
		"no identity yet":            {func(r *Row) { r.Identity = "" }, ""},
		"databases swapped":          {func(r *Row) { r.Number = 2 }, "database 1 of the config, toc_1 on db1, says that it is database 2"},
		"other hash":                 {func(r *Row) { r.Hash = "fnv" }, `this program places tasks by "crc32", toc_1 on db1 by "fnv"`},
		"schema is older":            {func(r *Row) { r.Version, r.WorksWith = 1, 1 }, "toc_1 on db1 has schema version 1, this program works with 2 and 3: first upgrade it with a tocsin for version 2, by its `tocsin ddl apply` and `tocsin ddl finish`"},
		"older programs go on":       {func(r *Row) { r.WorksWith = 1 }, "toc_1 on db1 works with programs for schema version 1, this program works beside programs for 2 or newer: first finish that upgrade, by `tocsin ddl finish` of a tocsin for the version of the tables"},
		"program is too old":         {func(r *Row) { r.Version, r.WorksWith = 5, 4 }, "this program is for schema version 3, toc_1 on db1 has 5 and works with programs for 4 or newer: upgrade the program"},
		"other ownership":            {func(r *Row) { r.Ownership = ByEtcd }, `ownership of this node is "rows", that of toc_1 on db1 is "etcd": set layout.ownership of the config (in Go, node.Config.Ownership), or stop all nodes and run ` + "`tocsin ddl ownership rows`"},
		"ownership was not read":     {func(r *Row) { r.Ownership = "" }, ""},
		"other grace of sweeps":      {func(r *Row) { r.GraceMS = 20000 }, "grace of sweeps of this process is 1m0s, that of toc_1 on db1 is 20s: set sweep.grace of the config (in Go, node.Config.SweepGrace) to 20s, or stop all nodes and sweeps and run `tocsin ddl grace 1m0s`"},
		"no grace of sweeps yet":     {func(r *Row) { r.GraceMS = 0 }, ""},
		"database was retired":       {func(r *Row) { r.State = "retired" }, "toc_1 on db1 is retired: its tables have moved, correct the servers of the config"},
	} {
		r := good
		c.change(&r)
		if got := (Want{8, 16, "a", "i1", ByRows, 60000}).Refuse(r, "toc_1 on db1"); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	good.Cluster, good.Identity = "b", "i2"
	if got := (Want{8, 16, "", "", "", 0}).Refuse(good, "toc_1 on db1"); got != "" {
		t.Errorf("any cluster: %s", got)
	}
}

func TestMostDatabasesDecideOnTheIdentity(t *testing.T) {
	t.Parallel()
	want := Want{Databases: 4, Tables: 1, Cluster: "a"}
	row := func(db int, cluster, identity string) Row {
		return Row{Asked: db, Number: db, Cluster: cluster, Identity: identity, Databases: 4, Tables: 1, Hash: Hash, Version: 3, WorksWith: 3, State: Active}
	}
	for name, c := range map[string]struct {
		rows []Row
		want string
	}{
		"nobody has one":                  {[]Row{row(0, "a", ""), row(1, "a", "")}, ""},
		"one has one":                     {[]Row{row(0, "a", ""), row(1, "a", "x")}, "x"},
		"most have one":                   {[]Row{row(0, "a", "y"), row(1, "a", "x"), row(2, "a", "x")}, "x"},
		"of equals the first decides":     {[]Row{row(2, "a", "x"), row(1, "a", "y")}, "y"},
		"another cluster has no say":      {[]Row{row(0, "b", "y"), row(1, "a", "x")}, "x"},
		"what is said again counts once":  {[]Row{row(1, "a", "x"), row(0, "a", "y"), row(1, "a", "x")}, "y"},
		"what is said last counts":        {[]Row{row(0, "a", "y"), row(1, "a", "x"), row(0, "a", "")}, "x"},
		"a database that left has no say": {[]Row{row(0, "a", "y"), row(1, "a", "x"), row(0, "b", "y")}, "x"},
	} {
		var ids Identities
		ids.Note(want, c.rows...)
		if got := ids.Agreed(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
