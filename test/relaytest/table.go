package relaytest

import (
	"context"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/ddl"
)

// Table is where the table of an outbox is to be: in a business database of its own, which has none yet.
type Table struct {
	Name    string // with its database or schema
	Apply   func(context.Context) (created bool, err error)
	Verify  func(context.Context) ([]ddl.Finding, error)
	Plan    func() (string, error)
	Load    func(plan string)            // runs it as an operator does
	Exec    func(statement string) error // as the owner of the database, with {outbox} for the table
	Comment func() string                // of the table
}

// Tables makes tables of outboxes on one kind of server.
type Tables struct {
	At      func(t *testing.T, name string) Table
	Changes [][3]string     // of the schema: a statement, what is found then, and the statement that undoes it
	Ours    string          // makes {outbox} as a table that is no outbox, with the comment "ours"
	Insert  string          // the columns of Rows and biz_type, which is the last
	Rows    map[string]bool // values of a row, and whether the table takes it
}

// Odd is a name that wants quotes.
const Odd = "out$box"

// ConformTable is the test of an outbox's table that is the same on all kinds of servers.
func ConformTable(t *testing.T, on Tables) {
	for name, test := range map[string]func(*testing.T, Tables){
		"it is made once and verified":                   made,
		"what differs is named":                          differs,
		"a table that is no outbox is left as it is":     foreign,
		"a plan is what is applied":                      planned,
		"it refuses what a relay could not move rightly": refuses,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, on)
		})
	}
}

// Verifies wants these findings, each by a part of its text.
func (o Table) Verifies(t *testing.T, want ...string) {
	t.Helper()
	findings, err := o.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) != len(want) {
		t.Errorf("%d findings, want %d: %v", len(findings), len(want), findings)
	}
	for i := range min(len(want), len(findings)) {
		if got := findings[i].String(); !strings.Contains(got, want[i]) {
			t.Errorf("%s, want %s", got, want[i])
		}
	}
}

func (o Table) apply(t *testing.T) (created bool) {
	t.Helper()
	created, err := o.Apply(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (o Table) exec(t *testing.T, statement string) {
	t.Helper()
	if err := o.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (o Table) plan(t *testing.T) string {
	t.Helper()
	text, err := o.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func made(t *testing.T, on Tables) {
	o := on.At(t, "tocsin_outbox")
	o.Verifies(t, o.Name+" is missing")
	identity := ""
	for i := range 2 {
		if created := o.apply(t); created != (i == 0) {
			t.Fatalf("apply %d: created %t", i+1, created)
		}
		got := o.Comment()
		if i > 0 && got != identity || len(got) != len("tocsin outbox ")+32 {
			t.Errorf("apply %d: the comment is %q, was %q", i+1, got, identity)
		}
		identity = got
		o.Verifies(t)
	}
}

func differs(t *testing.T, on Tables) {
	o := on.At(t, "tocsin_outbox")
	o.apply(t)
	for _, c := range on.Changes {
		o.exec(t, c[0])
		o.Verifies(t, c[1])
		o.exec(t, c[2])
		o.apply(t) // for the identity
	}
	o.Verifies(t)
}

// A wrong name must not mark a business table as an outbox.
func foreign(t *testing.T, on Tables) {
	o := on.At(t, "orders")
	o.exec(t, on.Ours)
	if _, err := o.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "is no outbox, and is left as it is: name a table") {
		t.Error(err)
	}
	o.Load(o.plan(t))
	if got := o.Comment(); got != "ours" {
		t.Errorf("the comment is %q", got)
	}
}

func planned(t *testing.T, on Tables) {
	o := on.At(t, Odd)
	text := o.plan(t)
	for range 2 {
		o.Load(text)
		o.Verifies(t)
	}
	if !strings.Contains(text, "GRANT INSERT ON") || !strings.Contains(text, "GRANT SELECT, DELETE, UPDATE (attempts, last_error) ON") {
		t.Errorf("the plan names no rights:\n%s", text)
	}
}

func refuses(t *testing.T, on Tables) {
	o := on.At(t, "tocsin_outbox")
	o.apply(t)
	for values, takes := range on.Rows {
		if err := o.Exec("INSERT INTO {outbox} (" + on.Insert + ") VALUES (" + values + ", 'x')"); (err == nil) != takes {
			t.Errorf("%s: %v", values, err)
		}
	}
}
