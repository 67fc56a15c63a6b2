package operator

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	driverlib "github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// other is a MySQL.
func other(f *store.Facts) { f.Version, f.VersionComment = "8.0.40", "MySQL Community Server" }

func TestStandby(t *testing.T) {
	t.Parallel()
	two := []mysql.Sighting{{Address: "a:1", Used: true}, {Address: "b:1"}}
	for name, c := range map[string]struct {
		is   func(*store.Facts)
		seen []mysql.Sighting
		want []string
	}{
		"alone, whatever the user may": {func(f *store.Facts) { f.Exempt = []string{"ALL PRIVILEGES"} }, nil, nil},
		"a pair as it should be":       {func(f *store.Facts) { f.Replicas, f.SemiWanted, f.SemiSync = 1, true, true }, two, nil},
		"nobody may say":               {func(f *store.Facts) { f.Replicas, f.Unlooked = -1, errors.New("denied") }, two, nil},
		"asynchronous":                 {func(f *store.Facts) { f.Replicas = 2 }, nil, []string{"replicas: 2 connected, and commits wait for none"}},
		"nobody acknowledges":          {func(f *store.Facts) { f.Replicas, f.SemiWanted = 1, true }, nil, []string{"replicas: 1 connected, and none acknowledges"}},
		"nobody follows":               {func(*store.Facts) {}, two, []string{"replicas: none is connected, and the config names 2 addresses"}},
		"promoted":                     {func(f *store.Facts) { f.Followed = true }, nil, []string{"replicas: none is connected, and this server was a replica itself"}},
		"a replica, and root":          {func(f *store.Facts) { f.ReadOnly, f.Exempt = "read_only is on", []string{"ALL PRIVILEGES"} }, nil, []string{"exemption: this user may write to a read-only server (ALL PRIVILEGES)"}},
		"SUPER of MariaDB 10.11":       {func(f *store.Facts) { f.ReadOnly, f.Exempt = "read_only is on", []string{"SUPER"} }, nil, nil},
		"SUPER of MariaDB 10.6": {func(f *store.Facts) {
			f.Version, f.ReadOnly, f.Exempt = "10.6.1-MariaDB", "read_only is on", []string{"SUPER"}
		}, nil, []string{"exemption: "}},
		"CONNECTION_ADMIN of MySQL": {func(f *store.Facts) { other(f); f.ReadOnly, f.Exempt = "read_only is on", []string{"CONNECTION ADMIN"} }, nil, []string{"exemption: "}},
		"READ_ONLY ADMIN of MySQL":  {func(f *store.Facts) { other(f); f.ReadOnly, f.Exempt = "read_only is on", []string{"READ ONLY ADMIN"} }, nil, nil},
	} {
		f := healthy()
		c.is(&f)
		got := complaints(standby(f, c.seen))
		if len(got) != len(c.want) || slices.ContainsFunc(c.want, func(w string) bool { return !strings.Contains(got[0], w) }) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAFailOverIsNamedOnlyIfNoPrimaryMayLive(t *testing.T) {
	t.Parallel()
	replica, off, full, primary := mysql.Sighting{Address: "r:1", ReadOnly: true}, mysql.Sighting{Address: "o:1", Silent: true}, mysql.Sighting{Address: "f:1"}, mysql.Sighting{Address: "p:1", Writes: true}
	for name, c := range map[string]struct {
		seen []mysql.Sighting
		want string // in what to do; "": no word of read_only
	}{
		"the primary is off":                  {[]mysql.Sighting{off, replica}, "fail over to r:1"},
		"both are replicas":                   {[]mysql.Sighting{replica, replica}, "turn read_only off"},
		"the primary has no connection left":  {[]mysql.Sighting{full, replica}, ""},
		"the primary takes writes":            {[]mysql.Sighting{primary, replica}, ""},
		"one is off, and a third one refuses": {[]mysql.Sighting{off, full, replica}, ""},
	} {
		got := unreachable(errors.New("no answer"), serverUse{Name: "db1"}, c.seen).Fix
		if !strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, "read_only") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	used, replica := mysql.Sighting{Address: "a:1", Used: true, Writes: true, Why: "takes writes, in use"}, mysql.Sighting{Address: "b:1", Why: "is read-only"}
	for name, c := range map[string]struct {
		seen  []mysql.Sighting
		level Level
		part  string
	}{
		"a primary and its replica": {[]mysql.Sighting{used, replica}, OK, "b:1 is read-only"},
		"two primaries":             {[]mysql.Sighting{used, {Address: "b:1", Writes: true, Split: true}}, Fail, "several take writes, a:1 is used"},
		"a replica that is down":    {[]mysql.Sighting{used, {Address: "b:1", Silent: true, Why: "refused"}}, Warn, "b:1 refused"},
	} {
		got := addresses(c.seen)
		if len(got) != 1 || got[0].Level != c.level || !strings.Contains(got[0].Is, c.part) || (got[0].Fix == "") != (c.level == OK) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := addresses(nil); got != nil {
		t.Errorf("a server with one address: %+v", got)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	runs := func(id, group, version string, schema int) Group {
		return Group{Group: group, Nodes: []assign.NodeState{{ID: id, Info: assign.NodeInfo{Version: version, Schema: schema}}}}
	}
	groups := []Group{runs("a", "orders", "1.2", 0), runs("b", "callback", "1.1", 3)}
	if got := complaints(programs(groups)); got != nil || programs(nil) != nil {
		t.Errorf("one program in each group: %q", got)
	}
	groups = append(groups, runs("c", "orders", "1.1", 0), runs("d", "callback", "1.1", 2))
	want := []string{
		"warn : versions: nodes of group callback have different programs: version 1.1 for schema version 2: d; version 1.1 for schema version 3: b",
		"warn : versions: nodes of group orders have different programs: version 1.1: c; version 1.2: a",
	}
	if got := complaints(programs(groups)); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestTheFixIsForWhatTheServerSays(t *testing.T) {
	t.Parallel()
	number := func(n uint16) error { return &driverlib.MySQLError{Number: n, Message: "no"} }
	for name, c := range map[string]struct {
		err error
		fix string
	}{
		"init_connect fails":          {number(1184), "correct init_connect"},
		"the password has expired":    {number(1862), "ALTER USER ... IDENTIFIED BY"},
		"a new password is wanted":    {number(1820), "ALTER USER ... IDENTIFIED BY"},
		"the user is locked":          {number(3118), "ACCOUNT UNLOCK"},
		"the user is locked there":    {number(4151), "ACCOUNT UNLOCK"},
		"the host is blocked":         {number(1129), "flush-hosts"},
		"TLS is wanted":               {number(3159), "set tls"},
		"a wrong password, or TLS":    {number(1045), "needs TLS"},
		"no TLS there":                {driverlib.ErrNoTLS, "or have the server speak TLS"},
		"a certificate of a stranger": {x509.UnknownAuthorityError{}, "the authority that signed the certificate"},
		"a way to log in":             {driverlib.ErrUnknownPlugin, "give the user access"},
		"nobody listens":              {syscall.ECONNREFUSED, "start it"},
		"a proxy with nothing behind": {io.EOF, "start the server behind what answers there"},
		"a host that swallows all":    {&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, "let this host reach it"},
	} {
		if got := unreachable(c.err, serverUse{Name: "db1"}, nil); !strings.Contains(got.Fix, c.fix) || c.fix != "start it" && strings.Contains(got.Fix, "start it") {
			t.Errorf("%s: %q, want %q", name, got.Fix, c.fix)
		}
	}
}
