package mysql

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	driverlib "github.com/go-sql-driver/mysql"
)

func TestADSNMayNameSeveralAddresses(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string][]string{
		"u:p@tcp(a:1)/":                          {"a:1"},
		"u:p@tcp(a)/":                            {"a:3306"},
		"u:p@tcp(a,b)/":                          {"a:3306", "b:3306"},
		"u:p@tcp(a:1, b:2)/x?tls=true":           {"a:1", "b:2"},
		"u:p,(/@tcp([::1]:1,[fe80::1]:2)/":       {"[::1]:1", "[fe80::1]:2"},
		"tcp(a:1,b:1,c:1)/":                      {"a:1", "b:1", "c:1"},
		"u@unix(/a,b)/":                          {"/a,b"},
		"u:p@tcp(a:1,)/":                         nil,
		"u:p@tcp(a:1,a:1)/":                      nil,
		"u:p@tcp(a,a:3306)/":                     nil,
		"u:p@tcp(a:1,b:2":                        nil,
		"u:p@tcp(a:1,b:2)/?parseTime=not-a-bool": nil,
	} {
		if got := addresses(dsn); !slices.Equal(got, want) {
			t.Errorf("%s: addresses %q, want %q", dsn, got, want)
		}
	}
}

func TestAPasswordGoesIntoADSN(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"u@tcp(a:1)/":               "u:p@s(:/@tcp(a:1)/",
		"u@tcp(a:1, b:2)/?tls=true": "u:p@s(:/@tcp(a:1,b:2)/?tls=true",
		"not a DSN":                 "not a DSN",
	} {
		got, err := WithPassword(dsn, "p@s(:/")
		if err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", dsn, got, err, want)
		}
	}
	if _, err := WithPassword("u:other@tcp(a:1,b:2)/", "p"); !errors.Is(err, errTwoPasswords) {
		t.Errorf("two passwords: %v", err)
	}
	if got := Redact("u:secret@tcp(a:1,b:2)/"); got != "u@a:1,b:2" {
		t.Errorf("redacted: %s", got)
	}
}

// TestAWrongDSNIsNamed: each kind of value that the driver reads, and the form; the password stands in no error.
func TestAWrongDSNIsNamed(t *testing.T) {
	t.Parallel()
	const of = "u:s?cr/t&@tcp(a:1)/x"
	for dsn, want := range map[string]string{
		of + "?timeout=5": "wrong value of timeout", of + "?tls=true&parseTime=maybe": "wrong value of parseTime", of + "?loc=Nowhere": "wrong value of loc",
		of + "?maxAllowedPacket=much": "wrong value of maxAllowedPacket", of + "?tls=none-such": "wrong value of tls", "u:p@a:1": "of the form", "nothing": "of the form",
		"mysql://u:s?cr/t&@a:1/": "of the form",
	} {
		if _, err := Check(dsn); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "cr/t") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

func TestTransactionsAreCounted(t *testing.T) {
	t.Parallel()
	for gtids, want := range map[string]uint64{
		"":                0,
		"0-1-4711":        4711,
		"0-1-4711,1-2-89": 4800,
		"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,\n4e11fa47-71ca-11e1-9e33-c80aa9429562:3": 7,
		"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:domain:1-3":                                 8,
	} {
		if got := transactions(gtids); got != want {
			t.Errorf("%q: %d, want %d", gtids, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	primary, replica, dead := sight{seen: true, marker: "a"}, sight{seen: true, readOnly: "read_only is on"}, sight{seen: true, err: errNoPrimary}
	foreign, bare := sight{seen: true, marker: "b"}, sight{seen: true}
	refusing := func(number uint16) sight {
		return sight{seen: true, err: fmt.Errorf("look: %w", &driverlib.MySQLError{Number: number})}
	}
	locked := refusing(1045)
	locked.demoted = true
	left, ahead := sight{seen: true, marker: "a", left: true}, sight{seen: true, marker: "a", position: 9}
	for name, c := range map[string]struct {
		using  int
		marker string
		all    []sight
		want   int
	}{
		"the one that takes writes":                   {-1, "", []sight{replica, primary}, 1},
		"none":                                        {-1, "", []sight{replica, dead}, -1},
		"not the one without our tables":              {-1, "", []sight{bare, primary}, 1},
		"of two, the one with more transactions":      {-1, "", []sight{primary, ahead}, 1},
		"of two equal ones, the first":                {-1, "", []sight{primary, primary}, 0},
		"the only one that takes writes, though bare": {-1, "", []sight{bare, replica}, 0},
		"the one in use stays":                        {0, "a", []sight{primary, ahead}, 0},
		"it stays while no other takes writes":        {0, "a", []sight{dead, replica}, 0},
		"the promoted one":                            {0, "a", []sight{dead, primary}, 1},
		"the promoted one, after a demotion":          {0, "a", []sight{replica, primary}, 1},
		"not a foreign one":                           {0, "a", []sight{dead, foreign}, 0},
		"not one without our tables":                  {0, "a", []sight{dead, bare}, 0},
		"not one that was left":                       {1, "a", []sight{left, dead}, 1},
		"the third":                                   {1, "a", []sight{left, dead, primary}, 2},
		"the one in use, though it is full":           {0, "a", []sight{refusing(1040), ahead}, 0},
		"the one in use, though it knows us no more":  {0, "a", []sight{refusing(1045), ahead}, 0},
		"the other one, if it was read-only before":   {0, "a", []sight{locked, ahead}, 1},
		"the other one, if it shuts down":             {0, "a", []sight{refusing(1053), ahead}, 1},
		"the other one, if the first is full":         {-1, "", []sight{refusing(1040), primary}, 1},
		"one that was never looked at is not":         {0, "a", []sight{dead, {}}, 0},
		"the one with our tables, when it is back":    {0, "", []sight{bare, primary}, 1},
		"a bare one stays beside a bare one":          {0, "", []sight{bare, bare}, 0},
		"tables that were just made":                  {0, "", []sight{primary, ahead}, 0},
	} {
		if got := choose(c.using, c.marker, c.all); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
