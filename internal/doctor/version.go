package doctor

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tocsinhq/tocsin/store"
)

// release is a version of a server program, its first two numbers.
type release struct{ major, minor int }

// The oldest releases that Tocsin's statements run on.
var (
	oldestMySQL   = release{8, 0}
	oldestMariaDB = release{10, 6}
)

func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func (r release) before(other release) bool {
	return r.major < other.major || r.major == other.major && r.minor < other.minor
}

// version checks that the server is new enough.
func version(f store.Facts) Check {
	const name = "version"
	program, oldest := "MySQL", oldestMySQL
	if isMariaDB(f) {
		program, oldest = "MariaDB", oldestMariaDB
	}
	is := program + " " + f.Version
	r, ok := parseRelease(f.Version)
	other := otherServers.FindString(f.Version + " " + f.VersionComment)
	switch {
	case other != "":
		return bad(Warn, name, fmt.Sprintf("unknown: %s, version %q, is neither MySQL nor MariaDB", other, f.Version),
			"use MySQL or MariaDB: what Tocsin relies on was not tried on this server, and the checks of rights below try one statement of each kind only")
	case !ok:
		return bad(Warn, name, fmt.Sprintf("version %q is not one of MySQL or MariaDB", f.Version), "run the tests of Tocsin against this server first")
	case r.before(oldest):
		return bad(Fail, name, is, fmt.Sprintf("upgrade to %s %s or newer", program, oldest))
	}
	return good(name, "%s", is)
}

// otherServers speak the protocol of MySQL, and give themselves a version of MySQL. They name themselves behind it, or in their comment.
var otherServers = regexp.MustCompile(`(?i)tidb|oceanbase|vitess|planetscale|polardb-x|dolt|singlestore|memsql|starrocks|doris|clickhouse|cockroach`)

// isMariaDB goes by either text: packagers change one of them.
func isMariaDB(f store.Facts) bool {
	return strings.Contains(strings.ToLower(f.Version+" "+f.VersionComment), "mariadb")
}

// versionForm leaves out the "5.5.5-" that MariaDB once put before its version for the sake of old replicas.
var versionForm = regexp.MustCompile(`^(?:5\.5\.5-)?(\d{1,4})\.(\d{1,4})`)

func parseRelease(version string) (release, bool) {
	m := versionForm.FindStringSubmatch(version)
	if m == nil {
		return release{}, false
	}
	major, _ := strconv.Atoi(m[1]) // digits, by the form
	minor, _ := strconv.Atoi(m[2])
	return release{major, minor}, true
}
