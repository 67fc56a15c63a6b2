package mysql

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	driverlib "github.com/go-sql-driver/mysql"
)

// listed is a line of testdata/errors.txt.
type listed struct{ class, mariadb, mysql string }

// listedErrors reads testdata/errors.txt.
func listedErrors(t *testing.T) map[uint16]listed {
	t.Helper()
	f, err := os.Open("testdata/errors.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := make(map[uint16]listed)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var n uint16
		var l listed
		if _, err := fmt.Sscan(lines.Text(), &n, &l.class, &l.mariadb, &l.mysql); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if l.mysql == "=" {
			l.mysql = l.mariadb
		}
		all[n] = l
	}
	return all
}

// beyondLists are numbers with a class that neither server's list has: those of the file library, and of proxies and TiDB.
var beyondLists = map[uint16]bool{3: true, 5: true, 20: true, 9001: true, 9002: true, 9003: true, 9005: true}

func TestEachErrorOfTheServersHasItsClass(t *testing.T) {
	t.Parallel()
	all := listedErrors(t)
	for n, l := range all {
		if got := ClassOf(&driverlib.MySQLError{Number: n}); got.String() != l.class {
			t.Errorf("%d %s %s: class %s, want %s", n, l.mariadb, l.mysql, got, l.class)
		}
	}
	for n := range byNumber {
		if _, known := all[n]; !known && !beyondLists[n] {
			t.Errorf("%d has a class, and no server has such an error", n)
		}
	}
	for class, numbers := range classNumbers {
		for _, n := range numbers {
			if byNumber[n] != class {
				t.Errorf("%d has two classes: %s and %s", n, class, byNumber[n])
			}
		}
	}
	for _, n := range append(untouched, fullHouse...) {
		if byNumber[n] != Lost {
			t.Errorf("%d was refused before anything was done, and has class %s", n, byNumber[n])
		}
	}
}

// TestAnUnknownErrorHasTheClassOfItsState is for the errors of later versions.
func TestAnUnknownErrorHasTheClassOfItsState(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]Class{
		"08S01": Lost, "08004": Lost, "28000": Barred, "40001": Contended, "40000": Contended, "25006": Demoted,
		"HY000": Other, "42000": Other, "22001": Other, "23000": Other, "25000": Other, "70100": Other, "": Other,
	} {
		err := &driverlib.MySQLError{Number: 6999}
		copy(err.SQLState[:], state)
		if got := ClassOf(err); got != want {
			t.Errorf("%q: %s, want %s", state, got, want)
		}
		if got := RowRefused(err); got != (state == "22001") {
			t.Errorf("%q: row refused %v", state, got)
		}
	}
}

func TestAnErrorOfAnEngineHasTheClassOfItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		number uint16
		text   string
		want   Class
	}{
		{1015, "Can't lock file (errno: 165 - Table is read only)", Demoted},
		{1015, "Can't lock file (errno: 11 - Resource temporarily unavailable)", Other},
		{1030, "Got error 165 - 'Table is read only' from storage engine", Demoted},
		{1030, `Got error 149 "Lock deadlock; Retry transaction" from storage engine InnoDB`, Contended},
		{1180, "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT", Contended},
		{1180, "Got error 28 - 'No space left on device' during COMMIT", Full},
		{1180, "Got error 5 - 'Input/output error' during COMMIT", Lost},
		{2013, "Lost connection to backend server", Lost},
	} {
		if got := ClassOf(&driverlib.MySQLError{Number: c.number, Message: c.text}); got != c.want {
			t.Errorf("%d %s: %s, want %s", c.number, c.text, got, c.want)
		}
	}
}

// TestARefusalLeavesNoDoubt: what a server refused before it did anything was not done; what it broke off may have been.
func TestARefusalLeavesNoDoubt(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint16]bool{
		1040: false, 1047: false, 1203: false, 1226: false, 3032: false, 6400: false, 1290: false, 1213: false, 1317: false, 1045: false, 1062: false,
		1053: true, 1152: true, 1180: true, 1927: true, 2013: true, 3100: true, 3169: true, 4031: true,
	} {
		if got := InDoubt(&driverlib.MySQLError{Number: n}); got != want {
			t.Errorf("%s: in doubt %v", strconv.Itoa(int(n)), got)
		}
	}
	if !InDoubt(driverlib.ErrInvalidConn) {
		t.Error("a connection that broke leaves no doubt")
	}
}
